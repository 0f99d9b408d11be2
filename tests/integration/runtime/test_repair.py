"""INSERT repairs a day of a table like the membership warehouse's, with concurrent writers."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.runtime.conftest import Shop
from tests.java_reads import java_rows

import streamhouse
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.audit import repair as repair_module
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.audit.repair import repair
from streamhouse.runtime.audit.row_differences import Deviation

pytestmark = pytest.mark.usefixtures("in_threads")

COLUMNS = "v_date STRING, id BIGINT, score DECIMAL(20, 4), event_time TIMESTAMP(3)"
TABLES = f"""
CREATE TABLE raw ({COLUMNS}) WITH ('bucket' = '-1');
CREATE TABLE ods ({COLUMNS}, PRIMARY KEY (v_date, id) NOT ENFORCED) PARTITIONED BY (v_date) WITH (
  'bucket' = '4', 'deletion-vectors.enabled' = 'true', 'changelog-producer' = 'lookup',
  'sequence.field' = 'event_time', 'file.format' = 'orc');
"""


LARGE = 4_000
"""Rows of a file that few new ones do not have written anew."""


class Lab:
    """A warehouse with its Java core, which the statements use too."""

    def __init__(self, folder: Path, sidecar: Sidecar) -> None:
        self.warehouse = Warehouse(str(folder))
        self.sidecar = sidecar

    def run(self, sql: str) -> Any:
        return streamhouse.execute(self.warehouse, sql, self.sidecar)

    def rows(self) -> list[tuple[int, float]]:
        """Id and score as both cores read them."""
        table = self.warehouse.table("default.ods")
        read = pa.Table.from_batches(list(table.read()), schema=table.arrow_schema)
        java = java_rows(self.sidecar, "default.ods")
        assert _pairs(read) == _pairs(java)
        return _pairs(read)

    def changes(self) -> list[tuple[str, int, float]]:
        """What the newest snapshot told those who follow the table."""
        table = self.warehouse.table("default.ods")
        latest = table.latest_snapshot_id() or 0
        splits = table.changes(latest - 1, latest, "changelog")
        read = table.read(["id", "score"], splits=splits, row_kind=True)
        return sorted(
            (row["rowkind"], row["id"], float(row["score"]))
            for batch in read
            for row in batch.to_pylist()
        )

    def stream(self, batch: int, *rows: tuple[int, float, int]) -> None:
        """What a continuous query commits: ids, scores and seconds; it shows once compacted."""
        options, user = self.warehouse.options, "0f8fad5b-d9cb-469f-a165-70867728950e"
        schema = self.warehouse.table("default.ods").arrow_schema
        writer = TableWriter(options, "default.ods", user)
        columns = list(zip(*rows, strict=True))
        given = {
            "v_date": pa.repeat("2026-06-01", len(rows)),
            "id": pa.array(columns[0]),
            "score": pa.array([Decimal(score) for score in columns[1]], pa.decimal128(20, 4)),
            "event_time": pa.array([s * 1000 for s in columns[2]]).cast(pa.timestamp("ms")),
        }
        writer.write(pa.record_batch(given).cast(schema))
        TableCommitter(options, "default.ods", user).commit(batch, writer.prepare(batch))
        writer.close()

    def fill(self, table: str, rows: int) -> None:
        """Rows of one day, with the ids from 1 on, and scores that do not pack well."""
        options = self.warehouse.options
        ids = range(1, rows)
        batch = pa.record_batch(
            {
                "v_date": pa.repeat("2026-06-01", len(ids)),
                "id": pa.array(ids, pa.int64()),
                "score": pa.array([Decimal(_score(i)) for i in ids], pa.decimal128(20, 4)),
                "event_time": pa.array([1000] * len(ids)).cast(pa.timestamp("ms")),
            }
        )
        writer = TableWriter(options, f"default.{table}", "fill")
        writer.write(batch)
        TableCommitter(options, f"default.{table}", "fill").commit(0, writer.prepare(0))
        writer.close()


def _score(id: int) -> float:
    return float(id * 2_654_435_761 % (1 << 31))


def _pairs(rows: pa.Table) -> list[tuple[int, float]]:
    return sorted((row["id"], float(row["score"])) for row in rows.to_pylist())


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Sidecar({"warehouse": str(tmp_path)}) as sidecar:
        lab = Lab(tmp_path, sidecar)
        lab.run(TABLES)
        lab.stream(0, *((i, i, 1) for i in range(1, 9)))
        lab.run(
            "INSERT INTO raw SELECT '2026-06-01', CAST(n AS BIGINT), CAST(n AS DECIMAL(20, 4)), "
            "TIMESTAMP '1970-01-01 00:00:02' FROM (VALUES (1), (2), (3), (10)) AS t (n)"
        )
        yield lab


REPAIR = """
INSERT INTO ods SELECT v_date, id, CASE WHEN id = 3 THEN 30 ELSE score END,
  CASE WHEN id = 2 THEN TIMESTAMP '1970-01-01 00:00:01' ELSE event_time END
