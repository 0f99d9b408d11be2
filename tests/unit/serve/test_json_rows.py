"""Rows as JSON, encoded by columns: the same text as value by value."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.serve.formats.cells import compact, objects
from streamhouse.serve.formats.row_formats import json_objects

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000)
COLUMNS: dict[str, pa.Array] = {
    "int": pa.array([1, None, -(2**63)], pa.int64()),
    "tiny": pa.array([-1, None, 127], pa.int8()),
    "flag": pa.array([True, None, False]),
    "double": pa.array([0.1, float("nan"), 1e300]),
    "float": pa.array([0.1, None, float("-inf")], pa.float32()),
    "plain": pa.array(["a", None, "ü€"]),
    "odd": pa.array(['say "x"', "a\\b\n", "\u2028\x85\x00"]),
    'na"me\u2029': pa.array(["", "1,2", None]),
    "price": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
    "day": pa.array([datetime.date(2026, 1, 2), None, datetime.date(1, 1, 1)]),
    "at": pa.array([NOW, None, NOW], pa.timestamp("ms")),
    "zoned": pa.array([NOW, None, NOW], pa.timestamp("us", "UTC")),
    "clock": pa.array([datetime.time(1, 2), None, datetime.time(3)], pa.time32("ms")),
    "raw": pa.array([b"\x00\xff", None, b""]),
    "list": pa.array([[1.5, None], None, []]),
    "row": pa.array([{"a": 'x"', "b": 1}, None, {"a": None, "b": 2}]),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "nothing": pa.array([None, None, None]),
}


def by_values(batch: pa.RecordBatch) -> str:
    return ",".join(compact(record) for record in json_objects(batch))


@pytest.mark.parametrize("name", COLUMNS)
def test_each_type(name: str) -> None:
    batch = pa.record_batch({name: COLUMNS[name]})
    assert objects(batch).decode() == by_values(batch)


def test_all_columns_and_some_columns() -> None:
    batch = pa.record_batch(COLUMNS)
    for part in (batch, batch.slice(1, 2), batch.slice(2, 1)):
        assert objects(part).decode() == by_values(part)
        found: list[Any] = json.loads(f"[{objects(part).decode()}]")
        assert len(found) == part.num_rows
    assert objects(batch.slice(0, 0)) == b""


def test_rows_without_columns() -> None:
    batch = pa.record_batch({"a": [1, 2]}).select([])
    assert objects(batch) == by_values(batch).encode()
