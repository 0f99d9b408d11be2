"""The changelog that is computed where a table has none, against the table itself."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.differences.multi_snapshot_changes import snapshot_runs
from streamhouse.paimon.changelog.offset_origin import bare
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.rows import to_table
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.source import Offset
from streamhouse.sql.plan import Column

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab

Row = tuple[Any, ...]
NAMES = ("p", "k", "v", "w", "g")
COLUMNS = [
    Column("p", "STRING"),
    Column("k", "INT"),
    Column("v", "BIGINT"),
    Column("w", "STRING"),
    Column("g", "INT"),
]
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "by sequence": {"sequence.field": "g"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.w.aggregate-function": "last_non_null_value",
        "fields.g.aggregate-function": "max",
        "fields.g.ignore-retract": "true",
        "fields.w.ignore-retract": "true",
    },
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "sequence group": {
        "merge-engine": "partial-update",
        "ignore-delete": "true",
        "fields.g.sequence-group": "v",
    },
}
rows = st.tuples(
    st.sampled_from(["a", "b"]),
    st.integers(0, 5),
    st.none() | st.integers(-2, 2),
    st.none() | st.sampled_from(["x", "y"]),
    st.integers(0, 3),
    st.sampled_from(["+I", "+I", "+U", "-D"]),
)
histories = st.lists(st.lists(rows, min_size=1, max_size=5), min_size=1, max_size=6)


class Store:
    """Tables of one warehouse, each commit one snapshot."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse(str(folder))
        self.warehouse.create_database("db")
        self._numbers = itertools.count()

    def make(
        self, options: Mapping[str, str], key: Sequence[str] = ("p", "k"), parted: bool = True
    ) -> Table:
        name = f"t{next(self._numbers)}"
        given = {"bucket": "2" if key else "-1", **options}
        self.warehouse.create_table("db", name, COLUMNS, key, ["p"] if parted else [], given)
        return self.warehouse.table(f"db.{name}")

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        number = next(self._numbers)
        names = (*NAMES, "rowkind")
        writer = TableWriter(self.warehouse.options, table.identifier, "user", f"{number}-")
        batch = pa.RecordBatch.from_pylist(
            [dict(zip(names, row, strict=False)) for row in rows],
            schema=pa.schema([*table.arrow_schema, pa.field("rowkind", pa.string())]),
        )
        writer.write(batch)
        messages = writer.prepare(number)
        writer.close()
        TableCommitter(self.warehouse.options, table.identifier, "user").commit(number, messages)

    def overwrite(
        self, table: Table, rows: Sequence[Row], partition: Mapping[str, str] | None = None
    ) -> None:
        builder = table.rust.new_batch_write_builder()
        builder = (
            builder.with_overwrite() if partition is None else builder.with_overwrite(partition)
        )
        writer = builder.new_write()
        batch = pa.RecordBatch.from_pylist([dict(zip(NAMES, row, strict=True)) for row in rows])
        writer.write_arrow(to_table(batch, table))
        with commit_lock(table.location):
            builder.new_commit().commit(writer.prepare_commit())
        writer.close()

    def state(self, table: Table, snapshot: int) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for batch in table.read(snapshot=snapshot):
            found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        return found

    def source(self, table: Table, kinds: bool = False, **options: str) -> PaimonSource:
        named = {f"scan.{key.replace('_', '-')}": value for key, value in options.items()}
        return PaimonSource(self.warehouse.options, table.identifier, None, named, row_kinds=kinds)

    @staticmethod
    def read(source: PaimonSource, after: int, until: int) -> list[Row]:
        elsewhere: PaimonSource = pickle.loads(pickle.dumps(source))
        found: list[Row] = []
        for partition in source.partitions({"snapshot": after}, {"snapshot": until}):
            for batch in elsewhere.read(pickle.loads(pickle.dumps(partition))):
                found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        elsewhere.close()
        return found


def applied(state: Counter[Row], changes: Sequence[Row]) -> Counter[Row]:
    """The state after changes, each of which must fit what is there."""
    result = Counter(state)
    for *row, kind in changes:
        result[tuple(row)] += 1 if kind in ("+I", "+U") else -1
        assert result[tuple(row)] >= 0, f"{kind} of a row that is not there: {row}"
    return +result


