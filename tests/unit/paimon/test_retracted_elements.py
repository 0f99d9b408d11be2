"""Elements that a retraction removes are gone, however the rows are split into writes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.paimon.written_table import Row, WrittenTable

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.sql.plan import Column

SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("w", pa.int32()),
        ("items", pa.list_(pa.int32())),
        ("parts", pa.map_(pa.string(), pa.int32())),
        ("lines", pa.list_(pa.struct([("id", pa.int32()), ("x", pa.int32())]))),
        ("rowkind", pa.string()),
    ]
)
COLUMNS = (
    Column("k", "INT"),
    Column("w", "INT"),
    Column("items", "ARRAY<INT>"),
    Column("parts", "MAP<STRING, INT>"),
    Column("lines", "ARRAY<ROW<id INT, x INT>>"),
)
MERGED = {
    "fields.items.aggregate-function": "collect",
    "fields.parts.aggregate-function": "merge_map",
    "fields.lines.aggregate-function": "nested_update",
    "fields.lines.nested-key": "id",
}
SUMMED = {"merge-engine": "aggregation", **MERGED}
AGGREGATION = {**SUMMED, "fields.w.aggregate-function": "last_value"}
TABLES = {
    "aggregation": AGGREGATION,
    "distinct": {**AGGREGATION, "fields.items.distinct": "true"},
    "without key": {k: v for k, v in AGGREGATION.items() if k != "fields.lines.nested-key"},
    "sequence": {**SUMMED, "sequence.field": "w"},
    "group": {
        "merge-engine": "partial-update",
        "fields.w.sequence-group": "items,parts,lines",
        **MERGED,
    },
    "removing": {**AGGREGATION, "aggregation.remove-record-on-delete": "true"},
}


class Written(WrittenTable):
    def __init__(self, warehouse: Warehouse, name: str, options: dict[str, str]) -> None:
        super().__init__(warehouse, name, COLUMNS, SCHEMA, options)

    def rows(self) -> dict[int, Row]:
        """The rows by key, collections without their order."""
        found = [row for batch in self.table.read() for row in batch.to_pylist()]
        return {row["k"]: {name: _unordered(value) for name, value in row.items()} for row in found}


def _unordered(value: Any) -> Any:
    return sorted(value, key=repr) if isinstance(value, list) else value


def change(kind: str, key: int, instant: int, *elements: int) -> Row:
    """A row with these elements in each collection; without any, the collections are null."""
    row: Row = {
        "rowkind": kind,
        "k": key,
        "w": instant,
        "items": None,
        "parts": None,
        "lines": None,
    }
    if elements:
        row["items"] = list(elements)
        row["parts"] = [(f"p{element}", element) for element in elements]
        row["lines"] = [{"id": element, "x": instant} for element in elements]
    return row


def history(draw: random.Random, key: int) -> list[Row]:
    """Rows of one key that come from several source rows: added, updated, taken back."""
    there: list[Row] = []
    rows: list[Row] = []
    for instant in range(draw.randint(3, 10)):
        elements = draw.sample(range(6), draw.choice((0, 1, 1, 2)))
        new = change("+I", key, instant, *elements)
        if there and draw.random() < 0.6:
            old = there.pop(draw.randrange(len(there)))
            # A row that comes late has the version of its change, as one of a stream has.
            old = {**old, "w": instant}
            if draw.random() < 0.3:
                rows.append({**old, "rowkind": "-D"})
                continue
            rows += [{**old, "rowkind": "-U"}, {**new, "rowkind": "+U"}]
        else:
            rows.append(new)
        there.append(new)
    return rows


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("seed", "count"), [(0, 10), *(pytest.param(n, 50, marks=pytest.mark.soak) for n in range(20))]
)
def test_one_write_or_many_make_the_same_collections(
    warehouse: Warehouse, kind: str, seed: int, count: int
) -> None:
    draw = random.Random(f"{kind} {seed}")
    histories = [history(draw, key) for key in range(count)]
    apart, together = (Written(warehouse, name, TABLES[kind]) for name in ("apart", "together"))
    for rows in itertools.zip_longest(*histories):
        apart.put([row for row in rows if row is not None])
    for part in range(2):
        cut = [rows[: len(rows) // 2] if not part else rows[len(rows) // 2 :] for rows in histories]
        mixed = [row for rows in itertools.zip_longest(*cut) for row in rows if row is not None]
        at = draw.randrange(len(mixed))
        together.put(*(batch for batch in (mixed[:at], mixed[at:]) if batch))
    wanted, found = apart.rows(), together.rows()
    for key in range(count):
        assert found.get(key) == wanted.get(key), histories[key]


def test_an_update_replaces_its_element(warehouse: Warehouse) -> None:
    table = Written(warehouse, "updated", TABLES["aggregation"])
    assert table.put([change("+I", 1, 0, 1), change("+I", 1, 1, 2), change("+I", 2, 1, 5)]) == 1
    update = [change("-U", 1, 0, 1), change("+U", 1, 2, 3)]
    assert table.put(update) == 2
    assert table.rows()[1]["items"] == [2, 3]
    assert table.rows()[1]["parts"] == [("p2", 2), ("p3", 3)]
    assert table.rows()[2]["items"] == [5]


def test_rows_without_elements_need_no_file_of_their_own(warehouse: Warehouse) -> None:
    table = Written(warehouse, "nothing", TABLES["aggregation"])
    assert table.put([change("+I", 1, 0), change("-U", 1, 0), change("+U", 1, 1, 3)]) == 1
    assert table.rows()[1]["items"] == [3]
