from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from streamhouse import execute
from streamhouse.errors import DataLossError, OptionError, StreamhouseError, TableError
from streamhouse.paimon.changelog.offset_origin import bare
from streamhouse.paimon.changelog.snapshot_units import is_replayable
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.table import Table
from streamhouse.source import Offset, Source

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab


def stream(lab: Lab, table: Table, **options: str) -> PaimonSource:
    named = {f"scan.{key.replace('_', '-')}": value for key, value in options.items()}
    return PaimonSource(lab.warehouse.options, table.identifier, options=named)


def take(
    lab: Lab, source: PaimonSource, start: Offset, end: Offset, parallelism: int = 1
) -> list[Any]:
    partitions = source.partitions(start, end, parallelism)
    assert len(partitions) <= max(1, parallelism)
    elsewhere: PaimonSource = pickle.loads(pickle.dumps(source))
    return [row for partition in partitions for row in lab.rows(elsewhere.read(partition))]


def drain(
    lab: Lab, source: PaimonSource, start: Offset, max_rows: int | None = None
) -> tuple[list[list[Any]], Offset]:
    batches: list[list[Any]] = []
    for _ in range(100):
        end = source.latest_offset(start, max_rows)
        if end == start:
            return batches, start
        batches.append(take(lab, source, start, end))
        start = end
    raise AssertionError("the source never came to rest")


def test_it_is_a_source(lab: Lab) -> None:
    source: Source = stream(lab, lab.make("t"))
    assert source.initial_offset() == {}
    assert source.schema.names == ["id", "v"]
    assert not source.finished({})


def test_snapshot_first_then_changes_in_commit_order(lab: Lab) -> None:
    table = lab.make("t")
    source = stream(lab, table)
    assert source.changelog and source.ordered
    assert drain(lab, source, {}) == ([], {})
    lab.write(table, 1, [(1, 1), (2, 2)])
    lab.write(table, 2, [(2, 3)])
    batches, offset = drain(lab, source, {})
    assert sorted(batches[0]) == [(1, 1, "+I"), (2, 3, "+I")]
    assert bare(offset) == {"snapshot": 2}
    lab.write(table, 3, [(1, 1, "-D")])
    lab.write(table, 4, [(1, 7, "+I")])
    lab.write(table, 5, [(2, 9, "+U")])
    batches, offset = drain(lab, source, offset)
    assert batches == [[(1, 1, "-D"), (1, 7, "+I"), (2, 3, "-U"), (2, 9, "+U")]]
    raw = stream(lab, table, remove_normalize="true")
    assert drain(lab, raw, {"snapshot": 2})[0] == [[(1, 1, "-D"), (1, 7, "+I"), (2, 9, "+U")]]
    assert bare(offset) == {"snapshot": 5}


def test_a_range_reads_the_same_again(lab: Lab) -> None:
    table = lab.make("t", {"bucket": "4"})
    for batch in range(1, 6):
        lab.write(table, batch, [(key, batch) for key in range(20)])
    source = stream(lab, table, mode="from-snapshot", snapshot_id="1")
    first = take(lab, source, {"snapshot": 1}, {"snapshot": 5})
    assert len(first) == 160
    for _ in range(3):
        assert take(lab, stream(lab, table), {"snapshot": 1}, {"snapshot": 5}) == first


def test_the_changelog_is_read_where_there_is_one(lab: Lab) -> None:
    table = lab.make("t", {"changelog-producer": "input"})
    source = stream(lab, table, mode="from-snapshot", snapshot_id="1")
    lab.write(table, 1, [(1, 1, "+I")])
    lab.write(table, 2, [(1, 1, "-U"), (1, 2, "+U")])
    batches, _ = drain(lab, source, {})
    assert batches == [[(1, 1, "+I"), (1, 1, "-U"), (1, 2, "+U")]]


def test_append_tables_have_no_row_kinds_and_read_many_snapshots_at_once(lab: Lab) -> None:
    table = lab.make("t", keyed=False)
    source = stream(lab, table)
    assert not source.changelog and not source.ordered
    lab.write(table, 1, [(1, 1)])
    _, offset = drain(lab, source, {})
    for batch in range(2, 12):
        lab.write(table, batch, [(batch, batch)])
    batches, offset = drain(lab, source, offset)
    assert [sorted(rows) for rows in batches] == [[(key, key) for key in range(2, 12)]]
    spread = take(lab, source, {"snapshot": 1}, offset, parallelism=3)
    assert sorted(spread) == sorted(batches[0])


