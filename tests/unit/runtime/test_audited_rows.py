"""What an audit compares: rows as their table merges them, elements in any order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.audit.audit import ExpectedRows, _compare, audit
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column

ROWS = "ARRAY<ROW<id INT, x STRING>>"
TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "map": ("MAP<STRING, INT>", {"fields.v.aggregate-function": "merge_map"}),
    "nested": (
        ROWS,
        {"fields.v.aggregate-function": "nested_update", "fields.v.nested-key": "id"},
    ),
    "distinct": (
        "ARRAY<INT>",
        {"fields.v.aggregate-function": "collect", "fields.v.distinct": "true"},
    ),
}


def made(folder: Path, columns: tuple[Column, ...], options: dict[str, str]) -> Table:
    warehouse = Warehouse({"warehouse": str(folder / "lake")})
    warehouse.create_database("d", if_not_exists=True)
    warehouse.create_table("d", "t", columns, ("k",), (), {"bucket": "1", **options})
    return warehouse.table("d.t")


def write(table: Table, rows: pa.Table, commit: int) -> Table:
    options = {"warehouse": table.location.removesuffix("/d.db/t")}
    writer = TableWriter(options, "d.t", "u")
    for batch in rows.combine_chunks().to_batches():
        writer.write(batch)
    messages = writer.prepare(commit)
    writer.close()
    TableCommitter(options, "d.t", "u").commit(commit, messages)
    return Warehouse(options).table("d.t")


def differences(table: Table, steps: list[pa.Table]) -> int:
    """How many rows differ from what an audit recomputes by writing the steps."""
    actual = table.rows()
    with ExpectedRows(table) as expected:
        for step in steps:
            expected.write(step)
        return len(list(_compare(table, actual, expected.merged())))


@pytest.mark.parametrize("with_kinds", [True, False])
def test_row_kinds_of_a_column(tmp_path: Path, with_kinds: bool) -> None:
    columns = (Column("k", "INT", False), Column("op", "STRING"), Column("v", "INT"))
    table = made(tmp_path, columns, {"rowkind.field": "op"})
    draw, steps = random.Random(7), []
    for commit in range(6):
        chosen = [
            {"k": draw.randrange(4), "op": draw.choice(("+I", "+U", "-D")), "v": commit}
            for _ in range(3)
        ]
        rows = pa.Table.from_pylist(chosen, schema=table.arrow_schema)
        table = write(table, rows, commit)
        steps.append(rows.append_column(ROW_KIND, rows.column("op")) if with_kinds else rows)
    assert differences(table, steps) == 0
    assert differences(table, steps[:-1]) > 0


def value(kind: str, draw: random.Random) -> Any:
    numbers = draw.sample(range(12), 4)
    if kind.startswith("MAP"):
        return [(f"a{number}", draw.randrange(3)) for number in numbers]
    if kind == ROWS:
        return [{"id": number, "x": draw.choice("ab")} for number in numbers]
    return numbers


@pytest.mark.parametrize("name", TABLES)
def test_elements_in_any_order(tmp_path: Path, name: str) -> None:
    kind, options = TABLES[name]
    columns = (Column("k", "INT", False), Column("v", kind))
    table = made(tmp_path, columns, {"merge-engine": "aggregation", **options})
    draw, steps = random.Random(name), []
    for commit in range(4):
        rows = [{"k": key, "v": value(kind, draw)} for key in range(5)]
        steps.append(pa.Table.from_pylist(rows, schema=table.arrow_schema))
        table = write(table, steps[-1], commit)
    assert differences(table, steps) == 0
    stored = table.rows()
    turned = [{**row, "v": row["v"][::-1]} for row in stored.to_pylist()]
    reversed_rows = pa.Table.from_pylist(turned, schema=stored.schema)
    assert list(_compare(table, stored, reversed_rows)) == []
    less = [{**row, "v": row["v"][1:]} for row in turned]
    assert len(list(_compare(table, stored, pa.Table.from_pylist(less, stored.schema)))) == 5


def test_records_that_a_statement_removed_are_left_out(tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    script = """
CREATE TABLE IF NOT EXISTS src (k STRING, v BIGINT);
CREATE TABLE IF NOT EXISTS total (k STRING PRIMARY KEY NOT ENFORCED, v BIGINT) WITH ('bucket' = '1',
  'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum');
INSERT INTO total SELECT k, SUM(v) FROM src GROUP BY k;"""
    for row in ("'a', 1), ('b', 2", "'a', 5"):
        shop.run(script)
        shop.do(f"INSERT INTO src VALUES ({row})")
        shop.run(script)
        shop.do("DELETE FROM total WHERE k = 'a'")
    shop.do("INSERT INTO src VALUES ('a', 7), ('b', 1)")
    shop.run(script)
    found = audit(shop.options, "default.total")
    assert found.equal and found.from_snapshot == 0
    assert (found.rows, found.foreign_snapshots) == (2, 2)