FROM raw WHERE v_date BETWEEN '2026-06-01' AND '2026-06-01'
"""


def test_a_repair_is_visible_at_once_and_writes_only_differences(lab: Lab) -> None:
    lab.sidecar.compact("default.ods")
    before = lab.warehouse.table("default.ods").latest_snapshot_id() or 0
    done = lab.run(REPAIR)
    # 1 has a newer point in time, 2 is equal, 3 differs, 10 is new.
    assert (done.inserted, done.updated) == (1, 2)
    expected = [(i, 30.0 if i == 3 else float(i)) for i in [*range(1, 9), 10]]
    assert lab.rows() == expected
    table = lab.warehouse.table("default.ods")
    assert table.latest_snapshot_id() == before + 2
    assert [table.snapshot(before + n).commit_kind for n in (1, 2)] == ["APPEND", "COMPACT"]
    assert ("-U", 3, 3.0) in lab.changes() and ("+U", 3, 30.0) in lab.changes()
    assert {id for _, id, _ in lab.changes()} == {1, 3, 10}
    again = lab.run(REPAIR)
    assert (again.inserted, again.updated) == (0, 0)
    assert table.latest_snapshot_id() == before + 2


def test_rows_that_are_repaired_far_apart_are_repaired_once(lab: Lab) -> None:
    """More rows between them than the core reads at once, which made it read the old ones, too."""
    lab.run(
        TABLES.replace("TABLE ods", "TABLE far").replace("TABLE raw", "TABLE day_")
        .replace("'bucket' = '4'", "'bucket' = '1', 'read.batch-size' = '4'")
    )  # fmt: skip
    lab.fill("day_", LARGE)
    # Written twice, as what is written once stays in a file of another format.
    lab.run("INSERT INTO far SELECT v_date, id, score * 2, event_time FROM day_")
    lab.run("INSERT INTO far SELECT * FROM day_")
    two = "CASE WHEN id IN (7, 2000) THEN 99 ELSE score END"
    repair_two = f"INSERT INTO far SELECT v_date, id, {two}, event_time FROM day_"
    done = lab.run(repair_two)
    assert (done.inserted, done.updated) == (0, 2)
    table = lab.warehouse.table("default.far")
    assert all(b".orc" in split and b"index-" in split for split in table.splits())
    again = lab.run(repair_two)
    assert (again.inserted, again.updated) == (0, 0)
    rows = _pairs(pa.Table.from_batches(table.read(["id", "score"])))
    assert rows == [(i, 99.0 if i in (7, 2000) else _score(i)) for i in range(1, LARGE)]


def test_rows_that_do_not_show_yet_are_repaired_too(lab: Lab) -> None:
    """3 is right as far as is seen, and wrong in a row that waits for its compaction."""
    lab.sidecar.compact("default.ods")
    lab.run(REPAIR)
    lab.stream(1, (3, 99, 2), (1, 77, 9), (10, 10, 2))
    lab.run(REPAIR)
    rows = dict(lab.rows())
    assert (rows[3], rows[1], rows[10]) == (30.0, 77.0, 10.0)


SHOP = """
CREATE TABLE IF NOT EXISTS orders (v_date STRING, id BIGINT, agent STRING, score DOUBLE,
  PRIMARY KEY (v_date, id) NOT ENFORCED) PARTITIONED BY (v_date)
  WITH ('bucket' = '2', 'changelog-producer' = 'input');
CREATE TABLE IF NOT EXISTS scores (v_date STRING, agent STRING, score DOUBLE, orders BIGINT,
  last_id BIGINT, PRIMARY KEY (v_date, agent) NOT ENFORCED) PARTITIONED BY (v_date)
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation',
        'fields.score.aggregate-function' = 'sum', 'fields.orders.aggregate-function' = 'sum',
        'fields.last_id.aggregate-function' = 'last_non_null_value');
"""
PIPELINE = f"{SHOP} INSERT INTO scores SELECT v_date, agent, score, 1, id FROM orders;"


def scores(shop: Shop) -> list[tuple[str, str, float, int]]:
    """The view's rows that hold anything: a correction may leave zeros."""
    rows = shop.rows("scores")
    return [(r["v_date"], r["agent"], r["score"], r["orders"]) for r in rows if r["orders"]]


def batch(shop: Shop) -> list[tuple[str, str, float, int]]:
    """The same computed from the orders as they are."""
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    for row in shop.rows("orders"):
        key = row["v_date"], row["agent"]
        score, count = sums.get(key, (0.0, 0))
        sums[key] = score + row["score"], count + 1
    return sorted((*key, *value) for key, value in sums.items())


