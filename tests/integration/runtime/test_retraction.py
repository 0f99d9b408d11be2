"""Scores over orders that are corrected, moved and cancelled, across kills; audited."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import Any

import pytest
from tests.integration.runtime.conftest import Dying, Shop
from tests.java_reads import java_rows

import streamhouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.runtime.audit.audit import audit

pytestmark = pytest.mark.usefixtures("in_threads")

SCORE = """
CREATE TABLE IF NOT EXISTS {name} (
  v_date STRING, agent_id INT, score DECIMAL(20, 4), update_time TIMESTAMP(3){more},
  PRIMARY KEY (v_date, agent_id) NOT ENFORCED
) PARTITIONED BY (v_date) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', {counted}
  'fields.score.aggregate-function' = 'sum',
  'fields.update_time.aggregate-function' = 'last_non_null_value');
"""
TABLES = (
    """
CREATE TABLE IF NOT EXISTS orders (
  v_date STRING, id BIGINT, agent_id INT, score DECIMAL(20, 4), status STRING,
  update_time TIMESTAMP(3), PRIMARY KEY (v_date, id) NOT ENFORCED
) PARTITIONED BY (v_date) WITH ('bucket' = '2', 'sequence.field' = 'update_time');
"""
    + SCORE.format(
        name="by_group",
        more=", orders BIGINT",
        counted="'fields.orders.aggregate-function' = 'sum',",
    )
    + SCORE.format(name="by_sign", more="", counted="")
)
ORDERS = "orders /*+ OPTIONS('scan.mode' = 'from-snapshot', 'scan.snapshot-id' = '1') */"
QUERIES = f"""
CREATE VIEW IF NOT EXISTS live AS SELECT * FROM orders WHERE status <> 'cancelled';
INSERT INTO by_group (v_date, agent_id, score, update_time, orders)
SELECT v_date, agent_id, SUM(CASE WHEN id > 3 THEN score * 2 ELSE score END),
  LAST_VALUE(update_time), COUNT(*)
FROM {ORDERS} WHERE status <> 'cancelled' GROUP BY v_date, agent_id;
INSERT INTO by_sign SELECT v_date, agent_id, score, update_time
FROM live /*+ OPTIONS('scan.mode' = 'from-snapshot', 'scan.snapshot-id' = '1') */;
"""
FIRST = (
    "INSERT INTO orders VALUES ('mon', 1, 7, 10, 'new', TIMESTAMP '2026-01-05 10:00:00'),"
    " ('mon', 2, 7, 20, 'new', TIMESTAMP '2026-01-05 10:01:00'),"
    " ('mon', 3, 8, 30, 'new', TIMESTAMP '2026-01-05 10:02:00'),"
    " ('tue', 4, 8, 40.5, 'new', TIMESTAMP '2026-01-06 10:02:00'),"
    " ('tue', 5, 9, NULL, 'new', TIMESTAMP '2026-01-06 10:03:00')",
    # Corrected; moved to another agent; out of order, which changes nothing.
    "INSERT INTO orders VALUES ('mon', 1, 7, 11, 'new', TIMESTAMP '2026-01-05 11:00:00'),"
    " ('mon', 2, 8, 20, 'new', TIMESTAMP '2026-01-05 11:01:00'),"
    " ('mon', 3, 9, 99, 'new', TIMESTAMP '2026-01-05 09:00:00')",
)
SECOND = (
    # Cancelled, which leaves the filter; deleted; back in the filter.
    "UPDATE orders SET status = 'cancelled', update_time = TIMESTAMP '2026-01-06 12:00:00' "
    "WHERE id IN (3, 4)",
    "DELETE FROM orders WHERE id = 5",
    "UPDATE orders SET status = 'new', agent_id = 9, update_time = TIMESTAMP '2026-01-06 13:00:00' "
    "WHERE id = 4",
)


def check(shop: Shop) -> None:
    """The tables are what a look at the orders that are left says; groups without rows are zero."""
    sums: dict[Any, list[Any]] = defaultdict(lambda: [Decimal(0), Decimal(0), 0])
    for row in shop.rows("orders"):
        if row["status"] != "cancelled":
            so_far = sums[row["v_date"], row["agent_id"]]
            score = row["score"] or 0
            so_far[0] += score
            so_far[1] += score * (2 if row["id"] > 3 else 1)
            so_far[2] += 1
    for table in ("by_group", "by_sign"):
        rows = shop.rows(table)
        found = {(row["v_date"], row["agent_id"]): row for row in rows}
        assert set(sums) <= set(found)
        for key, row in found.items():
            plain, doubled, count = sums[key]
            assert (row["score"] or 0) == (doubled if table == "by_group" else plain), (table, key)
            assert row.get("orders", count) == count
            assert row["update_time"] is not None
        proven = audit(shop.warehouse.options, f"default.{table}")
        assert (proven.differences, proven.rows) == ((), len(rows))


def test_scores_follow_their_orders(shop: Shop, dying: Dying) -> None:
    options = shop.warehouse.options
    streamhouse.execute(options, TABLES)
    for statement in FIRST:
        streamhouse.execute(options, statement)
    with dying(TABLES + QUERIES, "target-committed:0:default.by_sign"):
        pass
    for statement in SECOND:
        streamhouse.execute(options, statement)
    shop.settle_here(TABLES + QUERIES)
    check(shop)
    with Sidecar(options) as java:
        for table in ("by_group", "by_sign"):
            assert java_rows(java, f"default.{table}").num_rows == len(shop.rows(table))
            java.compact(f"default.{table}", full=True)
    check(shop)
