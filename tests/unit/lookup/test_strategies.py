"""All lookup strategies give the same join at every snapshot, forwards and backwards."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from tests.unit.lookup.conftest import Join, Lab, Oracle, Row, plan

from streamhouse.lookup.storage.key_location import Group, GroupReader
from streamhouse.lookup.strategies import full
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
ON_DISK = {"lookup.cache-max-memory-size": "1 kb"}
# Hardly a key may be remembered, and no bucket be copied.
TIGHT = {**ON_DISK, "lookup.cache-rows": "3", "lookup.cache-max-disk-size": "1 kb"}


def history(lab: Lab, options: Options, draw: random.Random) -> list[int]:
    """A table `prices` with upserts and deletes; its snapshots."""
    table = lab.make("prices", PRICES, ("k", "item"), (), options)
    snapshots = [0]
    deletes = "merge-engine" not in options
    for number in range(6):
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


@pytest.mark.parametrize(
    ("options", "whole_rows", "queries"),
    [(TABLES[1], 50_000, QUERIES), *((options, 0, QUERIES[2:3]) for options in TABLES)],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else "",
)
def test_every_strategy_gives_what_the_table_has(
    lab: Lab,
    options: Options,
    whole_rows: int,
    queries: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(full, "WHOLE_ROWS", whole_rows)
    # Some changes are merged into the segments.
    monkeypatch.setattr(full, "MOST_CHANGES", 20)
    draw = random.Random(7)
    snapshots = history(lab, options, draw)
    ways = [("full", {}), ("partial", {}), ("full", ON_DISK), ("partial", TIGHT)]
    for text in queries:
        query = plan(lab, text)
        joins = [Join.of(lab, query, [way], more) for way, more in ways]
        visited = [*snapshots, *draw.sample(snapshots, 2)] if not whole_rows else snapshots[::2]
        check(lab, joins, visited, draw)


def check(lab: Lab, joins: Sequence[Join], snapshots: Sequence[int], draw: random.Random) -> None:
    """At each snapshot, all joins give what the tables have, read whole."""
    oracle = Oracle(lab, joins[0].query)
    for snapshot in snapshots:
        rows = orders(draw, draw.choice([1, 5, 60]))
        versions = {lookup.relation: snapshot for lookup in joins[0].query.lookups}
        wanted = oracle.rows(versions, rows)
        for join in joins:
            assert join.rows(versions, rows) == wanted
    for join in joins:
        join.dimensions.close()


@pytest.mark.parametrize("bucket", ["2", "-1"])
def test_partitions(lab: Lab, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the whole key, which names the partition; some of them have the folder of null."""
    monkeypatch.setattr(full, "WHOLE_ROWS", 0)
    draw, days = random.Random(8), ["x", "2024-01-01", "", "a b/c=d"]
    columns = [Column("k", "INT", False), Column("day_", "STRING", False), Column("v", "INT")]
    table = lab.make("days", columns, ("k", "day_"), ("day_",), {"bucket": bucket})
    snapshots = [0]
    for number in range(5):
        keys = {(draw.randrange(20), draw.choice(days)) for _ in range(12)}
        snapshots.append(lab.write(table, [(*key, number) for key in keys]))
    text = (
        "SELECT o.n, d.v FROM (SELECT n, k, CASE WHEN n % 4 = 0 THEN '' WHEN n % 4 = 1 THEN "
        "'a b/c=d' ELSE day_ END AS day_ FROM orders) AS o LEFT JOIN days FOR SYSTEM_TIME AS OF "
        "PROCTIME() AS d ON o.k = d.k AND o.day_ = d.day_"
    )
    query = plan(lab, text)
    joins = [Join.of(lab, query, [way]) for way in ("full", "partial")]
    check(lab, joins, [*snapshots, 2, 4], draw)


