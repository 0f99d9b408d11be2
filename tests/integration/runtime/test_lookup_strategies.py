"""Lookup strategies in running queries: a replayed batch joins the same rows after a kill."""

from __future__ import annotations

import pytest
from tests.integration.runtime.conftest import Dying, Shop
from tests.integration.runtime.test_lookup import lookup

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.audit.audit import audit

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE orders (order_id INT, member INT, city INT, at AS PROCTIME()) WITH ('bucket' = '-1');
CREATE TABLE members (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '4');
CREATE TABLE cities (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('bucket' = '2', 'lookup.cache' = 'partial');
CREATE TABLE joined (order_id INT, member STRING, city STRING) WITH ('bucket' = '-1');
INSERT INTO members VALUES (1, 'Ann'), (2, 'Bob');
INSERT INTO cities VALUES (7, 'Oslo');
INSERT INTO orders VALUES (1, 1, 7), (2, 2, 8), (3, 3, 7), (4, NULL, 7);
"""
QUERY = """
INSERT INTO joined SELECT /*+ LOOKUP('table'='m', 'strategy'='{strategy}') */
  o.order_id, m.name, c.name
FROM orders AS o
JOIN members FOR SYSTEM_TIME AS OF o.at AS m ON o.member = m.id
LEFT JOIN cities FOR SYSTEM_TIME AS OF o.at AS c ON o.city = c.id;
"""
LATER = """
INSERT INTO members VALUES (1, 'Eve'), (3, 'Cid');
INSERT INTO cities VALUES (8, 'Rome');
"""
PATIENT = f"""
CREATE TABLE patient (order_id INT, name STRING, PRIMARY KEY (order_id) NOT ENFORCED)
  WITH ('bucket' = '1');
INSERT INTO patient SELECT /*+ {lookup("m", 10_000)[:-1]}, 'strategy'='partial') */
  o.order_id, m.name
FROM orders AS o JOIN members FOR SYSTEM_TIME AS OF o.at AS m ON o.member = m.id
WHERE o.order_id < 4;
"""


@pytest.mark.parametrize(
    ("strategy", "step"),
    [
        ("partial", "target-committed"),
        # The same of whole tables is in test_lookup_rules.
        pytest.param("full", "batch-written", marks=pytest.mark.soak),
    ],
)
def test_a_batch_runs_again_with_the_dimensions_of_then(
    shop: Shop, dying: Dying, strategy: str, step: str
) -> None:
    query = QUERY.format(strategy=strategy)
    shop.do(TABLES)
    with dying(query, f"{step}:0:default.joined"):
        pass
    shop.do(LATER + "INSERT INTO orders VALUES (5, 1, 8), (6, 3, 9);")
    shop.settle_here(query)
    before = [(1, "Ann", "Oslo"), (2, "Bob", None)]
    rows = [tuple(row.values()) for row in shop.rows("joined")]
    assert rows == [*before, (5, "Eve", "Rome"), (6, "Cid", None)]
    assert audit(shop.warehouse.options, "default.joined").equal


def test_a_row_that_waits_finds_its_partner_by_its_key(shop: Shop) -> None:
    """The miss that was remembered is forgotten with the snapshot that brings the row."""
    shop.do(TABLES)

    def names() -> list[str | None]:
        if not shop.warehouse.exists("default", "patient"):
            return []
        return [row["name"] for row in shop.rows("patient")]

    with shop.running_here(PATIENT) as until:
        until(lambda: names() == ["Ann", "Bob"])
        shop.do(LATER)
        until(lambda: names() == ["Ann", "Bob", "Cid"])


def test_explain_shows_the_strategy_and_why(shop: Shop) -> None:
    shop.do(TABLES)
    output = shop.printed(f"EXPLAIN {QUERY.format(strategy='partial').strip()}")
    assert "strategy: partial by primary key (set by hint)" in output
    assert "partial by primary key (set by 'lookup.cache' = 'PARTIAL')" in output
    other = QUERY.format(strategy="partial").replace("o.member =", "CAST(o.member AS DOUBLE) =")
    problem = "strategy 'partial' needs the whole primary key: id is compared as another type"
    with pytest.raises(StreamhouseError, match=f"hint LOOKUP: {problem}"):
        shop.printed(other)
