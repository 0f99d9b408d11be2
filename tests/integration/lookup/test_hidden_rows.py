"""Dimensions whose rows only a compaction shows, against what the Java core reads."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from tests.java_reads import java_rows
from tests.unit.lookup.conftest import Join, Lab, Oracle, plan
from tests.unit.lookup.test_strategies import ITEMS, PRICES, orders

from streamhouse.lookup.strategies import full
from streamhouse.paimon.java.sidecar import Sidecar

QUERY = (
    "SELECT o.n, p.price, p.at_ FROM orders AS o LEFT JOIN prices "
    "FOR SYSTEM_TIME AS OF PROCTIME() AS p ON o.k = p.k AND o.item = p.item"
)
TABLES = [
    {
        "deletion-vectors.enabled": "true",
        "changelog-producer": "lookup",
        "sequence.field": "at_",
        "file.format": "orc",
    },
    {"deletion-vectors.enabled": "true"},
    {"merge-engine": "first-row", "changelog-producer": "lookup"},
    {"changelog-producer": "full-compaction"},
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder: Path = tmp_path_factory.mktemp("hidden")
    return Lab(folder / "warehouse")


@pytest.fixture(scope="module")
def java(lab: Lab) -> Iterator[Sidecar]:
    with Sidecar(lab.warehouse.options) as sidecar:
        yield sidecar


@pytest.mark.parametrize("options", TABLES, ids=lambda options: " ".join(options.values()))
def test_what_a_compaction_shows_is_joined(
    lab: Lab, java: Sidecar, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full, "WHOLE_ROWS", 0)
    draw = random.Random(5)
    if "prices" in lab.warehouse.tables("db"):
        lab.warehouse.drop_table("db", "prices")
    given = {"bucket": "2", "bucket-key": "k", "num-sorted-run.compaction-trigger": "2", **options}
    table = lab.make("prices", PRICES, ("k", "item"), (), given)
    deletes = "first-row" not in options.values()
    joins = [Join.of(lab, QUERY, [way]) for way in ("full", "partial")]
    oracle = Oracle(lab, plan(lab, QUERY), partial(java_rows, java))
    visited = [0]
    for number in range(4):
        keys = {(draw.randrange(15), draw.choice(ITEMS)) for _ in range(15)}
        rows = [(*key, draw.randrange(100), draw.randrange(number + 9)) for key in keys]
        kinds = ["-D" if deletes and draw.random() < 0.2 else "+I" for _ in rows]
        visited.append(lab.write(table, rows, kinds))
        if number != 1:
            java.compact("db.prices", full=number == 3)
            visited.append(table.latest_snapshot_id() or 0)
    matched = 0
    for snapshot in [*visited, *visited[::-2]]:
        few = orders(draw, 40)
        wanted = oracle.rows({"dim_0": snapshot}, few)
        matched += sum(row[1] is not None for row in wanted[:-1])
        for join in joins:
            assert join.rows({"dim_0": snapshot}, few) == wanted
    assert matched
    for join in joins:
        join.dimensions.close()
