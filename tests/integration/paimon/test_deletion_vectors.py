"""Tables with deletion vectors that merge rows: what we write, the Java core compacts and reads."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.integration.paimon.conftest import Lake
from tests.java_reads import java_rows

from streamhouse import execute
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar

TABLES = {
    "partial-update": "'merge-engine' = 'partial-update'",
    "group": "'merge-engine' = 'partial-update', 'fields.v.sequence-group' = 'w'",
    "sums": "'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum'",
}


def merged(name: str, old: tuple[Any, Any], new: tuple[Any, Any]) -> tuple[Any, Any]:
    """The columns `v` and `w` of a key after a row."""
    filled = tuple(o if n is None else n for o, n in zip(old, new, strict=True))
    if name == "group":
        return new if old[0] is None or new[0] >= old[0] else old
    if name == "sums" and None not in (old[0], new[0]):
        return old[0] + new[0], filled[1]
    return filled[0], filled[1]


@pytest.mark.parametrize("producer", ["none", "lookup"])
@pytest.mark.parametrize("name", TABLES)
def test_rows_are_merged(lake: Lake, java: Sidecar, name: str, producer: str) -> None:
    draw, table = random.Random(name), f"{lake.database}.t"
    warehouse = Warehouse(lake.options)
    execute(
        warehouse,
        f"CREATE TABLE {table} (k INT PRIMARY KEY NOT ENFORCED, v INT, w INT) WITH ("
        f"'bucket' = '2', 'deletion-vectors.enabled' = 'true', 'file.format' = 'orc', "
        f"'changelog-producer' = '{producer}', {TABLES[name]})",
    )
    wanted: dict[int, tuple[Any, Any]] = {}
    for number in range(5):
        rows = {draw.randrange(9): (draw.randrange(9), draw.choice([None, 1, 2])) for _ in range(5)}
        values = ", ".join(f"({k}, {v}, {w or 'NULL'})" for k, (v, w) in rows.items())
        execute(warehouse, f"INSERT INTO {table} VALUES {values}", java)
        for k, row in rows.items():
            wanted[k] = merged(name, wanted.get(k, (None, None)), row)
        if number == 2:
            java.compact(table, full=True)
        ours = {row["k"]: (row["v"], row["w"]) for row in lake.rows(table)}
        theirs = {row["k"]: (row["v"], row["w"]) for row in java_rows(java, table).to_pylist()}
        assert ours == theirs == wanted