@pytest.mark.parametrize("keyed", [True, False])
def test_max_rows_bounds_changes_by_snapshots(lab: Lab, keyed: bool) -> None:
    table = lab.make("t", keyed=keyed)
    source = stream(lab, table, mode="from-snapshot", snapshot_id="1")
    for batch in range(1, 5):
        lab.write(table, batch, [(batch * 10 + key, batch) for key in range(3)])
    batches, offset = drain(lab, source, {}, max_rows=7)
    assert [len(rows) for rows in batches] == [6, 6]
    batches, _ = drain(lab, source, {}, max_rows=1)
    assert [len(rows) for rows in batches] == [3, 3, 3, 3]
    assert bare(offset) == {"snapshot": 4}


def test_the_first_read_of_an_append_table_is_in_the_order_of_commits(lab: Lab) -> None:
    table = lab.make("t", keyed=False)
    for batch in range(1, 12):
        lab.write(table, batch, [(0, batch)])
    source = stream(lab, table)
    read = [v for _, v, *_ in take(lab, source, {}, {"snapshot": 11})]
    assert read == list(range(1, 12))
    batches, _ = drain(lab, source, {}, max_rows=1)
    assert [v for rows in batches for _, v, *_ in rows] == read


@pytest.mark.parametrize(
    ("clause", "options"),
    [("PARTITIONED BY (p)", {}), ("", {"bucket": "3", "bucket-key": "v"})],
)
def test_appended_rows_are_in_the_order_of_commits(
    lab: Lab, clause: str, options: dict[str, str]
) -> None:
    settings = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    execute(
        lab.warehouse,
        f"CREATE TABLE db.moved (k INT, p STRING, v INT) {clause}"
        + (f" WITH ({settings})" if settings else ""),
    )
    source = PaimonSource(lab.warehouse.options, "db.moved")
    rows = [(1, "cab"[number * 7 % 5 % 3], number) for number in range(12)]
    for row in rows:
        execute(lab.warehouse, f"INSERT INTO db.moved VALUES {row}")
    end = source.latest_offset({"snapshot": 2})
    start = {**end, "snapshot": 2}
    for parallelism in (1, 3):
        assert [v for *_, v in take(lab, source, start, end, parallelism)] == list(range(2, 12))
    for most in (None, 1, 5):
        batches, _ = drain(lab, PaimonSource(lab.warehouse.options, "db.moved"), {}, most)
        assert [v for batch in batches for *_, v in batch] == list(range(12)), most


def test_the_first_read_follows_buckets_where_a_snapshot_is_missing(lab: Lab) -> None:
    execute(lab.warehouse, "CREATE TABLE db.moved (p STRING, v INT) PARTITIONED BY (p)")
    table = lab.warehouse.table("db.moved")
    for number in range(12):
        execute(lab.warehouse, f"INSERT INTO db.moved VALUES ('{'ab'[number % 2]}', {number})")
    assert is_replayable(table, 12)
    os.remove(f"{table.location}/snapshot/snapshot-1")
    assert not is_replayable(table, table.latest_snapshot_id() or 0)
    batches, _ = drain(lab, PaimonSource(lab.warehouse.options, "db.moved"), {})
    assert sorted(v for batch in batches for *_, v in batch) == list(range(12))


def test_the_first_read_leaves_out_rows_that_an_overwrite_has_removed(lab: Lab) -> None:
    execute(lab.warehouse, "CREATE TABLE db.moved (p STRING, v INT) PARTITIONED BY (p)")
    execute(lab.warehouse, "INSERT INTO db.moved VALUES ('a', 1), ('b', 2)")
    execute(lab.warehouse, "INSERT OVERWRITE db.moved PARTITION (p = 'a') VALUES (3)")
    table = lab.warehouse.table("db.moved")
    assert not is_replayable(table, table.latest_snapshot_id() or 0)
    batches, _ = drain(lab, PaimonSource(lab.warehouse.options, "db.moved"), {})
    assert sorted(v for batch in batches for *_, v in batch) == [2, 3]


