"""INSERT into a table with a primary key writes only the rows that differ."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import DEADLINE_S

import streamhouse
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.paimon.changelog.differences import key_preserving_partitions
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.batch import insert_differences
from streamhouse.runtime.batch.dml import Changed
from streamhouse.sql.plan import AsOf

COLUMNS = "v_date STRING, id BIGINT, score DOUBLE, status STRING, event_time TIMESTAMP(3)"
INSTANT = "TIMESTAMP '2026-06-01 08:00:0{}'"


class Lab:
    """A raw table and a keyed one that is repaired from it."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse(str(folder))
        self.run(f"CREATE TABLE raw ({COLUMNS}) WITH ('bucket' = '-1')")

    def run(self, sql: str) -> Changed:
        return streamhouse.execute(self.warehouse, sql)

    def ods(self, options: str = "") -> None:
        self.run(
            f"CREATE TABLE ods ({COLUMNS}, PRIMARY KEY (v_date, id) NOT ENFORCED) "
            f"PARTITIONED BY (v_date) WITH ('bucket' = '2'{options})"
        )

    def fill(self, table: str, *rows: str) -> None:
        self.run(f"INSERT INTO {table} VALUES {', '.join(rows)}")

    def rows(self, columns: tuple[str, ...] = ("v_date", "id", "score", "status")) -> list[Any]:
        read = self.warehouse.table("default.ods").read(columns)
        return sorted(tuple(row.values()) for batch in read for row in batch.to_pylist())

    @property
    def snapshot(self) -> int:
        return self.warehouse.table("default.ods").latest_snapshot_id() or 0

    def changelog(self) -> list[tuple[Any, ...]]:
        """The newest snapshot's changes as they were written: kind, id, score, in order."""
        table = self.warehouse.table("default.ods")
        splits = table.changes(self.snapshot - 1, self.snapshot, "changelog")
        read = table.read(["id", "score"], splits=splits, row_kind=True)
        return [(r["rowkind"], r["id"], r["score"]) for b in read for r in b.to_pylist()]

    def written(self) -> int | None:
        return self.warehouse.table("default.ods").snapshot(self.snapshot).delta_record_count


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def row(
    id: int, score: float, second: int = 0, day: str = "2026-06-01", status: str = "paid"
) -> str:
    return f"('{day}', {id}, {score}, '{status}', {INSTANT.format(second)})"


def test_a_select_without_rows_writes_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.ods()
    for _ in range(2):
        before = lab.snapshot
        lab.run("INSERT INTO ods SELECT * FROM raw WHERE id > 3")
        lab.run("INSERT INTO ods SELECT * FROM ods LIMIT 0")
        assert lab.snapshot == before
        lab.fill("ods", f"('d', 1, 1.5, 'a', {INSTANT.format(1)})")
    assert lab.rows() == [("d", 1, 1.5, "a")]


def test_only_what_differs_is_written_in_one_snapshot(lab: Lab) -> None:
    lab.ods()
    lab.fill("ods", row(1, 1), row(2, 2), row(3, 3), row(1, 9, day="2026-06-02"))
    lab.fill("raw", row(1, 1), row(2, 2.5), row(4, 4), row(1, 8, day="2026-06-02"))
    before = lab.snapshot
    repair = "INSERT INTO ods SELECT * FROM raw WHERE v_date BETWEEN '2026-06-01' AND '2026-06-01'"
    done = lab.run(repair)
    assert (done.inserted, done.updated) == (1, 1)
    assert lab.snapshot == before + 1 and lab.written() == 2
    assert lab.rows() == [
        ("2026-06-01", 1, 1.0, "paid"), ("2026-06-01", 2, 2.5, "paid"),
        ("2026-06-01", 3, 3.0, "paid"), ("2026-06-01", 4, 4.0, "paid"),
        ("2026-06-02", 1, 9.0, "paid"),
    ]  # fmt: skip
    again = lab.run(repair)
    assert (again.inserted, again.updated) == (0, 0)
    assert lab.snapshot == before + 1


