"""Views that Spark refreshes in stages, in a pipeline."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.runtime.conftest import Shop
from tests.integration.runtime.test_views import REVENUE, TABLES, rows

PAIRS = "SELECT a.id, b.id AS other, a.price FROM orders AS a JOIN orders AS b ON a.price = b.price"
PER_PRICE = "SELECT price, COUNT(*), COUNT(DISTINCT customer_id) FROM orders GROUP BY price"
SCRIPT = f"""SET 'view.parallel-rows' = '1';
SET 'parallelism.default' = '3';
{TABLES}
CREATE TABLE IF NOT EXISTS pairs (id INT, other INT, price DECIMAL(10, 2));
CREATE MATERIALIZED VIEW revenue AS {REVENUE};
CREATE MATERIALIZED VIEW per_price (price, orders, customers) AS {PER_PRICE};
INSERT INTO pairs {PAIRS};
"""


def test_spark_shuffles_rows_between_stages(shop: Shop) -> None:
    orders = ", ".join(f"({n}, {n % 7}, {n % 11})" for n in range(300))
    customers = ", ".join(f"({n}, 'c{n % 3}')" for n in range(7))
    shop.do(
        TABLES + f"INSERT INTO orders VALUES {orders}; INSERT INTO customers VALUES {customers}"
    )
    shop.run(
        SCRIPT, "--until-caught-up", STREAMHOUSE_FAILPOINT="target-committed:0:default.revenue"
    )
    shop.settle(SCRIPT)
    check(shop)
    assert tasks(shop, "default.revenue") == [3] and tasks(shop, "default.pairs") == [3]
    shop.do("INSERT INTO orders SELECT id + 1000, customer_id, price + 1 FROM orders")
    shop.settle(SCRIPT)
    check(shop)
    assert tasks(shop, "default.per_price") == [3, 3]
    assert tasks(shop, "default.pairs") == [3, None], "a table without a key gets what is added"


def tasks(shop: Shop, query: str) -> list[Any]:
    """By how many tasks each batch of a query was staged."""
    folders = shop.path.glob(f".checkpoints/*/{query}/offsets")
    logs = [path for folder in folders for path in folder.iterdir() if path.name.isdigit()]
    offsets = [json.loads(path.read_text().splitlines()[-1]) for path in logs]
    return [each.get("staged") for each in sorted(offsets, key=lambda each: each["batch"])]


def check(shop: Shop) -> None:
    for table, query in (("revenue", REVENUE), ("per_price", PER_PRICE), ("pairs", PAIRS)):
        assert rows(shop, f"SELECT * FROM {table}") == rows(shop, query), table