def test_max_rows_cuts_the_first_read_and_one_large_snapshot_by_splits(lab: Lab) -> None:
    table = lab.make("t", {"bucket": "4"})
    lab.write(table, 1, [(key, 1) for key in range(40)])
    source = stream(lab, table)
    batches, offset = drain(lab, source, {}, max_rows=1)
    assert len(batches) == 4 and bare(offset) == {"snapshot": 1}
    assert sorted(row[0] for rows in batches for row in rows) == list(range(40))
    first = source.latest_offset({}, 1)
    assert bare(first) == {"snapshot": 1, "split": 1, "splits": 4}
    lab.write(table, 2, [(key, 2) for key in range(40)])
    assert take(lab, stream(lab, table), {}, first) == batches[0]
    rest = take(lab, stream(lab, table), first, {"snapshot": 1})
    assert rest == [row for rows in batches[1:] for row in rows]
    batches, _ = drain(lab, source, {"snapshot": 1}, max_rows=5)
    assert len(batches) == 4
    changed = [(k, v, kind) for k in range(40) for v, kind in ((1, "-U"), (2, "+U"))]
    assert sorted(row for rows in batches for row in rows) == changed


def test_latest_starts_with_the_next_change(lab: Lab) -> None:
    table = lab.make("t")
    empty = stream(lab, table, mode="latest")
    start = empty.latest_offset({})
    assert bare(start) == {"snapshot": 0} and list(empty.partitions({}, start)) == []
    lab.write(table, 1, [(1, 1)])
    assert drain(lab, empty, start)[0] == [[(1, 1, "+I")]]
    source = stream(lab, table, mode="latest")
    start = source.latest_offset({})
    assert take(lab, source, {}, start) == []
    lab.write(table, 2, [(2, 2)])
    assert drain(lab, source, start)[0] == [[(2, 2, "+I")]]


def test_columns_are_projected_in_the_requested_order(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 5)])
    source = PaimonSource(lab.warehouse.options, "db.t", ["v"])
    assert source.schema.names == ["v"]
    assert drain(lab, source, {})[0] == [[(5, "+I")]]


@pytest.mark.parametrize("keyed", [True, False])
def test_an_overwrite_can_be_an_error_or_passed_over(lab: Lab, keyed: bool) -> None:
    table = lab.make("t", keyed=keyed)
    lab.write(table, 1, [(1, 1)])
    lab.overwrite(table, [(8, 8)])
    lab.write(table, 2, [(2, 2)])
    with pytest.raises(StreamhouseError, match="snapshot 2 is an overwrite.*scan.overwrite"):
        drain(lab, stream(lab, table, overwrite="error"), {"snapshot": 1})
    source = stream(lab, table, overwrite="skip")
    assert drain(lab, source, {"snapshot": 1})[0] == [[(2, 2, "+I") if keyed else (2, 2)]]


def test_an_expired_snapshot_is_data_loss(lab: Lab) -> None:
    table = lab.make("t")
    for batch in range(1, 5):
        lab.write(table, batch, [(batch, batch)])
    for snapshot in (1, 2):
        os.remove(f"{table.location}/snapshot/snapshot-{snapshot}")
    with pytest.raises(DataLossError, match="snapshot 2 is gone, 3 to 4 are left"):
        drain(lab, stream(lab, table), {"snapshot": 1})
    with pytest.raises(DataLossError, match="snapshot 1 is gone"):
        stream(lab, table).partitions({}, {"snapshot": 1})


def test_a_recreated_table_is_noticed(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 1)])
    with pytest.raises(DataLossError, match="rolled back or created again"):
        stream(lab, table).latest_offset({"snapshot": 9})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scan.mod": "latest"}, OptionError, "did you mean 'scan.mode'"),
        ({"scan.mode": "newest"}, OptionError, "not one of"),
        ({"scan.mode": "from-snapshot"}, OptionError, "needs the option 'scan.snapshot-id'"),
        ({"scan.mode": "latest", "scan.snapshot-id": "1"}, OptionError, "cannot be combined with"),
        ({"scan.snapshot-id": "x"}, OptionError, "not a whole number"),
    ],
)
def test_options_are_checked(
    lab: Lab, options: dict[str, str], error: type[Exception], message: str
) -> None:
    lab.make("t")
    with pytest.raises(error, match=message):
        PaimonSource(lab.warehouse.options, "db.t", options=options)
    with pytest.raises(TableError, match="did you mean 'id'"):
        PaimonSource(lab.warehouse.options, "db.t", ["idd"])


def test_polling_an_idle_table_is_cheap(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 1)])
    source = stream(lab, table)
    reads = []
    original = type(source.table.snapshots).find

    def counted(self: Any, snapshot_id: int) -> Any:
        reads.append(snapshot_id)
        return original(self, snapshot_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(source.table.snapshots), "find", counted)
        for _ in range(100):
            assert source.latest_offset({"snapshot": 1}) == {"snapshot": 1}
    assert reads == []