def test_the_rows_of_the_statement_are_merged_among_themselves_first(lab: Lab) -> None:
    """The last one of a key counts, also where an earlier one differs and the last one does not."""
    lab.ods()
    lab.fill("ods", row(1, 1), row(2, 2))
    lab.fill("raw", row(1, 7), row(1, 1), row(2, 2), row(2, 8))
    done = lab.run("INSERT INTO ods SELECT * FROM raw")
    assert (done.inserted, done.updated) == (0, 1)
    assert [one[:3] for one in lab.rows()] == [("2026-06-01", 1, 1.0), ("2026-06-01", 2, 8.0)]


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_nulls_in_several_sequence_fields_lose_no_row(lab: Lab, order: str) -> None:
    """A row whose first sequence field was null is replaced, whatever the second one is."""
    lab.run(
        "CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, a INT, b INT, v STRING) WITH "
        f"('bucket' = '1', 'sequence.field' = 'a,b', 'sequence.field.sort-order' = '{order}')"
    )
    lab.run("CREATE TABLE s (k INT, a INT, b INT, v STRING) WITH ('bucket' = '-1')")
    null = "CAST(NULL AS INT)"
    lab.run(f"INSERT INTO t VALUES (1, {null}, 5, 'old'), (2, {null}, 5, 'old')")
    lab.run(f"INSERT INTO t VALUES (3, {null}, 5, 'old'), (4, {null}, 5, 'old')")
    lab.run("INSERT INTO s VALUES (1, 7, 4, 'new'), (2, 7, 6, 'new')")
    lab.run(f"INSERT INTO s VALUES (3, {null}, 4, 'new'), (4, {null}, 6, 'new')")
    lab.run("INSERT INTO t SELECT * FROM s")
    rows = lab.warehouse.table("default.t").read(["k", "v"])
    found = {row["k"]: row["v"] for batch in rows for row in batch.to_pylist()}
    greater_wins = order == "ascending"
    assert found == {
        1: "new",
        2: "new",
        3: "old" if greater_wins else "new",
        4: "new" if greater_wins else "old",
    }


def test_a_sequence_field_decides_who_wins(lab: Lab) -> None:
    """Older rows lose and are not written; newer ones and those of the same point in time win."""
    lab.ods(", 'sequence.field' = 'event_time'")
    lab.fill("ods", row(1, 1, 5), row(2, 2, 5), row(3, 3, 5))
    lab.fill("raw", row(1, 10, 4), row(2, 20, 5), row(3, 30, 6), row(3, 31, 1))
    done = lab.run("INSERT INTO ods SELECT * FROM raw")
    assert (done.inserted, done.updated) == (0, 2) and lab.written() == 2
    assert [one[1:3] for one in lab.rows()] == [(1, 1.0), (2, 20.0), (3, 30.0)]


def test_a_changelog_of_its_own_gets_the_rows_as_they_were(lab: Lab) -> None:
    lab.ods(", 'changelog-producer' = 'input'")
    lab.fill("ods", row(1, 1), row(2, 2))
    lab.fill("raw", row(1, 1), row(2, 5), row(3, 3))
    lab.run("INSERT INTO ods SELECT * FROM raw")
    assert sorted(lab.changelog()) == [("+I", 3, 3.0), ("+U", 2, 5.0), ("-U", 2, 2.0)]


def test_equal_rows_are_written_when_requested(lab: Lab) -> None:
    lab.ods()
    lab.fill("ods", row(1, 1))
    lab.fill("raw", row(1, 1))
    before = lab.snapshot
    hinted = "INSERT INTO ods /*+ OPTIONS('insert.equal-rows' = 'write') */ SELECT * FROM raw"
    assert lab.run(hinted).inserted == 1
    assert lab.snapshot == before + 1 and lab.written() == 1


def test_large_buckets_are_compared_in_shares(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_preserving_partitions, "MOST_ROWS", 3)
    lab.ods()
    lab.fill("ods", *(row(i, i) for i in range(20)))
    lab.fill("raw", *(row(i, i if i % 5 else -1) for i in range(1, 25)))
    done = lab.run("INSERT INTO ods SELECT * FROM raw")
    assert (done.inserted, done.updated) == (5, 3)
    assert [one[2] for one in lab.rows()] == [0.0] + [
        float(i if i % 5 else -1) for i in range(1, 25)
    ]


class ConcurrentSteps:
    """A stream's commit that comes between the comparison and the commit."""

    def __init__(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch, *changes: tuple[Any, ...]
    ) -> None:
        compare = insert_differences._Try._write_differences
        left = [1]

        def concurrent_commit(one: insert_differences._Try, writer: TableWriter) -> None:
            compare(one, writer)
            if left:
                left.pop()
                self.commit(lab, changes)

        monkeypatch.setattr(insert_differences._Try, "_write_differences", concurrent_commit)

    def commit(self, lab: Lab, changes: tuple[tuple[Any, ...], ...]) -> None:
        options, user = lab.warehouse.options, "stream"
        table = lab.warehouse.table("default.ods")
        writer = TableWriter(options, "default.ods", user)
        for kind, id, score in changes:
            batch = pa.Table.from_pylist(
                [{"v_date": "2026-06-01", "id": id, "score": score, "status": "paid"}],
                schema=table.arrow_schema,
            ).append_column("rowkind", pa.array([kind]))
            for part in batch.to_batches():
                writer.write(part)
        TableCommitter(options, "default.ods", user).commit(0, writer.prepare(0))
        writer.close()


