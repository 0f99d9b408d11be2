"""Compaction of many buckets as a Spark job on two task slots, and sorting beside a session."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions import captured
from pyspark.sql import SparkSession
from tests.java_reads import java_rows

from streamhouse import procedures
from streamhouse.errors import CommitConflictError, TableError, UnsupportedSqlError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java import bucket_compaction
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.procedures import Context
from streamhouse.procedures.sorting import sort as sort_module
from streamhouse.sql.plan import Column

_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """One warehouse and its JVMs for all tests here; each makes tables of its own."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("procedures")))
    warehouse.create_database("db")
    with Context(warehouse) as made:
        yield made


@pytest.fixture
def context(shared: Context, spark: SparkSession) -> Context:
    return shared


@pytest.fixture
def warehouse(shared: Context) -> Warehouse:
    return shared.warehouse


def write(warehouse: Warehouse, name: str, rows: pa.Table) -> None:
    table = warehouse.table(name)
    identifier = (table.latest_snapshot_id() or 0) + 1
    writer = TableWriter(warehouse.options, name, "u")
    for batch in rows.select(table.arrow_schema.names).cast(table.arrow_schema).to_batches():
        writer.write(batch)
    TableCommitter(warehouse.options, name, "u").commit(identifier, writer.prepare(identifier))
    writer.close()


def everything(sidecar: Sidecar, name: str) -> list[str]:
    """All rows by the Java core, in no order."""
    return sorted(map(str, java_rows(sidecar, name).to_pylist()))


def test_many_buckets_are_compacted_by_the_executors(
    warehouse: Warehouse, context: Context
) -> None:
    columns = [Column("dt", "DATE"), Column("id", "INT"), Column("n", "BIGINT")]
    warehouse.create_table(
        "db", "sales", columns, ("dt", "id"), ("dt",),
        {"bucket": "4", "changelog-producer": "full-compaction"},
    )  # fmt: skip
    days = [datetime.date(2026, 1, 1 + number % 3) for number in range(90)]
    for commit in range(3):
        rows = {"dt": days, "id": list(range(90)), "n": [commit] * 90}
        write(warehouse, "db.sales", pa.table(rows))
    before = everything(context.sidecar, "db.sales")
    (done,) = procedures.compact(context, "db.sales").to_pylist()
    assert (done["groups"], done["files_before"], done["files_after"]) == (12, 36, 12)
    table = warehouse.table("db.sales")
    assert table.latest_snapshot_id() == done["snapshot_id"] == 4
    assert table.snapshot(4).commit_kind == "COMPACT"
    assert table.snapshot(4).changelog_record_count == 90
    assert everything(context.sidecar, "db.sales") == before


def test_an_append_table_is_compacted_by_as_many_tasks_as_requested(
    warehouse: Warehouse, context: Context
) -> None:
    warehouse.create_table(
        "db", "events", [Column("id", "INT"), Column("p", "INT")], (), ("p",), {"bucket": "-1"}
    )
    for commit in range(3):
        rows = {"id": range(commit * 8, commit * 8 + 8), "p": [n % 4 for n in range(8)]}
        write(warehouse, "db.events", pa.table({k: pa.array(v) for k, v in rows.items()}))
    before = everything(context.sidecar, "db.events")
    (done,) = procedures.compact(
        context, "db.events", where="p < 3", options="sink.parallelism=2"
    ).to_pylist()
    assert (done["groups"], done["files_before"], done["files_after"]) == (3, 9, 3)
    assert everything(context.sidecar, "db.events") == before


def points(warehouse: Warehouse, rows: int = 6000) -> str:
    """An append table of two partitions whose rows are in no order, in several commits."""
    columns = [
        Column("a", "BIGINT"), Column("b", "DOUBLE"), Column("name", "STRING"),
        Column("at", "TIMESTAMP(6)"), Column("price", "DECIMAL(10, 2)"), Column("p", "INT"),
    ]  # fmt: skip
    name = f"points_{next(_numbers)}"
    warehouse.create_table("db", name, columns, (), ("p",), {"bucket": "-1"})
    rng = np.random.default_rng(11)
    schema = warehouse.table(f"db.{name}").arrow_schema
    for _ in range(3):
        a = rng.integers(0, 1_000_000_000, rows)
        write(
            warehouse,
            f"db.{name}",
            pa.table(
                {
                    "a": a,
                    "b": pa.array(rng.random(rows), mask=rng.random(rows) < 0.01),
                    "name": pa.array([f"name {one % 500:03}" for one in a]),
                    "at": pa.array(a * 1_000_001, pa.timestamp("us")),
                    "price": pa.array([Decimal(int(one) % 999) / 100 for one in a],
                                      schema.field("price").type),
                    "p": pa.array([int(one) % 2 for one in a], pa.int32()),
                }
            ),
        )  # fmt: skip
    return f"db.{name}"


