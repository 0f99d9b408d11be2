"""Trees of operators: both forms of each operator, its keys and what it emits are right."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from pyarrow import Table
from tests.unit.operators.random_trees import (
    TreeGenerator,
    analyzed,
    bag,
    random_rows,
    run,
)

from streamhouse.operators.operator import Emits, Operator, walk
from streamhouse.operators.query_block import QueryBlock
from streamhouse.sql.plan import BoundedQuery

_QUERIES = 12


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 200))]
)
def test_both_forms_of_random_trees(seed: int) -> None:
    """The rows of a tree are those of its query, also by its change, and it keeps its claims."""
    rng = random.Random(seed)
    for number in range(_QUERIES):
        query = TreeGenerator(seed * _QUERIES + number).query()
        # A scalar subquery may find several rows with equal ids.
        growing = rng.random() < 0.3 and "SELECT c.name" not in query
        plan, tree = analyzed(query, growing)
        before = random_rows(rng)
        after = random_rows(rng, before)
        if growing:
            before = {name: [*rows, *rows[:2]] for name, rows in before.items()}
            after = {name: rows + before[name] for name, rows in after.items()}
        expected, results = run(plan, tree, before, after)
        assert bag(results["new"][-1]) == bag(expected), query
        for operator, *tables in zip(walk(tree), *results.values(), strict=True):
            _check_change(operator, tables, query)
            _check_claims(operator, tables[3], query)


def _check_change(operator: Operator, tables: list[Table], query: str) -> None:
    old, delta, new, whole, negative = tables
    context = f"{operator.describe()}\n{query}"
    assert not negative.num_rows, context
    assert bag(new) == bag(whole), context
    if operator.emits is Emits.INSERTS:
        assert not bag(old) - bag(new), context
    if operator.emits is Emits.NOTHING:
        assert not delta.num_rows, context


def _check_claims(operator: Operator, result: Table, query: str) -> None:
    assert tuple(result.column_names) == operator.columns
    for name in operator.not_null:
        assert result.column(name).null_count == 0, f"{operator.describe()}: {name}\n{query}"
    for key in operator.keys:
        rows = bag(result.select(sorted(key))) if key else Counter({"all": result.num_rows})
        assert max(rows.values(), default=0) <= 1, f"{operator.describe()}: {key}\n{query}"


def test_nearly_all_queries_have_delta_forms() -> None:
    trees = [analyzed(TreeGenerator(seed).query())[1] for seed in range(24)]
    blocks = [tree for tree in trees if any(isinstance(each, QueryBlock) for each in walk(tree))]
    recomputed = [tree for tree in trees if any(each.recomputed for each in walk(tree))]
    assert len(blocks) <= 2 and len(recomputed) <= 8


def _tree(query: str, growing: bool = False) -> tuple[BoundedQuery, Operator]:
    return analyzed(query, growing)


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        # 0.0 and -0.0 are two keys, and equal.
        ("SELECT k, v FROM reals", []),
        ("SELECT o.id, r.v FROM orders o LEFT JOIN reals r ON o.rate = r.k", []),
        # Two BIGINT equal one DOUBLE.
        ("SELECT o.id, c.name FROM orders o JOIN customers c ON o.rate = c.id", []),
        # A cast that rounds makes keys alike.
        ("SELECT CAST(k AS BIGINT) AS k FROM (SELECT price AS k FROM orders GROUP BY price)", []),
        ("SELECT CAST(id AS BIGINT) AS id FROM orders", [["id"]]),
        # Two rows if the counts differ.
        (
            "SELECT a.n, b.n AS m FROM (SELECT COUNT(*) AS n FROM orders) a FULL JOIN "
            "(SELECT COUNT(*) AS n FROM visits) b ON a.n = b.n",
            [],
        ),
        ("SELECT o.id, v.page FROM orders o, visits v WHERE o.customer_id = v.customer_id", []),
        ("SELECT o.id, c.name FROM orders o, customers c WHERE o.customer_id = c.id", [["id"]]),
        ("SELECT product, id FROM orders ORDER BY id LIMIT 1", [[], ["id"]]),
        ("SELECT id FROM orders EXCEPT ALL SELECT customer_id FROM visits", [["id"]]),
        ("SELECT CAST(id AS BIGINT) AS id, 1 AS one FROM orders EXCEPT SELECT k, 1 FROM reals",
         [["id", "one"]]),
        ("SELECT DISTINCT product, (SELECT 1 FROM visits WHERE page = o.page) AS p FROM "
         "(SELECT product, product AS page FROM orders) o", [["p", "product"]]),
    ],
)  # fmt: skip
def test_unique_keys(query: str, keys: list[list[str]]) -> None:
    assert sorted(map(sorted, _tree(query)[1].keys)) == keys


@pytest.mark.parametrize(
    ("query", "emits"),
    [
        ("SELECT o.id, v.page FROM orders o JOIN visits v ON o.id = v.customer_id", Emits.INSERTS),
        ("SELECT DISTINCT product FROM orders UNION SELECT page FROM visits", Emits.INSERTS),
        ("SELECT id FROM orders WHERE id IN (SELECT customer_id FROM visits)", Emits.INSERTS),
        ("SELECT id FROM orders WHERE id NOT IN (SELECT customer_id FROM visits)", Emits.CHANGES),
        ("SELECT o.id FROM orders o LEFT JOIN visits v ON o.id = v.customer_id", Emits.CHANGES),
        ("SELECT COUNT(*) AS n FROM orders", Emits.CHANGES),
        ("SELECT id FROM orders WHERE at_ < NOW()", Emits.CHANGES),
        ("SELECT id FROM orders ORDER BY id LIMIT 3", Emits.CHANGES),
        ("SELECT id FROM orders EXCEPT SELECT customer_id FROM visits", Emits.CHANGES),
        ("SELECT a FROM (VALUES (1), (2)) AS t (a)", Emits.NOTHING),
    ],
)
def test_what_a_query_over_growing_tables_emits(query: str, emits: Emits) -> None:
    assert _tree(query, growing=True)[1].emits is emits


@pytest.mark.parametrize(
    "query",
    [
        "SELECT product, COUNT(*) AS n FROM {} GROUP BY product",
        "SELECT o.product, c.name FROM {} LEFT JOIN customers c ON c.id = o.customer_id",
        "SELECT o.id, (SELECT COUNT(*) FROM visits v WHERE v.seconds = o.amount) AS n FROM {}",
        "SELECT o.id, x.n FROM {} CROSS JOIN LATERAL (SELECT COUNT(*) AS n FROM visits v WHERE "
        "v.seconds = o.amount) x",
    ],
)
def test_a_time_that_nothing_reads(query: str) -> None:
    orders = "(SELECT *, PROCTIME() AS passed FROM orders) o"
    read = query.format(orders).replace("SELECT ", "SELECT MAX(o.passed) OVER () AS p, ", 1)
    assert not any(each.timed for each in walk(_tree(query.format(orders))[1]))
    if "GROUP BY" not in query:
        assert any(each.timed for each in walk(_tree(read)[1]))
