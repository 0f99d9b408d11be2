"""Random trees computed in stages by three partitions have the rows of their query."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.operators.random_trees import (
    START,
    Rows,
    TreeGenerator,
    analyzed,
    bag,
    random_rows,
    table_of,
)
from tests.unit.operators.test_incremental_execution import result_of

from streamhouse.duckdb_engine import Batches, opened
from streamhouse.operators.operator import walk
from streamhouse.operators.trees.stages import StagedTree
from streamhouse.sql.plan import BoundedQuery

_QUERIES, _COUNT = 8, 3


def staged_rows(
    plan: BoundedQuery, tree: StagedTree, rows: Rows, now: int | None = None, count: int = _COUNT
) -> list[pa.Table]:
    """The rows of the result by partition."""
    blocks: dict[int, dict[int, list[pa.Table]]] = defaultdict(lambda: defaultdict(list))
    results = []
    for level, index in product(range(tree.last + 1), range(count)):

        def share(scan: Any, index: int = index) -> Any:
            table = table_of(scan.table, rows).select(list(scan.columns))
            own = table.take(pa.array(range(index, table.num_rows, count), pa.int64()))
            return table.schema, lambda: iter(own.to_batches())

        stages = [each for each in tree.of_level(level) if not (each.single and index)]
        received = {each.relation: each.number for stage in stages for each in stage.received}
        more = {name: _stream(blocks[index][number]) for name, number in received.items()}
        with opened(plan, share, threads=1, now_ms=now, more=more) as connection:
            for stage in stages:
                if stage is tree.result:
                    results.append(connection.sql(stage.computed).to_arrow_table())
                    continue
                for partition, table in stage.sent(connection, count):
                    blocks[partition][stage.number].append(table)
    return results


def _stream(tables: list[pa.Table]) -> tuple[pa.Schema, Batches]:
    return tables[0].schema, lambda: (batch for each in tables for batch in each.to_batches())


def check(query: str, rows: Rows, now: int | None = None) -> StagedTree | None:
    """Assert that the stages of a query give its rows; returns them, unless order matters."""
    plan, root = analyzed(query)
    if any(each.ordered for each in walk(root)):
        return None
    tree = StagedTree(root)
    found: Counter[Any] = Counter()
    for table in staged_rows(plan, tree, rows, now):
        found += bag(table)
    expected = result_of(plan, rows, now)
    context = f"{query}: {[each.describe() for each in tree.stages]} "
    assert found == expected, f"{context}missing {expected - found}\nextra {found - expected}"
    return tree


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 300))]
)
def test_random_trees(seed: int) -> None:
    for number in range(_QUERIES):
        rng = random.Random(seed * _QUERIES + number)
        generator = TreeGenerator(seed * _QUERIES + number)
        check(generator.query(), random_rows(rng))
    now = int(START.replace(tzinfo=UTC).timestamp() * 1000) + 3500
    check(generator.timed(), random_rows(rng), now)


_EQUAL = (
    # Of other types, of which equal values are joined, and numbers that are equal and differ.
    "SELECT a.id, b.id AS b FROM orders a JOIN orders b ON a.amount = b.rate",
    "SELECT a.id, b.id AS b FROM orders a FULL JOIN orders b ON a.rate = b.price",
    "SELECT a.id FROM orders a WHERE a.rate NOT IN (SELECT amount FROM orders)",
    "SELECT CAST(a.amount AS BIGINT) AS a, b.id FROM orders a LEFT JOIN customers b ON "
    "CAST(a.amount AS BIGINT) = b.id",
    "SELECT rate, COUNT(*) AS n FROM orders GROUP BY rate",
    "SELECT a.rate, a.n, b.id FROM (SELECT rate, COUNT(*) AS n FROM orders GROUP BY rate) a "
    "LEFT JOIN orders b ON a.rate = b.rate",
    "SELECT r, COUNT(*) AS n FROM (SELECT rate, CAST(rate AS STRING) AS r FROM orders GROUP BY "
    "rate) GROUP BY r",
    "SELECT rate, COUNT(*) AS n FROM (SELECT CAST(rate AS STRING) AS s, rate FROM orders GROUP BY "
    "CAST(rate AS STRING), rate) GROUP BY rate",
    "SELECT tags, COUNT(*) AS n, MAX(id) AS m FROM orders GROUP BY tags",
    "SELECT amount, price, COUNT(*) AS n FROM orders GROUP BY amount, price",
    "SELECT amount FROM orders EXCEPT SELECT CAST(seconds AS DOUBLE) FROM visits",
    "SELECT CAST(amount AS BIGINT) AS x FROM orders INTERSECT ALL SELECT seconds FROM visits",
    "SELECT DISTINCT rate, product FROM orders",
    "SELECT a.id, b.page FROM orders a JOIN visits b ON a.product = b.page AND a.amount = "
    "b.seconds",
    "SELECT a.id FROM orders a JOIN visits b ON a.amount IS NOT DISTINCT FROM b.seconds",
    # Rows that are divided already.
    "SELECT p, MAX(n) AS m FROM (SELECT product AS p, amount, COUNT(*) AS n FROM orders GROUP BY "
    "product, amount) GROUP BY p",
    "SELECT o.id, c.name, v.page FROM orders o JOIN customers c ON o.amount = c.id JOIN visits v "
    "ON v.customer_id = c.id",
    "SELECT o.id, c.name, v.n FROM orders o LEFT JOIN customers c ON o.amount = c.id LEFT JOIN "
    "(SELECT customer_id, COUNT(*) AS n FROM visits GROUP BY customer_id) v ON v.customer_id = "
    "c.id",
    "SELECT c.id, COUNT(*) AS n FROM orders o FULL JOIN customers c ON o.amount = c.id GROUP BY "
    "c.id",
    "SELECT o.amount, COUNT(*) AS n FROM orders o FULL JOIN customers c ON o.amount = c.id "
    "GROUP BY "
    "o.amount",
    # What one partition has, beside and below what all have.
    "SELECT product, COUNT(*) AS n FROM orders GROUP BY product HAVING COUNT(*) > (SELECT AVG("
    "seconds) FROM visits)",
    "SELECT id FROM orders UNION ALL SELECT COUNT(*) FROM visits UNION ALL SELECT 7",
    "SELECT product, SUM(id) AS s FROM (SELECT product, id FROM orders UNION ALL SELECT 'pen', 1) "
    "GROUP BY product",
    "SELECT COUNT(*) AS n FROM (SELECT DISTINCT product FROM orders)",
    "SELECT a.id, b.n FROM orders a CROSS JOIN (SELECT COUNT(*) AS n FROM visits) b",
    "SELECT b.n, a.id FROM (SELECT COUNT(*) AS n FROM visits) b LEFT JOIN orders a ON a.amount "
    "= b.n",
    "SELECT a.id, b.n FROM orders a FULL JOIN (SELECT COUNT(*) AS n FROM visits) b ON a.id = b.n",
    "SELECT id FROM (SELECT id, product FROM orders ORDER BY id LIMIT 5) GROUP BY id",
    # Stages that several others read.
    "WITH g AS (SELECT product, COUNT(*) AS n FROM orders GROUP BY product) SELECT a.product, b.n "
    "FROM g a JOIN g b ON a.n = b.n",
    "WITH g AS (SELECT product, COUNT(*) AS n FROM orders GROUP BY product) SELECT a.product, b.n, "
    "(SELECT MAX(n) FROM g) AS m FROM g a JOIN g b ON a.n = b.n WHERE a.product IN (SELECT page "
    "FROM visits UNION SELECT product FROM g)",
)


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 40), marks=pytest.mark.soak)])
@pytest.mark.parametrize("query", _EQUAL)
def test_a_query(query: str, seeds: range) -> None:
    for seed in seeds:
        check(query, random_rows(random.Random(seed)))


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        # Rows that are joined by a key are grouped by it, and by more, where they are.
        (
            "SELECT o.amount, c.name, COUNT(*) AS n FROM orders o JOIN customers c ON o.amount "
            "= c.id "
            "GROUP BY o.amount, c.name",
            ["o.amount", "c.id"],
        ),
        ("SELECT CAST(p AS STRING) AS p, MAX(n) AS m FROM (SELECT product AS p, amount, "
         "COUNT(*) AS n "
         "FROM orders GROUP BY product, amount) GROUP BY p", ["product, amount", "p"]),
        ("SELECT COUNT(*) AS n FROM orders", ["one task"]),
        ("SELECT id FROM orders WHERE id > (SELECT MIN(id) FROM orders)", ["one task", "all "
         "tasks"]),
        ("SELECT id FROM orders", []),
        ("SELECT o.id FROM orders o FULL JOIN customers c ON o.amount < c.id", ["one task"] * 2),
    ],
)  # fmt: skip
def test_what_is_sent(query: str, sent: list[str]) -> None:
    tree = StagedTree(analyzed(query)[1])
    found = [each.describe().rpartition(" by ")[2].rpartition(" to ")[2] for each in tree.stages]
    assert found[:-1] == sent
    assert tree.is_parallel is (sent != ["one task"] * len(sent) or not sent)


def test_nearly_all_queries_are_parallel() -> None:
    trees = [StagedTree(analyzed(TreeGenerator(seed).query())[1]) for seed in range(40)]
    assert sum(tree.is_parallel for tree in trees) >= 34