def follow(store: Store, table: Table, source: PaimonSource) -> list[list[Row]]:
    """Check each snapshot's changes against the states; they hold nothing that cancels out."""
    latest = table.latest_snapshot_id() or 0
    every = []
    before: Counter[Row] = Counter()
    for snapshot in range(1, latest + 1):
        changes = store.read(source, snapshot - 1, snapshot)
        after = store.state(table, snapshot)
        assert applied(before, changes) == after
        assert len(changes) == sum(((before - after) + (after - before)).values())
        before = after
        every.append(changes)
    whole = store.read(source, 0, latest)
    if table.primary_key:
        assert whole == [row for changes in every for row in changes]
    assert Counter(whole) == Counter(row for changes in every for row in changes)
    return every


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    yield Store(tmp_path_factory.mktemp("changes") / "warehouse")


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=4)
@given(history=histories)
def test_applied_to_nothing_it_makes_the_table_at_each_snapshot(
    store: Store, engine: str, history: list[list[Row]]
) -> None:
    table = store.make(ENGINES[engine])
    for commit in history:
        store.write(table, commit)
    follow(store, table, store.source(table))


@settings(max_examples=5)
@given(history=st.lists(st.tuples(st.integers(0, 3), st.lists(rows, max_size=4)), max_size=6))
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("parted", [True, False])
def test_overwrites_bring_what_they_changed(
    store: Store, keyed: bool, parted: bool, history: list[tuple[int, list[Row]]]
) -> None:
    table = store.make({}, ("p", "k") if keyed else (), parted)
    for way, commit in history:
        inserts = [(*row[:5], "+I") for row in commit]
        if way >= 2 and inserts:
            store.write(table, inserts)
        elif way == 1 and parted:
            mine = [row[:5] for row in inserts if row[0] == "a"]
            store.overwrite(table, mine, {"p": "a"}) if mine else None
        elif inserts:
            store.overwrite(table, [row[:5] for row in inserts])
    follow(store, table, store.source(table, kinds=True))


def test_rows_come_as_what_happened_to_them(store: Store) -> None:
    table = store.make({})
    one, two = ("a", 1, 1, "x", 0), ("a", 2, 1, "x", 0)
    store.write(table, [(*one, "+I"), (*two, "+I")])
    store.write(table, [("a", 1, 5, "x", 0, "+I"), (*two, "+I"), ("b", 3, 1, "y", 0, "+I")])
    store.write(table, [(*two, "-D"), ("a", 9, 1, "y", 0, "-D")])
    found = follow(store, table, store.source(table))
    assert sorted(found[0]) == [(*one, "+I"), (*two, "+I")]
    changed = [(*one, "-U"), ("a", 1, 5, "x", 0, "+U"), ("b", 3, 1, "y", 0, "+I")]
    assert found[1] == changed
    assert found[2] == [(*two, "-D")]


def test_changes_of_unread_columns_are_no_changes(store: Store) -> None:
    table = store.make({})
    store.write(table, [("a", 1, 1, "x", 0, "+I")])
    store.write(table, [("a", 1, 2, "x", 0, "+I")])
    store.write(table, [("a", 1, 2, "y", 0, "+I")])
    source = PaimonSource(store.warehouse.options, table.identifier, ["w"])
    assert store.read(source, 0, 3) == [("x", "+I"), ("x", "-U"), ("y", "+U")]


def test_what_a_snapshot_did_not_touch_is_not_read(store: Store) -> None:
    table = store.make({"bucket": "4"})
    store.write(table, [("a", k, 1, "x", 0, "+I") for k in range(50)])
    store.write(table, [("b", k, 1, "x", 0, "+I") for k in range(50)])
    store.write(table, [("b", 7, 2, "x", 0, "+I")])
    source = store.source(table)
    (partition,) = source.partitions({"snapshot": 2}, {"snapshot": 3})
    (difference,) = partition.groups
    assert not isinstance(difference, tuple)
    assert len(difference.old) == len(difference.new) == len(difference.written) == 1
    assert b"/p=b/" in difference.old[0] and b"/p=b/" in difference.new[0]


@pytest.mark.parametrize(("engine", "reads"), [("deduplicate", 1), ("aggregation", 2)])
def test_all_buckets_of_a_snapshot_are_compared_at_once(
    store: Store, engine: str, reads: int
) -> None:
    table = store.make({"bucket": "4", **ENGINES[engine]})
    for value in range(3):
        store.write(table, [(p, k, value, "x", 0, "+I") for p in "ab" for k in range(20)])
    source = store.source(table)
    (partition,) = source.partitions({"snapshot": 1}, {"snapshot": 3})
    assert len(partition.groups) == 16
    assert [len(run.groups) for run in snapshot_runs(table, partition.groups)] == [
        16 // reads
    ] * reads
    follow(store, table, source)


