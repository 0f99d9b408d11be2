"""A streaming SELECT that no stream computes prints the changes of a view of its result."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.integration.runtime.conftest import CollectedOutput, Shop

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE orders (id INT, customer_id INT, price DECIMAL(10, 2));
CREATE TABLE customers (id INT PRIMARY KEY NOT ENFORCED, country STRING) WITH ('bucket' = '1');
INSERT INTO orders VALUES (1, 1, 10), (2, 2, 20), (2, 2, 20);
INSERT INTO customers VALUES (1, 'DE'), (2, 'FR');
"""


def test_a_streaming_select_prints_the_changes_of_any_select(shop: Shop) -> None:
    shop.do(TABLES)
    printed = CollectedOutput()
    query = (
        "CREATE TEMPORARY TABLE numbers (n INT) WITH ('connector' = 'datagen', "
        "'number-of-rows' = '9', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', "
        "'fields.n.end' = '9'); SELECT c.country, AVG(o.price) AS price, MAX(n) AS n FROM orders o "
        "LEFT JOIN customers c ON o.customer_id = c.id, numbers GROUP BY c.country;"
    )

    def seen() -> Counter[str]:
        found: Counter[str] = Counter()
        for line in list(printed.lines):
            if line.startswith("{"):
                change = eval(line, {"Decimal": float})
                sign = 1 if change["rowkind"] in ("+I", "+U") else -1
                found[f"{change['country']} {change['price']:g} {change['n']}"] += sign
        return +found

    with shop.running_here(query, printed=printed) as until:
        until(lambda: seen() == {"DE 10 9": 1, "FR 20 9": 1})
        shop.do("UPDATE customers SET country = 'FR'; INSERT INTO orders VALUES (9, 9, 7)")
        until(lambda: seen() == {"FR 16.6667 9": 1, "None 7 9": 1})
    tables = shop.warehouse.tables("default")
    assert not [name for name in tables if "view" in name or "numbers" in name]
