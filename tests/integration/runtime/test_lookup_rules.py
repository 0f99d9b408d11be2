"""Which version of a dimension a running query joins: newest partition, black-out, after a kill."""

from __future__ import annotations

import pytest
from tests.integration.runtime.conftest import Dying, Shop

from streamhouse.runtime.audit.audit import audit

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE orders (order_id INT, currency INT, at AS PROCTIME()) WITH ('bucket' = '-1');
CREATE TABLE rates (
  day DATE, currency INT, rate INT, PRIMARY KEY (day, currency) NOT ENFORCED
) PARTITIONED BY (day) WITH ('bucket' = '1');
CREATE TABLE frozen (currency INT, rate INT, PRIMARY KEY (currency) NOT ENFORCED) WITH (
  'bucket' = '1', 'lookup.refresh.time-periods-blacklist' = '2000-01-01 00:00->2999-12-31 23:59');
CREATE TABLE paid (order_id INT, newest INT, older INT, fixed INT,
  PRIMARY KEY (order_id) NOT ENFORCED) WITH ('bucket' = '1');
INSERT INTO orders VALUES (1, 7), (2, 8);
INSERT INTO rates VALUES (DATE '2026-01-01', 7, 10), (DATE '2026-01-02', 7, 20);
INSERT INTO frozen VALUES (7, 1);
"""
QUERY = """
INSERT INTO paid
SELECT o.order_id, n.rate, p.rate, f.rate
FROM orders AS o
LEFT JOIN rates /*+ OPTIONS('lookup.dynamic-partition' = 'max_pt()') */
  FOR SYSTEM_TIME AS OF o.at AS n ON o.currency = n.currency
LEFT JOIN rates /*+ OPTIONS('scan.partitions' = 'day=2026-01-01') */
  FOR SYSTEM_TIME AS OF o.at AS p ON o.currency = p.currency
LEFT JOIN frozen FOR SYSTEM_TIME AS OF o.at AS f ON o.currency = f.currency;
"""
LATER = """
INSERT INTO rates VALUES (DATE '2026-01-03', 7, 30), (DATE '2026-01-03', 8, 31);
INSERT INTO frozen VALUES (7, 2), (8, 2);
"""


def paid(shop: Shop) -> list[tuple[int | None, ...]]:
    return [tuple(row.values()) for row in shop.rows("paid")]


def test_a_batch_joins_the_versions_that_it_recorded(shop: Shop, dying: Dying) -> None:
    shop.do(TABLES)
    with dying(QUERY, "batch-written:0:default.paid"):
        pass
    assert paid(shop) == []
    shop.do(LATER + "INSERT INTO orders VALUES (3, 7), (4, 8);")
    # The batch that was cut off joins what was the newest day when it was planned.
    shop.settle_here(QUERY)
    before = [(1, 20, 10, 1), (2, None, None, None)]
    assert paid(shop) == [*before, (3, 30, 10, 1), (4, 31, None, None)]
    result = audit(shop.warehouse.options, "default.paid")
    assert result.equal and result.joined_rows == 4