def test_buckets_of_a_large_snapshot_are_compared_one_by_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "streamhouse.paimon.changelog.differences.multi_snapshot_changes.MOST_KEYS", 30
    )
    table = store.make({"bucket": "2"})
    for value in range(2):
        store.write(table, [("a", k, value, "x", 0, "+I") for k in range(40)])
    store.write(table, [("a", k, 9, "x", 0, "+I") for k in range(20)])
    source = store.source(table)
    (partition,) = source.partitions({"snapshot": 1}, {"snapshot": 3})
    assert [len(run.groups) for run in snapshot_runs(table, partition.groups)] == [1, 1, 2]
    follow(store, table, source)


def test_a_key_may_move_between_partitions_in_an_overwrite(store: Store) -> None:
    table = store.make({"bucket": "-1"}, ("k",))
    store.overwrite(table, [("a", 1, 1, "x", 0)])
    store.overwrite(table, [("b", 1, 1, "x", 0)])
    source = store.source(table)
    moved = [("a", 1, 1, "x", 0, "-D"), ("b", 1, 1, "x", 0, "+I")]
    found = store.read(source, 1, 2)
    assert [row[:5] for row in found] == [row[:5] for row in moved]


def test_a_large_snapshot_is_cut_by_its_parts(store: Store) -> None:
    table = store.make({"bucket": "3"})
    store.write(table, [("a", k, 1, "x", 0, "+I") for k in range(30)])
    store.write(table, [("a", k, 2, "x", 0, "+I") for k in range(30)])
    source = store.source(table)
    offset: Offset = {"snapshot": 1}
    found: list[Row] = []
    ends = []
    while bare(offset) != {"snapshot": 2}:
        end = source.latest_offset(offset, 5)
        for partition in source.partitions(offset, end):
            for batch in source.read(partition):
                found += zip(*(c.to_pylist() for c in batch.columns), strict=True)
        offset = end
        ends.append(end)
        assert len(ends) < 10
    assert len(ends) == 3
    assert sorted(found) == sorted(store.read(source, 1, 2)) and len(found) == 60


def test_an_append_table_without_row_kinds_takes_only_added_rows(store: Store) -> None:
    table = store.make({}, ())
    one, two = ("a", 1, 1, "x", 0), ("a", 2, 1, "x", 0)
    store.write(table, [(*one, "+I")])
    store.overwrite(table, [one, two])
    store.overwrite(table, [two, one])
    store.write(table, [(*two, "+I")])
    store.overwrite(table, [two])
    source = store.source(table)
    assert not source.changelog
    assert store.read(source, 0, 4) == [one, two, two]
    with pytest.raises(StreamhouseError, match="snapshot 5 removed rows.*'scan.overwrite'"):
        store.read(source, 4, 5)
    assert store.read(store.source(table, overwrite="skip"), 4, 5) == []
    source = store.source(table, kinds=True)
    assert source.changelog
    assert store.read(source, 4, 5) == [(*one, "-D"), (*two, "-D")]


def test_a_range_reads_the_same_after_more_commits(store: Store) -> None:
    table = store.make(ENGINES["aggregation"])
    for v in range(1, 5):
        store.write(table, [("a", 1, v, "x", 0, "+I"), ("b", v, 1, "y", v, "+I")])
    first = store.read(store.source(table), 1, 4)
    assert ("a", 1, 1, "x", 0, "-U") in first and ("a", 1, 10, "x", 0, "+U") in first
    for v in range(3):
        store.write(table, [("a", 1, v, "z", 0, "+I")])
        assert store.read(store.source(table), 1, 4) == first


def test_the_state_before_may_have_expired(lab: Lab) -> None:
    table = lab.make("t")
    for batch in range(1, 4):
        lab.write(table, batch, [(1, batch)])
    (Path(table.location) / "snapshot" / "snapshot-1").unlink()
    source = PaimonSource(lab.warehouse.options, table.identifier)
    with pytest.raises(DataLossError, match="snapshot 1 is gone, 2 to 3 are left"):
        source.partitions({"snapshot": 1}, {"snapshot": 2})


def test_many_small_commits_cost_one_read_of_the_rows_before_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = store.make({"bucket": "1"})
    store.write(table, [("a", k, 0, "x", 0, "+I") for k in range(100)])
    for v in range(1, 9):
        store.write(table, [("a", v, v, "x", 0, "+I"), ("a", 50, v, "x", 0, "+I")])
    read: list[Any] = []
    original = Table.read

    def counted(self: Table, *given: Any, **named: Any) -> Any:
        read.append(named.get("filter"))
        return original(self, *given, **named)

    monkeypatch.setattr(Table, "read", counted)
    found = store.read(store.source(table), 1, 9)
    assert len(found) == 8 * 4
    (keys,) = [run for run in read if run is not None]
    assert sorted(keys["literals"]) == [*range(1, 9), 50]
    assert [row[2] for row in found if row[1] == 50 and row[5] == "+U"] == list(range(1, 9))