def test_a_view_of_sums_is_repaired_as_of_its_queries_last_commit(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = shop.warehouse.options
    streamhouse.execute(options, SHOP)
    streamhouse.execute(
        options,
        "INSERT INTO orders VALUES ('d1', 1, 'ann', 1), ('d1', 2, 'ann', 2), ('d1', 3, 'ben', 4), "
        "('d2', 4, 'ann', 8)",
    )
    shop.settle_here(PIPELINE)
    assert scores(shop) == batch(shop)
    streamhouse.execute(
        options,
        "CREATE TABLE others (k INT PRIMARY KEY NOT ENFORCED, n INT) WITH "
        "('bucket' = '1', 'merge-engine' = 'aggregation')",
    )
    with pytest.raises(TableError, match="has no lineage"):
        repair(options, "default.others")
    # The sums are wrong; and the stream is yet to bring a correction of the source.
    streamhouse.execute(options, "UPDATE scores SET score = 77 WHERE agent = 'ann'")
    streamhouse.execute(
        options,
        "INSERT INTO orders SELECT 'd1', CAST(2 AS BIGINT), 'ben', CAST(3 AS DOUBLE) FROM orders "
        "WHERE id = 1",
    )
    assert repair(options, "default.scores", dry_run=True).snapshot is None
    done = repair(options, "default.scores", "v_date BETWEEN 'd1' AND 'd1'")
    assert (done.inserted, done.updated, done.deleted) == (0, 1, 0)
    assert scores(shop) == [("d1", "ann", 3.0, 2), ("d1", "ben", 4.0, 1), ("d2", "ann", 77.0, 1)]
    done = repair(options, "default.scores")
    assert (done.inserted, done.updated, done.deleted) == (0, 1, 0)
    assert repair(options, "default.scores").snapshot is None
    shop.settle_here(PIPELINE)
    assert scores(shop) == batch(shop) == [
        ("d1", "ann", 1.0, 1), ("d1", "ben", 7.0, 2), ("d2", "ann", 8.0, 1)
    ]  # fmt: skip
    # A row that no query made goes, in one snapshot, and one that is missing comes.
    streamhouse.execute(options, "INSERT INTO scores VALUES ('d3', 'zoe', 5, 1, 1)")
    before = shop.warehouse.table("default.scores").latest_snapshot_id() or 0
    done = repair(options, "default.scores")
    assert (done.inserted, done.updated, done.deleted, done.snapshot) == (0, 0, 1, before + 1)
    assert scores(shop) == batch(shop)
    # An order comes between the computation and the commit: it is added to the right sum.
    streamhouse.execute(options, "UPDATE scores SET score = 1000 WHERE v_date = 'd1'")
    commit = repair_module._Attempt._commit

    def concurrent_commit(attempt: repair_module._Attempt, found: Deviation) -> int | None:
        streamhouse.execute(options, "INSERT INTO scores VALUES ('d1', 'ann', 50, 1, 9)")
        return commit(attempt, found)

    monkeypatch.setattr(repair_module._Attempt, "_commit", concurrent_commit)
    assert repair(options, "default.scores", "v_date = 'd1'").updated == 2
    assert scores(shop)[:2] == [("d1", "ann", 51.0, 2), ("d1", "ben", 7.0, 2)]
    assert shop.rows("scores")[0]["last_id"] == 9
    assert audit(options, "default.scores").equal


LAYERS = f"""
{TABLES.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")}
CREATE TABLE IF NOT EXISTS dws (v_date STRING PRIMARY KEY NOT ENFORCED, score DECIMAL(20, 4))
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.score.aggregate-function' = 'sum');
INSERT INTO dws SELECT v_date, score FROM ods;
"""
MANY = 200


def test_a_repair_upstream_corrects_the_sums_of_a_running_stream(shop: Shop) -> None:
    """Also when the stream is killed right after the repair, and started again."""
    options = shop.warehouse.options
    streamhouse.execute(options, LAYERS.rpartition("INSERT")[0])
    values = ", ".join(
        f"('2026-06-0{i % 2 + 1}', {i}, {i}, TIMESTAMP '2026-06-01 00:00:01')" for i in range(MANY)
    )
    streamhouse.execute(options, f"INSERT INTO raw VALUES {values}")
    streamhouse.execute(
        options, "INSERT INTO ods SELECT v_date, id, score + 5, event_time FROM raw"
    )

    def sums() -> dict[str, int]:
        return {row["v_date"]: int(row["score"]) for row in shop.rows("dws")}

    right = {f"2026-06-0{day + 1}": sum(range(day, MANY, 2)) for day in (0, 1)}
    wrong = {day: score + 5 * MANY // 2 for day, score in right.items()}
    run = shop.start(LAYERS, spark=False)
    run.until(lambda: sums() == wrong)
    repair_day = "INSERT INTO ods SELECT * FROM raw WHERE v_date BETWEEN '2026-06-01' AND '{}'"
    done = streamhouse.execute(options, repair_day.format("2026-06-01"))
    assert (done.inserted, done.updated) == (0, MANY // 2)
    run.until(lambda: sums() == {**wrong, "2026-06-01": right["2026-06-01"]})
    streamhouse.execute(options, repair_day.format("2026-06-02"))
    run.kill()
    shop.settle_here(LAYERS)
    assert sums() == right
    again = streamhouse.execute(options, repair_day.format("2026-06-02"))
    assert (again.inserted, again.updated) == (0, 0)
