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
