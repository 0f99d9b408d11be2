"""Sums of extreme values over rows that change: the model's sum, or an error, in every batch."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.unit.sql.conftest import Catalog, _run

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.table_writer import TableWriter

INTS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
ARROW = {
    **{name: pa.type_for_alias(f"int{bits}") for name, bits in INTS.items()},
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL(5, 2)": pa.decimal128(5, 2),
}
WIDER = {
    "TINYINT": "SMALLINT",
    "SMALLINT": "INT",
    "INT": "BIGINT",
    "BIGINT": "DECIMAL(38, 0)",
    "FLOAT": "DOUBLE",
    "DOUBLE": "DOUBLE",
    "DECIMAL(5, 2)": "DECIMAL(38, 2)",
}
QUERIES = (
    "SELECT g, SUM(v) FROM src GROUP BY g",
    "SELECT g, v FROM src",
    "SELECT g, COALESCE(SUM(CASE WHEN id >= 0 THEN v END), 0) FROM src GROUP BY g",
)


def extremes(kind: str) -> list[Any]:
    if kind in INTS:
        least = -(1 << (INTS[kind] - 1))
        return [least, -least - 1, least + 1, 1, 0, None]
    if kind.startswith("DECIMAL"):
        return [Decimal("999.99"), Decimal("-999.99"), Decimal("0.01"), None]
    return [1.5, -0.0, -2.25, 1024.0, None]


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("kind", ARROW)
@pytest.mark.parametrize("wide", [True, False])
def test_any_history_has_the_sum_of_its_rows(kind: str, wide: bool, text: str) -> None:
    column = WIDER[kind] if wide else kind
    catalog = Catalog()
    catalog.add(
        f"CREATE TABLE src (id INT PRIMARY KEY NOT ENFORCED, g INT, v {kind});"
        f"CREATE TABLE out_ (g INT PRIMARY KEY NOT ENFORCED, n {column}) WITH ("
        "'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum')"
    )
    plan = catalog.stream(f"INSERT INTO out_ {text}")
    for seed in range(4):
        _history(plan.rows.sql, kind, wide, random.Random(f"{kind} {wide} {text} {seed}"))


def _history(sql: str, kind: str, wide: bool, draw: random.Random) -> None:
    current: dict[int, Any] = {}
    totals: defaultdict[int, Any] = defaultdict(int)
    for _ in range(8):
        changes: list[tuple[int, Any, str]] = []
        for _ in range(draw.randrange(1, 4)):
            key, value = draw.randrange(3), draw.choice(extremes(kind))
            gone = key in current and draw.random() < 0.5
            if key in current:
                changes.append((key, current.pop(key), "-D" if gone else "-U"))
            if not gone:
                current[key] = value
                changes.append((key, value, "+I"))
        src = pa.table(
            {
                "id": pa.array([key for key, _, _ in changes], pa.int32()),
                "g": pa.array([key % 2 for key, _, _ in changes], pa.int32()),
                "v": pa.array([value for _, value, _ in changes], ARROW[kind]),
                "_row": pa.array(range(len(changes)), pa.int64()),
                "rowkind": [row_kind for _, _, row_kind in changes],
            }
        )
        try:
            rows = _run(sql, {"src": src})
        except duckdb.ConversionException:
            assert not wide
            return
        for group, value in rows:
            totals[group] += value or 0
        for group in (0, 1):
            expected = sum(v or 0 for key, v in current.items() if key % 2 == group)
            assert totals[group] == expected


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_sum_over_rows_that_change_takes_no_infinity(kind: str, text: str, value: float) -> None:
    """Infinity - Infinity is NaN, and stays: the row is refused before it is added."""
    catalog = Catalog()
    for name, key in (("src", "PRIMARY KEY NOT ENFORCED"), ("log", "")):
        catalog.add(f"CREATE TABLE {name} (id INT {key}, g INT, v {kind});")
    catalog.add(
        "CREATE TABLE out_ (g INT PRIMARY KEY NOT ENFORCED, n DOUBLE) WITH ("
        "'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum')"
    )
    src = pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "g": pa.array([1], pa.int32()),
            "v": pa.array([value], ARROW[kind]),
            "_row": pa.array([0], pa.int64()),
            "rowkind": ["+I"],
        }
    )
    plan = catalog.stream(f"INSERT INTO out_ {text}")
    with pytest.raises(duckdb.Error, match="Infinity or NaN in a sum over rows that change"):
        _run(plan.rows.sql, {"src": src})
    plan = catalog.stream(f"INSERT INTO out_ {text.replace('src', 'log')}")
    ((_, found),) = _run(plan.rows.sql, {"src": src})
    assert found == value or math.isnan(value)


def test_nor_does_a_sum_that_row_kinds_retract(tmp_path: Path) -> None:
    merge = {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.s.aggregate-function": "last_value",
    }
    options = ", ".join(f"'{key}' = '{value}'" for key, value in merge.items())
    catalog = Catalog()
    catalog.add(
        "CREATE TABLE src (g INT PRIMARY KEY NOT ENFORCED, v DOUBLE, s STRING);"
        f"CREATE TABLE out_ (g INT PRIMARY KEY NOT ENFORCED, n DOUBLE, s STRING) WITH ({options})"
    )
    text = "INSERT INTO out_ SELECT g, v, s FROM src"
    assert catalog.stream(text).row_kinds
    assert catalog.rows(text, [{"g": 1, "v": 1.5, "rowkind": "-U"}]) == [(1, 1.5, None, "-U")]
    with pytest.raises(duckdb.Error, match="Infinity or NaN"):
        catalog.rows(text, [{"g": 1, "v": math.inf, "rowkind": "+I"}])

    warehouse = Warehouse({"warehouse": str(tmp_path)})
    warehouse.create_database("d")
    table = catalog.tables["out_"]
    warehouse.create_table("d", "t", table.columns, ("g",), (), {"bucket": "1", **merge})
    writer = TableWriter(warehouse.options, "d.t", "u")
    rows = [{"g": 1, "n": math.inf, "s": None}]
    schema = warehouse.table("d.t").arrow_schema
    writer.write(_with_kind(pa.RecordBatch.from_pylist(rows, schema=schema), "+I"))
    with pytest.raises(TableError, match="Infinity or NaN cannot be subtracted"):
        writer.write(_with_kind(pa.RecordBatch.from_pylist(rows, schema=schema), "-D"))
    writer.close()


def _with_kind(rows: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    return rows.append_column("rowkind", pa.repeat(kind, rows.num_rows))