def sort(context: Context, name: str, **given: Any) -> list[dict[str, Any]]:
    options = given.pop("options", "target-file-size=24 kb")
    found: list[dict[str, Any]] = procedures.compact(
        context, name, options=options, **given
    ).to_pylist()
    return found


@pytest.mark.parametrize("strategy", ["order", "zorder", "hilbert"])
def test_sorting_lets_filters_read_fewer_files_and_changes_no_row(
    warehouse: Warehouse, context: Context, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    name = points(warehouse)
    monkeypatch.setattr(Context, "spark", None)
    before, latest = everything(context.sidecar, name), warehouse.table(name).latest_snapshot_id()
    done = sort(context, name, order_strategy=strategy, order_by="a,b")
    assert [one["filter"].partition(" = ")[0] for one in done] == ["a", "b"]
    table = warehouse.table(name)
    assert table.snapshot(table.latest_snapshot_id() or 0).commit_kind == "COMPACT"
    assert table.latest_snapshot_id() == (latest or 0) + 1
    assert everything(context.sidecar, name) == before
    for one in done[: 1 if strategy == "order" else 2]:
        assert one["files_before"] == one["read_before"] == 6
        assert one["files_after"] >= 16
        assert one["read_after"] <= one["files_after"] / 2
    changes = table.changes(latest or 0, table.latest_snapshot_id() or 0, "delta")
    assert sum(batch.num_rows for batch in table.read(splits=changes)) == 0 if changes else True


def test_rows_that_others_append_during_a_sort_stay(
    warehouse: Warehouse, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = points(warehouse, 300)
    new = warehouse.table(name).arrow_schema.empty_table()
    new = pa.concat_tables([new, pa.table({"a": [-5], "p": pa.array([1], pa.int32())})],
                           promote_options="default")  # fmt: skip
    committed = bucket_compaction.commit

    def late(table: Any, user: str, made: Any) -> int | None:
        write(warehouse, name, new)
        return committed(table, user, made)

    monkeypatch.setattr(sort_module, "commit", late)
    before = everything(context.sidecar, name)
    sort(context, name, order_strategy="zorder", order_by="a,b")
    after = everything(context.sidecar, name)
    assert len(after) == len(before) + 1
    assert [row for row in after if "'a': -5" not in row] == before


def test_one_partition_is_sorted_by_text(warehouse: Warehouse, context: Context) -> None:
    name = points(warehouse, 500)
    before = everything(context.sidecar, name)
    (done,) = sort(
        context, name, order_strategy="order", order_by="name", partitions="p=1",
        options="target-file-size=1 gb",
    )  # fmt: skip
    assert (done["files_before"], done["files_after"]) == (3, 1)
    names = [row["name"] for row in java_rows(context.sidecar, name).to_pylist() if row["p"] == 1]
    assert names == sorted(names)
    assert everything(context.sidecar, name) == before


def test_a_sort_that_lost_the_race_changes_nothing(
    warehouse: Warehouse, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that it read were compacted meanwhile."""
    name = points(warehouse, 300)
    before = everything(context.sidecar, name)
    committed = bucket_compaction.commit

    def late(table: Any, user: str, made: Any) -> int | None:
        procedures.compact(warehouse, name)
        return committed(table, user, made)

    monkeypatch.setattr(sort_module, "commit", late)
    with pytest.raises(CommitConflictError):
        sort(context, name, order_strategy="zorder", order_by="a,b")
    assert everything(context.sidecar, name) == before
    files = [path for path in Path(warehouse.table(name).location).rglob("data-*")]
    assert [path for path in files if path.name.startswith("sort")] == []
    known = java_rows(context.sidecar, f"{name}$files").num_rows
    # The files before the compaction, which the first snapshots still have, and those after it.
    assert len(files) == 6 + known


def test_what_cannot_be_sorted(warehouse: Warehouse, context: Context) -> None:
    warehouse.create_table("db", "keyed", [Column("a", "INT")], ("a",), (), {"bucket": "1"})
    with pytest.raises(UnsupportedSqlError, match="has a primary key"):
        sort(context, "db.keyed", order_strategy="zorder", order_by="a")
    name = points(warehouse, 10)
    with pytest.raises(TableError, match="no column 'c'"):
        sort(context, name, order_strategy="zorder", order_by="a,c")
    with pytest.raises(TableError, match="partition column"):
        sort(context, name, order_strategy="zorder", order_by="p")


def test_errors_of_the_java_core_are_reported_by_spark(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated: list[object] = []
    translate = captured.convert_exception

    def noted(error: Any) -> Any:
        translated.append(error)
        return translate(error)

    monkeypatch.setattr(captured, "convert_exception", noted)
    with Sidecar(warehouse.options) as java, pytest.raises(TableError, match="does not exist"):
        java.compact("db.nowhere")
    assert not translated
    with pytest.raises(AnalysisException, match="nowhere"):
        spark.sql("SELECT * FROM nowhere").collect()
    assert translated
