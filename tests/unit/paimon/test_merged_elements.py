"""A value that is alone in its key is stored as if it had been merged with an empty one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

ROWS = "ARRAY<ROW<id INT, s INT, x STRING>>"
FUNCTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "distinct": ("ARRAY<INT>", {"aggregate-function": "collect", "distinct": "true"}),
    "distinct doubles": ("ARRAY<DOUBLE>", {"aggregate-function": "collect", "distinct": "true"}),
    "collect": ("ARRAY<INT>", {"aggregate-function": "collect"}),
    "nested": (ROWS, {"aggregate-function": "nested_update", "nested-key": "id"}),
    "nested keys": (ROWS, {"aggregate-function": "nested_update", "nested-key": "id, x"}),
    "limited": (
        ROWS,
        {"aggregate-function": "nested_update", "nested-key": "id", "count-limit": "2"},
    ),
    "limited rows": (ROWS, {"aggregate-function": "nested_update", "count-limit": "2"}),
    "appended": (ROWS, {"aggregate-function": "nested_update"}),
    "map": ("MAP<STRING, INT>", {"aggregate-function": "merge_map"}),
}


def value(kind: str, draw: random.Random) -> Any:
    count = draw.randrange(5)
    if kind == "ARRAY<INT>":
        return draw.choices((1, 2, None), k=count)
    if kind == "ARRAY<DOUBLE>":
        return draw.choices((0.0, -0.0, 1.5, float("inf")), k=count)
    if kind.startswith("MAP"):
        return [(draw.choice("abc"), draw.randrange(9)) for _ in range(count)]
    rows = [
        {"id": draw.choice((1, 2, 3, None)), "s": draw.randrange(9), "x": draw.choice("ab")}
        for _ in range(count)
    ]
    return [draw.choice((row, row, row, None)) for row in rows]


class Values:
    """A table with one value for each key."""

    def __init__(self, folder: Path, kind: str, options: dict[str, str]) -> None:
        self._warehouse = Warehouse({"warehouse": str(folder)})
        self._warehouse.create_database("d")
        given = {f"fields.v.{key}": text for key, text in options.items()}
        columns = (Column("k", "INT", False), Column("v", kind))
        engine = {"merge-engine": "aggregation", "bucket": "1"}
        self._warehouse.create_table("d", "t", columns, ("k",), (), {**engine, **given})
        self._commits = 0

    def write(self, values: list[Any]) -> list[Any]:
        """Write a value for each key from 0 on; returns the values that the table then has."""
        options, table = self._warehouse.options, self._warehouse.table("d.t")
        writer = TableWriter(options, "d.t", "u")
        columns = [pa.array(range(len(values)), pa.int32()), values]
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(columns, table.arrow_schema, strict=True)
        ]
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema))
        messages = writer.prepare(self._commits)
        writer.close()
        TableCommitter(options, "d.t", "u").commit(self._commits, messages)
        self._commits += 1
        found = [row for batch in self._warehouse.table("d.t").read() for row in batch.to_pylist()]
        return [row["v"] for row in sorted(found, key=lambda row: row["k"])]


def elements(stored: Any) -> Any:
    return None if stored is None else sorted(map(repr, stored))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_key_with_one_row_is_as_merged(tmp_path: Path, name: str) -> None:
    kind, options = FUNCTIONS[name]
    draw = random.Random(name)
    table = Values(tmp_path, kind, options)
    alone = table.write([None, *(value(kind, draw) for _ in range(60))])
    merged = table.write([None, *([] for _ in range(60))])
    assert list(map(elements, alone)) == list(map(elements, merged))


def test_texts_of_a_distinct_listagg(tmp_path: Path) -> None:
    options = {"aggregate-function": "listagg", "distinct": "true"}
    table = Values(tmp_path, "STRING", options)
    assert table.write(["a,a", "b,a,,b", "c", "", None]) == ["a", "b,a", "c", "", None]
    assert table.write(["b,a"] * 5)[:3] == ["a,b", "b,a", "c,b,a"]
