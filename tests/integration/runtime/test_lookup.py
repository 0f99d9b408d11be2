"""Lookup joins with retries: which rows wait, for how long, and where unmatched rows go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.runtime.conftest import Shop, Until

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE orders (
  order_id INT, customer_id INT, item STRING, at AS PROCTIME()
) WITH ('bucket' = '-1');
CREATE TABLE customers (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TABLE prices (
  customer_id INT, item STRING, price INT, PRIMARY KEY (customer_id, item) NOT ENFORCED
) WITH ('bucket' = '1');
CREATE TABLE patient (order_id INT, name STRING, PRIMARY KEY (order_id) NOT ENFORCED)
  WITH ('bucket' = '1');
CREATE TABLE hasty (order_id INT, name STRING, PRIMARY KEY (order_id) NOT ENFORCED)
  WITH ('bucket' = '1');
CREATE TABLE priced (order_id INT, name STRING, price INT, PRIMARY KEY (order_id) NOT ENFORCED)
  WITH ('bucket' = '1');
INSERT INTO customers VALUES (1, 'Ann');
INSERT INTO prices VALUES (1, 'tea', 3), (2, 'tea', 4);
INSERT INTO orders VALUES (1, 1, 'tea'), (2, 2, 'tea'), (3, 1, 'rum');
"""


def lookup(table: str, attempts: int) -> str:
    return (
        f"LOOKUP('table'='{table}', 'retry-predicate'='lookup_miss', "
        f"'retry-strategy'='fixed_delay', 'fixed-delay'='300ms', 'max-attempts'='{attempts}')"
    )


QUERIES = f"""
INSERT INTO patient SELECT /*+ {lookup("c", 10_000)} */ o.order_id, c.name
FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.at AS c ON o.customer_id = c.id;

INSERT INTO hasty SELECT /*+ {lookup("c", 2)} */ o.order_id, c.name
FROM orders AS o LEFT JOIN customers FOR SYSTEM_TIME AS OF o.at AS c ON o.customer_id = c.id;

INSERT INTO priced SELECT /*+ {lookup("p", 2)} */ o.order_id, c.name, p.price
FROM orders AS o
LEFT JOIN customers FOR SYSTEM_TIME AS OF o.at AS c ON o.customer_id = c.id
JOIN prices FOR SYSTEM_TIME AS OF o.at AS p ON o.customer_id = p.customer_id AND o.item = p.item;
"""


def test_rows_wait_join_late_or_stay_unmatched(shop: Shop) -> None:
    shop.do(TABLES)
    with shop.running_here(QUERIES) as until:
        wait_and_join(shop, until)


def wait_and_join(shop: Shop, wait: Until) -> None:
    def until(expected: dict[str, Any]) -> None:
        """Wait for tables to have these rows, each a tuple in the order of the columns."""
        for table, rows in expected.items():
            wait(has(shop, table, rows))

    until(
        {
            "patient": [(1, "Ann"), (3, "Ann")],
            "hasty": [(1, "Ann"), (2, None), (3, "Ann")],
            "priced": [(1, "Ann", 3), (2, None, 4)],
            "hasty__pending": [],
            "priced__pending": [],
        }
    )
    # These are committed after the targets.
    wait(lambda: [row["order_id"] for row in shop.rows("patient__pending")] == [2])
    wait(lambda: len(shop.rows("priced__unmatched")) == 1)
    (unmatched,) = shop.rows("priced__unmatched")
    assert (unmatched["order_id"], unmatched["item"], unmatched["_attempts"]) == (3, "rum", 2)
    assert shop.rows("hasty__unmatched") == []
    # No order comes; the one that waits starts the batch. What has been decided stays.
    shop.do("INSERT INTO customers VALUES (2, 'Ben'), (1, 'Bea');")
    until({"patient": [(1, "Ann"), (2, "Ben"), (3, "Ann")], "patient__pending": []})
    shop.do("INSERT INTO orders VALUES (4, 1, 'tea');")
    until(
        {
            "patient": [(1, "Ann"), (2, "Ben"), (3, "Ann"), (4, "Bea")],
            "hasty": [(1, "Ann"), (2, None), (3, "Ann"), (4, "Bea")],
            "priced": [(1, "Ann", 3), (2, None, 4), (4, "Bea", 3)],
        }
    )


def has(shop: Shop, table: str, rows: list[tuple[Any, ...]]) -> Callable[[], bool]:
    def look() -> bool:
        if not shop.warehouse.exists("default", table):
            return False
        return [tuple(row.values()) for row in shop.rows(table)] == rows

    return look