@pytest.mark.parametrize("bucket", ["1", "3"])
def test_keys_of_other_types(lab: Lab, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Days, points in time and decimals, also where the stream's are finer than the table's."""
    monkeypatch.setattr(full, "WHOLE_ROWS", 0)
    columns = [
        Column("at_", "TIMESTAMP(3)", False),
        Column("day_", "DATE", False),
        Column("m", "DECIMAL(10, 2)", False),
        Column("v", "INT"),
    ]
    options = {"bucket": bucket, "bucket-key": "day_"}
    table = lab.make("instants", columns, ("at_", "day_", "m"), (), options)
    instants = [datetime(2024, 5, 6), datetime(2024, 5, 6, 7, 8, 9, 123_000)]
    rows = [(at, at.date(), Decimal(n), n) for at in instants for n in range(4)]
    snapshots = [0, lab.write(table, rows[:6]), lab.write(table, rows[3:])]
    text = (
        "SELECT o.n, d.v FROM (SELECT n, CAST(day_ AS TIMESTAMP(6)) AS at_ FROM orders "
        "WHERE day_ <> '') AS o LEFT JOIN instants FOR SYSTEM_TIME AS OF PROCTIME() AS d ON "
        "o.at_ = d.at_ AND CAST(o.at_ AS DATE) = d.day_ AND CAST(o.n AS DECIMAL(12, 3)) = d.m"
    )
    texts = ["2024-05-06", "2024-05-06 07:08:09.123", "2024-05-06 07:08:09.123456", "1999-01-01"]
    few = [(n, 0, "x", text) for n in range(5) for text in texts]
    query = plan(lab, text)
    oracle = Oracle(lab, query)
    joins = [Join.of(lab, query, [way]) for way in ("full", "partial")]
    for snapshot in [*snapshots, *snapshots]:
        wanted = oracle.rows({"dim_0": snapshot}, few)
        assert sum(row[1] is not None for row in wanted[:-1]) == [0, 6, 8][snapshot]
        for join in joins:
            for _ in range(2):
                assert join.rows({"dim_0": snapshot}, few) == wanted
    for join in joins:
        join.dimensions.close()


def test_a_table_without_a_key_and_a_lookup_after_a_lookup(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full, "WHOLE_ROWS", 0)
    monkeypatch.setattr(full, "MOST_CHANGES", 6)
    draw = random.Random(9)
    people = lab.make("people", [Column("k", "INT"), Column("rank_", "BIGINT")], (), (), {})
    ranks = [Column("id", "INT", False), Column("name", "STRING")]
    rank = lab.make("ranks", ranks, ("id",), (), {"bucket": "2"})
    for number in range(5):
        lab.write(people, [(draw.randrange(12), draw.randrange(6)) for _ in range(4)])
        lab.write(rank, [(draw.randrange(5), f"rank {number}") for _ in range(2)])
    text = (
        "SELECT o.n, p.rank_, r.name FROM orders AS o "
        "JOIN people FOR SYSTEM_TIME AS OF PROCTIME() AS p ON o.k = p.k "
        "LEFT JOIN ranks FOR SYSTEM_TIME AS OF PROCTIME() AS r ON p.rank_ = r.id"
    )
    ways = (["full", "full"], ["full", "partial"])
    query = plan(lab, text)
    joins = [Join.of(lab, query, way) for way in ways]
    check(lab, joins, [0, 1, 2, 3, 4, 5, 3, 5], draw)


def test_new_snapshots_are_followed_by_their_changes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither strategy reads again what has not changed."""
    columns = [Column("k", "INT", False), Column("v", "INT")]
    table = lab.make("members", columns, ("k",), (), {"bucket": "2"})
    first = lab.write(table, [(k, 0) for k in range(3000)])
    loads: list[object] = []
    read = GroupReader.rows_of_group

    def load(self: GroupReader, group: Group) -> Any:
        loads.append(group)
        return read(self, group)

    monkeypatch.setattr(full, "WHOLE_ROWS", 0)
    monkeypatch.setattr(GroupReader, "rows_of_group", load)
    text = (
        "SELECT o.n, m.v FROM orders AS o "
        "JOIN members FOR SYSTEM_TIME AS OF PROCTIME() AS m ON o.n = m.k"
    )
    joins = [Join.of(lab, text, [way]) for way in ("full", "partial")]
    rows = [(n, 0, "x", "x") for n in range(3000)]
    for join in joins:
        assert len(join.rows({"dim_0": first}, rows)) == 3001
    assert sorted(map(str, loads)) == ["('*', -1)", "('*', 0)", "('*', 1)"]
    for number in range(1, 4):
        at = lab.write(table, [(k, number) for k in range(number, 60, 7)], None)
        for join in joins:
            found: dict[Any, Any] = dict(join.rows({"dim_0": at}, rows)[:-1])
            assert [found[k] for k in range(number, 60, 7)] == [number] * len(range(number, 60, 7))
            assert found[2999] == 0
    assert len(loads) == 3
    for join in joins:
        join.dimensions.close()


def test_copied_buckets_share_the_disk(lab: Lab) -> None:
    """A bucket for which there is no room takes the place of the one looked up longest ago."""
    columns = [Column("k", "INT", False), Column("v", "INT")]
    table = lab.make("members", columns, ("k",), (), {"bucket": "2"})
    at = lab.write(table, [(k, k) for k in range(3000)])
    text = (
        "SELECT o.n, m.v FROM orders AS o "
        "JOIN members FOR SYSTEM_TIME AS OF PROCTIME() AS m ON o.n = m.k"
    )
    options = {"lookup.cache-max-memory-size": "1 kb", "lookup.cache-max-disk-size": "40 kb"}
    join = Join.of(lab, text, ["partial"], options)
    for _ in range(2):
        found = join.rows({"dim_0": at}, [(n, 0, "x", "x") for n in range(3000)])
        assert found[:-1] == sorted(((n, n) for n in range(3000)), key=repr)
    current = join.dimensions._held["dim_0"].current
    assert [0 < held.disk <= 40 << 10 for held in current._held.values()] == [True]
    join.dimensions.close()
