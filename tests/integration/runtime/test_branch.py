"""Continuous queries that write a branch and follow one."""

from __future__ import annotations

import pytest
from pypaimon import CatalogFactory
from tests.integration.runtime.conftest import Shop

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE sums (k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1',
  'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum');
CREATE TABLE items (k INT, n BIGINT);
CREATE TABLE copy (k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1');
INSERT INTO items VALUES (1, 10), (2, 20), (1, 5);
INSERT INTO sums VALUES (1, 100);
"""
QUERIES = """
INSERT INTO sums$branch_b SELECT k, SUM(n) FROM items GROUP BY k;
INSERT INTO copy SELECT k, n FROM items$branch_b WHERE n > 0;
"""


def test_a_branch_is_written_and_followed_without_the_table(shop: Shop) -> None:
    shop.do(TABLES)
    catalog = CatalogFactory.create({"warehouse": str(shop.path)})
    for name in ("sums", "items"):
        table = catalog.get_table(f"default.{name}")
        table.create_tag("start", 1)
        table.branch_manager().create_branch("b", "start")
    branch = [{"k": 1, "n": 115}, {"k": 2, "n": 20}]

    def copied() -> set[int]:
        return {row["k"] for row in shop.rows("copy")}

    with shop.running_here(QUERIES) as until:
        until(lambda: shop.rows("sums$branch_b") == branch and copied() == {1, 2})
        assert shop.rows("sums") == [{"k": 1, "n": 100}]
        shop.do("INSERT INTO items$branch_b VALUES (3, 3)")
        until(lambda: copied() == {1, 2, 3})
    assert shop.rows("sums$branch_b") == branch
    assert len(shop.rows("items")) == 3
