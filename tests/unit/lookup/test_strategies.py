"""All strategies give the same join at every snapshot, forwards and back, whatever they hold."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.unit.lookup.conftest import Join, Lab, Oracle, Row, plan

from streamhouse.sql.plan import Column

PRICES = [
    Column("k", "INT", False), Column("item", "STRING", False),
    Column("price", "INT"), Column("at_", "BIGINT"),
]  # fmt: skip
ITEMS = ["tea", "rum", "", "a longer name than seven bytes", "Ärger"]
RETRY = (
    "/*+ LOOKUP('table'='p', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', "
    "'fixed-delay'='1s', 'max-attempts'='10') */"
)
JOIN = "JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() AS p ON o.k = p.k AND o.item = p.item"
QUERIES = [
    f"SELECT o.n, p.price FROM orders AS o {JOIN}",
    f"SELECT o.n, p.price, p.k FROM orders AS o LEFT {JOIN}",
    f"SELECT {RETRY} o.n, p.price FROM orders AS o LEFT {JOIN} AND p.price > 50 WHERE o.n > 5",
    f"SELECT {RETRY} o.n, p.price FROM orders AS o {JOIN} AND p.at_ < o.n",
]
Options = Mapping[str, str]
TABLES: list[Options] = [
    {"bucket": "1"},
    {"bucket": "3"},
    {"bucket": "3", "bucket-key": "k"},
    {"bucket": "2", "bucket-key": "k", "sequence.field": "at_"},
    {"bucket": "2", "bucket-key": "k", "changelog-producer": "input"},
    {"bucket": "2", "merge-engine": "aggregation", "fields.price.aggregate-function": "sum"},
]
TIGHT = {
    # Nothing may stay in memory, hardly a key be remembered, no bucket be copied.
    "lookup.cache-max-memory-size": "1 kb",
    "lookup.cache-rows": "3",
    "lookup.cache-max-disk-size": "1 kb",
}


def history(lab: Lab, options: Options, draw: random.Random) -> list[int]:
    """A table `prices` with upserts and deletes; its snapshots."""
    table = lab.make("prices", PRICES, ("k", "item"), (), options)
    snapshots = [0]
    deletes = "merge-engine" not in options
    for number in range(8):
        keys = {(draw.randrange(30), draw.choice(ITEMS)) for _ in range(draw.choice([1, 4, 40]))}
        rows = [(k, item, draw.randrange(100), draw.randrange(number + 20)) for k, item in keys]
        kinds = ["-D" if deletes and draw.random() < 0.3 else "+I" for _ in rows]
        snapshots.append(lab.write(table, rows, kinds))
    return snapshots


def orders(draw: random.Random, count: int) -> Sequence[Row]:
    def key() -> int | None:
        return None if draw.random() < 0.1 else draw.randrange(35)

    items: list[Any] = [*ITEMS, None, "unknown"]
    return [(n, key(), draw.choice(items), "x") for n in range(count)]


@pytest.mark.parametrize("options", TABLES, ids=lambda options: " ".join(options.values()))
def test_every_strategy_gives_what_the_table_has(lab: Lab, options: Options) -> None:
    draw = random.Random(7)
    snapshots = history(lab, options, draw)
    ways = [("full", {}), ("partial", {}), ("full", TIGHT), ("partial", TIGHT)]
    tested = [
        (Oracle(lab, plan(lab, text)), [Join.of(lab, text, [way], more) for way, more in ways])
        for text in (QUERIES if options == TABLES[1] else QUERIES[2:3])
    ]
    for snapshot in [*snapshots, *draw.sample(snapshots, 4), *snapshots[::3]]:
        rows = orders(draw, draw.choice([1, 5, 60]))
        for oracle, joins in tested:
            wanted = oracle.rows({"dim_0": snapshot}, rows)
            for join in joins:
                assert join.rows({"dim_0": snapshot}, rows) == wanted
    for _, joins in tested:
        for join in joins:
            join.dimensions.close()
