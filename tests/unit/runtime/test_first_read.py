"""A new query says if its first read of an append table cannot follow the commits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.runtime.test_batch_planner import QUERY, Tables

from streamhouse import execute
from streamhouse.connectors.specs import SourceSpec
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.statements.resumption import unordered_first_read
from streamhouse.sql.plan import Column

COLUMNS = [Column("p", "INT"), Column("k", "INT"), Column("n", "INT")]


def query(tables: Tables, target: str, options: Mapping[str, str]) -> QuerySpec:
    source = SourceSpec("paimon", options, tuple(COLUMNS), tables.address("moved"))
    passed = replace(QUERY, rows=replace(QUERY.rows, passed={"p": "p", "k": "k"}))
    return replace(tables.spec, query=passed, source=source, target=tables.address(target))


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("last", {}, True),
        ("last", {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "3"}, True),
        ("last", {"scan.mode": "from-snapshot", "scan.snapshot-id": "2"}, False),
        ("last", {"scan.mode": "latest"}, False),
        ("by_partition", {}, False),
        ("by_sequence", {}, False),
        ("sums", {}, False),
        ("appended", {}, False),
    ],
)
def test_it_comes_where_the_target_keeps_the_last_row_of_several_buckets(
    tmp_path: Path, target: str, options: Mapping[str, str], said: bool
) -> None:
    tables = Tables(tmp_path)
    warehouse = Warehouse(tables.options)
    execute(warehouse, "CREATE TABLE d.moved (p INT, k INT, n INT) PARTITIONED BY (p)")
    sums = {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"}
    warehouse.create_table("d", "last", COLUMNS, ["k"])
    warehouse.create_table("d", "by_partition", COLUMNS, ["p", "k"])
    warehouse.create_table("d", "by_sequence", COLUMNS, ["k"], options={"sequence.field": "n"})
    warehouse.create_table("d", "sums", [*COLUMNS[1:]], ["k"], options=sums)
    warehouse.create_table("d", "appended", COLUMNS)
    spec = query(tables, target, options)
    assert unordered_first_read(spec) is None
    for number in range(3):
        execute(warehouse, f"INSERT INTO d.moved VALUES ({number % 2}, 1, {number})")
    # A full read of snapshot 3 does not follow the commits; that of the newest one may.
    assert (unordered_first_read(spec) is not None) == (said and "scan.snapshot-id" in options)
    os.remove(f"{warehouse.table('d.moved').location}/snapshot/snapshot-1")
    notice = unordered_first_read(spec)
    assert (notice is not None) == said
    assert notice is None or ("d.moved" in notice and "'sequence.field'" in notice)


def test_it_comes_after_a_compaction(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    warehouse = Warehouse(tables.options)
    execute(warehouse, "CREATE TABLE d.moved (p INT, k INT, n INT)")
    warehouse.create_table("d", "last", COLUMNS, ["k"])
    for number in range(3):
        execute(warehouse, f"INSERT INTO d.moved VALUES ({number}, 1, {number})")
    spec = query(tables, "last", {})
    location = warehouse.table("d.moved").location
    os.remove(f"{location}/snapshot/snapshot-1")
    assert unordered_first_read(spec) is None
