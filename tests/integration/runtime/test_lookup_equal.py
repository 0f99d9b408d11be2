"""One stream looked up by each strategy: the three targets are equal, also for the Java core."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.runtime.conftest import Shop
from tests.java_reads import java_rows

from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

pytestmark = pytest.mark.usefixtures("in_threads")

STRATEGIES = ("full", "partial", "bucket")
KEY = [Column("code", "STRING"), Column("day_", "DATE"), Column("part", "DECIMAL(20, 2)")]
CODES = ["", "seven b", "eight by", "größer als acht", "x" * 200, *(f"c{n}" for n in range(20))]
TARGET = "CREATE TABLE got_{0} (n INT, code STRING, title STRING, weight INT);"
QUERY = """
INSERT INTO got_{0} SELECT /*+ LOOKUP('table'='i', 'strategy'='{0}') */
  a.n, a.code, i.title, i.weight
FROM asked AS a LEFT JOIN items FOR SYSTEM_TIME AS OF PROCTIME() AS i
  ON a.code = i.code AND a.day_ = i.day_ AND a.part = i.part AND i.weight < 80;
"""


def test_strategies_give_the_same_rows(shop: Shop) -> None:
    dice = random.Random(11)
    warehouse = shop.warehouse
    warehouse.create_database("default")
    options = {"bucket": "3", "bucket-key": "code,part"}
    items = [*KEY, Column("title", "STRING"), Column("weight", "INT")]
    warehouse.create_table("default", "items", items, [c.name for c in KEY], options=options)
    warehouse.create_table("default", "asked", [Column("n", "INT"), *KEY], options={"bucket": "-1"})

    known: dict[tuple[Any, ...], tuple[str, int]] = {}
    for commit in range(3):
        some = {key(dice): (f"title {dice.random()}", dice.randrange(100)) for _ in range(300)}
        known.update(some)
        write(shop, "items", commit, [(*one, *rest) for one, rest in some.items()])
    asked: list[tuple[Any, ...]] = []
    for commit in range(2):
        some_keys = [random_key(dice, list(known)) for _ in range(800)]
        rows = [(len(asked) + n, *one) for n, one in enumerate(some_keys)]
        write(shop, "asked", commit, rows)
        asked += rows

    targets, queries = ("".join(text.format(s) for s in STRATEGIES) for text in (TARGET, QUERY))
    shop.settle_here(targets + queries)
    wanted = []
    for n, *one in asked:
        title, weight = known.get(tuple(one), (None, 100))
        wanted.append((n, one[0], title if weight < 80 else None, weight if weight < 80 else None))
    assert sum(title is None for _, _, title, _ in wanted) > 100
    assert sum(title is not None for _, _, title, _ in wanted) > 500
    with Sidecar(warehouse.options) as java:
        for strategy in STRATEGIES:
            ours = sorted(tuple(row.values()) for row in shop.rows(f"got_{strategy}"))
            read = java_rows(java, f"default.got_{strategy}").to_pylist()
            theirs = sorted(tuple(row.values()) for row in read)
            assert ours == theirs == wanted, strategy


def key(dice: random.Random) -> tuple[Any, ...]:
    day = datetime.date(1969, 12, 30) + datetime.timedelta(days=dice.randrange(4))
    part = Decimal(dice.choice([0, -1, 127, 128, 10**17])).scaleb(-2)
    return dice.choice(CODES), day, part


def random_key(dice: random.Random, known: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """One that is there, one that may be, or one with a null."""
    if dice.random() < 0.8:
        return dice.choice(known)
    found = list(key(dice))
    if dice.random() < 0.5:
        found[dice.randrange(3)] = None
    return tuple(found)


def write(shop: Shop, name: str, commit: int, rows: list[tuple[Any, ...]]) -> None:
    options, identifier = shop.warehouse.options, f"default.{name}"
    schema = shop.warehouse.table(identifier).arrow_schema
    columns = [
        pa.array(values, kind)
        for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True)
    ]
    writer = TableWriter(options, identifier, "test")
    writer.write(pa.record_batch(columns, schema=schema))
    TableCommitter(options, identifier, "test").commit(commit, writer.prepare(commit))
    writer.close()
