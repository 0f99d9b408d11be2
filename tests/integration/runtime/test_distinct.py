"""COUNT(DISTINCT) per month: right under updates and after kills, for Java and for the audit."""

from __future__ import annotations

from tests.integration.runtime.conftest import Dying, Shop

import streamhouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.failpoint import DISTINCT_STEP

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY NOT ENFORCED, v_month STRING, member INT,
  kind STRING, amount BIGINT) WITH ('bucket' = '2');
CREATE TABLE IF NOT EXISTS member_month (v_month STRING PRIMARY KEY NOT ENFORCED,
  members BIGINT, new_members BIGINT, amount BIGINT) WITH ('bucket' = '1',
  'merge-engine' = 'aggregation', 'fields.default-aggregate-function' = 'sum');
"""
PIPELINE = f"""{TABLES} INSERT INTO member_month
SELECT v_month, COUNT(DISTINCT member), COUNT(DISTINCT CASE WHEN kind = 'new' THEN member END),
  SUM(amount) FROM orders WHERE kind <> 'void' GROUP BY v_month;"""


def check(shop: Shop, expected: dict[str, tuple[int, int, int]]) -> None:
    found = {row.pop("v_month"): tuple(row.values()) for row in shop.rows("member_month")}
    assert {month: counts for month, counts in found.items() if any(counts)} == expected


def test_members_are_counted_once_after_any_fault(shop: Shop, dying: Dying) -> None:
    options = shop.warehouse.options
    change = streamhouse.execute
    change(options, TABLES)
    change(options, "INSERT INTO orders VALUES (1, 'jan', 1, 'new', 5), (2, 'jan', 1, 'old', 7)")
    change(options, "INSERT INTO orders VALUES (3, 'jan', 2, 'new', 1), (4, 'feb', 1, 'old', 2)")
    with dying(PIPELINE, "target-committed:0"):
        pass
    check(shop, {"jan": (2, 2, 13), "feb": (1, 0, 2)})
    assert shop.rows("member_month__distinct") == []
    # A member's only order of a month goes, another moves, a third becomes a new one.
    change(options, "DELETE FROM orders WHERE id = 3")
    change(options, "UPDATE orders SET v_month = 'feb', member = 3 WHERE id = 1")
    change(options, "INSERT INTO orders VALUES (4, 'feb', 1, 'new', 3), (5, 'feb', 1, 'void', 9)")
    with dying(PIPELINE, f"{DISTINCT_STEP}:1"):
        pass
    check(shop, {"jan": (1, 0, 7), "feb": (2, 2, 8)})
    change(options, "DELETE FROM orders WHERE id = 2")
    change(options, "INSERT INTO orders VALUES (5, 'feb', 4, 'old', 9)")
    shop.settle_here(PIPELINE)
    check(shop, {"feb": (3, 2, 17)})
    values = {
        (row["v_month"], row["_column"], row["_value"]): row["_count"]
        for row in shop.rows("member_month__distinct")
        if row["_count"]
    }
    assert values == {
        ("feb", "members", "1"): 1, ("feb", "members", "3"): 1, ("feb", "members", "4"): 1,
        ("feb", "new_members", "1"): 1, ("feb", "new_members", "3"): 1,
    }  # fmt: skip
    proved = audit(options, "default.member_month")
    assert proved.equal and proved.batches >= 3 and proved.from_snapshot == 0
    with Sidecar(options) as java:
        rows = java.read("default.member_month").to_pylist()
    assert sorted(rows, key=str) == sorted(shop.rows("member_month"), key=str)