def test_rows_that_a_stream_changed_meanwhile_stay_its_own(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.ods()
    lab.fill("ods", *(row(i, i) for i in range(1, 6)))
    lab.fill("raw", *(row(i, -i) for i in range(1, 4)), row(9, -9))
    before = lab.snapshot
    ConcurrentSteps(
        lab, monkeypatch, ("+U", 1, 100.0), ("-D", 2, 2.0), ("+I", 9, 900.0), ("+U", 5, 500.0)
    )
    lab.run("INSERT INTO ods SELECT * FROM raw")
    assert lab.snapshot == before + 2
    assert [one[1:3] for one in lab.rows()] == [
        (1, 100.0), (3, -3.0), (4, 4.0), (5, 500.0), (9, 900.0)
    ]  # fmt: skip


def test_with_its_own_changelog_the_comparison_is_made_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.ods(", 'changelog-producer' = 'input'")
    lab.fill("ods", row(1, 1), row(2, 2))
    lab.fill("raw", row(1, -1), row(2, -2))
    before = lab.snapshot
    ConcurrentSteps(lab, monkeypatch, ("-U", 1, 1.0), ("+U", 1, 100.0))
    lab.run("INSERT INTO ods SELECT * FROM raw")
    assert lab.snapshot == before + 2
    assert sorted(lab.changelog()) == [
        ("+U", 1, -1.0), ("+U", 2, -2.0), ("-U", 1, 100.0), ("-U", 2, 2.0)
    ]  # fmt: skip


def test_an_overwrite_meanwhile_is_seen(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.ods()
    lab.fill("ods", row(1, 1), row(2, 2))
    lab.fill("raw", row(1, 1), row(2, 3))
    monkeypatch.setattr(
        ConcurrentSteps, "commit", lambda self, lab, changes: lab.run("TRUNCATE TABLE ods") and None
    )
    ConcurrentSteps(lab, monkeypatch)
    done = lab.run("INSERT INTO ods SELECT * FROM raw")
    assert (done.inserted, done.updated) == (2, 0)
    assert [one[1:3] for one in lab.rows()] == [(1, 1.0), (2, 3.0)]


def test_other_partitions_of_the_source_are_not_read(lab: Lab) -> None:
    """The condition reaches the reader: a day whose files are gone is not missed."""
    lab.run(f"CREATE TABLE days ({COLUMNS}) PARTITIONED BY (v_date) WITH ('bucket' = '-1')")
    lab.ods()
    lab.fill("days", row(1, 1), row(1, 2, day="2026-06-02"))
    lab.fill("ods", row(1, 5))
    root = Path(lab.warehouse.path) / "default.db" / "days"
    for path in root.glob("v_date=2026-06-02/bucket-0/*.parquet"):
        path.unlink()
    lab.run("INSERT INTO ods SELECT d.* FROM days AS d WHERE d.v_date = '2026-06-01'")
    assert lab.rows() == [("2026-06-01", 1, 1.0, "paid")]


KILLED = """
import os, signal, sys
import streamhouse
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.runtime.batch import insert_differences

def die(self, writer):
    writer.prepare(0)
    os.kill(os.getpid(), signal.SIGKILL)

insert_differences._Try._reconcile = die
streamhouse.execute(sys.argv[1], "INSERT INTO ods SELECT * FROM raw")
"""


def test_killed_in_between_nothing_shows_and_the_next_run_cleans_up(
    lab: Lab, tmp_path: Path
) -> None:
    lab.ods()
    lab.fill("ods", row(1, 1))
    lab.fill("raw", row(1, 2), row(2, 2))
    before, files = lab.snapshot, data_files(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env=os.environ,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert lab.snapshot == before and len(data_files(tmp_path)) > len(files)
    assert [one[1:3] for one in lab.rows()] == [(1, 1.0)]
    lab.run("INSERT INTO ods SELECT * FROM raw")
    assert [one[1:3] for one in lab.rows()] == [(1, 2.0), (2, 2.0)]
    table = lab.warehouse.table("default.ods")
    known = lab.warehouse.readable("default.ods$files", AsOf())
    names = {Path(p).name for b in known.read(["file_path"]) for p in b.column(0).to_pylist()}
    assert {Path(path).name for path in data_files(tmp_path)} == names
    assert table.latest_snapshot_id() == before + 1


def data_files(folder: Path) -> set[str]:
    root = folder / "default.db" / "ods"
    return {str(path) for path in root.rglob("*.parquet")}


def test_an_overwrite_of_sums_that_a_query_feeds_is_warned_of(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.run("CREATE TABLE s (k INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('bucket' = '1', "
            "'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum')")  # fmt: skip
    options, user = lab.warehouse.options, "0f8fad5b-d9cb-469f-a165-70867728950e"
    writer = TableWriter(options, "default.s", user)
    writer.write(pa.record_batch({"k": pa.array([1], pa.int32()), "n": [1]}))
    TableCommitter(options, "default.s", user).commit(0, writer.prepare(0))
    writer.close()
    lab.run("INSERT OVERWRITE s VALUES (1, 5)")
    assert not caplog.messages
    Consumers(lab.warehouse.table("default.s")).hold(query_consumer(user), 1)
    lab.run("INSERT OVERWRITE s VALUES (1, 5)")
    assert ["streamhouse repair default.s" in text for text in caplog.messages] == [True]
