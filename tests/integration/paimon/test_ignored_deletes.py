"""Deletes in files of tables that ignore them: both cores return the same, or ours says why not."""

from __future__ import annotations

from pathlib import Path

from pypaimon import CatalogFactory
from pypaimon.schema.schema_change import SchemaChange
from tests.java_reads import java_rows

from streamhouse import execute
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.procedures.compaction.compact import compact
from streamhouse.procedures.context import Context

ENGINES = {
    "deduplicate": "",
    "aggregation": "'fields.v.aggregate-function' = 'sum', ",
}
PRODUCERS = ("none", "input", "lookup", "full-compaction")


def test_both_cores_agree_after_a_compaction(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.create_database("d")
    refused = []
    with Context(warehouse) as context:
        java = context.sidecar
        for number, (engine, producer, compacted) in enumerate(
            (engine, producer, compacted)
            for engine in ENGINES
            for producer in PRODUCERS
            for compacted in (False, True)
        ):
            table = f"d.t{number}"
            execute(
                warehouse,
                f"CREATE TABLE {table} (k INT PRIMARY KEY NOT ENFORCED, v BIGINT) WITH ("
                f"{ENGINES[engine]}'merge-engine' = '{engine}', 'changelog-producer' = "
                f"'{producer}', 'bucket' = '1')",
            )
            execute(warehouse, f"INSERT INTO {table} VALUES (1, 1), (2, 2)", java)
            execute(warehouse, f"DELETE FROM {table} WHERE k = 1", java)
            if compacted:
                compact(context, table)
            CatalogFactory.create(dict(warehouse.options)).alter_table(
                table, [SchemaChange.set_option("ignore-delete", "true")], False
            )
            try:
                assert _rows(warehouse, table) == _java_rows(java, table)
            except StreamhouseError as error:
                assert "Flink ignores" in str(error)
                refused.append((engine, producer, compacted))
                compact(context, table)
                assert _rows(warehouse, table) == _java_rows(java, table) == [(1, 1), (2, 2)]
    assert refused == [("deduplicate", producer, False) for producer in PRODUCERS]


def _rows(warehouse: Warehouse, table: str) -> list[tuple[int, int]]:
    read = warehouse.table(table).read()
    return sorted(tuple(row.values()) for batch in read for row in batch.to_pylist())


def _java_rows(java: Sidecar, table: str) -> list[tuple[int, int]]:
    return sorted(tuple(row.values()) for row in java_rows(java, table).to_pylist())
