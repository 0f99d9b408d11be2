"""Computed changes of tables whose rows show only after the official Java core has compacted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.java_reads import java_rows

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

COLUMNS = [Column("k", "INT"), Column("v", "BIGINT")]
DELETION_VECTORS = {"deletion-vectors.enabled": "true"}
TABLES: dict[str, dict[str, str]] = {
    "plain": {},
    "sums": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first": {"merge-engine": "first-row", "ignore-delete": "true"},
    "vectors": DELETION_VECTORS,
    "newest": {"sequence.field": "v", **DELETION_VECTORS},
    "lookup": {"changelog-producer": "lookup"},
    "full": {"changelog-producer": "full-compaction"},
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = Warehouse(str(tmp_path_factory.mktemp("computed") / "warehouse"))
    made.create_database("db")
    return made


@pytest.fixture(scope="module")
def java(warehouse: Warehouse) -> Iterator[Sidecar]:
    with Sidecar(warehouse.options) as sidecar:
        yield sidecar


def write(warehouse: Warehouse, name: str, number: int, rows: list[tuple[int, int, str]]) -> None:
    writer = TableWriter(warehouse.options, name, "user", f"{number}-")
    records = [{"k": k, "v": v, "rowkind": kind} for k, v, kind in rows]
    writer.write(pa.RecordBatch.from_pylist(records))
    messages = writer.prepare(number)
    writer.close()
    TableCommitter(warehouse.options, name, "user").commit(number, messages)


def overwrite(warehouse: Warehouse, name: str, rows: list[tuple[int, int, str]]) -> None:
    table = warehouse.table(name)
    builder = table.rust.new_batch_write_builder().with_overwrite()
    writer = builder.new_write()
    records = [{"k": k, "v": v} for k, v, _ in rows]
    writer.write_arrow(pa.RecordBatch.from_pylist(records, schema=table.arrow_schema))
    builder.new_commit().commit(writer.prepare_commit())
    writer.close()


def changes(source: PaimonSource, after: int, until: int) -> list[tuple[Any, ...]]:
    partitions = source.partitions({"snapshot": after}, {"snapshot": until})
    found: list[tuple[Any, ...]] = []
    for partition in partitions:
        for batch in source.read(partition):
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found


def add(state: Counter[tuple[int, int]], found: list[tuple[Any, ...]]) -> None:
    for k, v, kind in found:
        state[k, v] += 1 if kind in ("+I", "+U") else -1
        assert state[k, v] >= 0, f"{kind} of a row that is not there: {(k, v)}"


@pytest.mark.parametrize("name", TABLES)
def test_a_history_with_compactions_gives_the_table(
    warehouse: Warehouse, java: Sidecar, name: str
) -> None:
    options = {"bucket": "2", **TABLES[name]}
    warehouse.create_table("db", name, COLUMNS, ["k"], [], options)
    table, rng = f"db.{name}", random.Random(name)
    source = PaimonSource(warehouse.options, table)
    kinds = ["+I"] if name in ("first", "sums") else ["+I", "+U", "-D"]
    state: Counter[tuple[int, int]] = Counter()
    seen = 0
    reported: list[tuple[int, int, list[tuple[Any, ...]]]] = []
    for step in range(12):
        keys = rng.sample(range(8), 3)
        rows = [(k, rng.randrange(9), rng.choice(kinds)) for k in keys]
        if step == 7:
            overwrite(warehouse, table, rows)
        else:
            write(warehouse, table, step, rows)
        if step % 3 == 2 or step == 11:
            java.compact(table, full=step % 2 == 1)
        latest = warehouse.table(table).latest_snapshot_id() or 0
        found = changes(source, seen, latest)
        reported.append((seen, latest, found))
        add(state, found)
        seen = latest
    rows_now = java_rows(java, table).select(["k", "v"]).to_pylist()
    assert +state == Counter((row["k"], row["v"]) for row in rows_now)
    again = PaimonSource(warehouse.options, table)
    assert [changes(again, after, until) for after, until, _ in reported] == [
        f for *_, f in reported
    ]
