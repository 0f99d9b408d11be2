"""A pipeline over a table without a changelog: sums stay right while its rows change."""

from __future__ import annotations

import pytest
from tests.integration.runtime.conftest import Shop

import streamhouse
from streamhouse.paimon.java.sidecar import Sidecar

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE IF NOT EXISTS prices (item INT PRIMARY KEY NOT ENFORCED, kind STRING, price BIGINT)
  WITH ('bucket' = '2');
CREATE TABLE IF NOT EXISTS totals (kind STRING PRIMARY KEY NOT ENFORCED, price BIGINT)
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.price.aggregate-function' = 'sum');
"""
FROM_THE_FIRST = "/*+ OPTIONS('scan.mode'='from-snapshot', 'scan.snapshot-id'='1') */"
PIPELINE = f"{TABLES} INSERT INTO totals SELECT kind, price FROM prices {FROM_THE_FIRST};"


def totals(shop: Shop) -> dict[str, int]:
    return {row["kind"]: row["price"] for row in shop.rows("totals") if row["price"]}


def test_sums_over_a_table_without_changelog_follow_its_updates(shop: Shop) -> None:
    options = shop.warehouse.options
    streamhouse.execute(options, TABLES)
    streamhouse.execute(options, "INSERT INTO prices VALUES (1, 'a', 5), (2, 'a', 7), (3, 'b', 1)")
    # Upserts, a row that moves to another sum, a compaction, a delete and an overwrite.
    streamhouse.execute(options, "INSERT INTO prices VALUES (1, 'a', 50), (2, 'b', 7)")
    streamhouse.execute(options, "INSERT INTO prices VALUES (1, 'a', 51), (4, 'c', 4)")
    with Sidecar(options) as java:
        java.compact("default.prices", full=True)
    streamhouse.execute(options, "DELETE FROM prices WHERE item = 3")
    streamhouse.execute(options, "INSERT OVERWRITE prices VALUES (1, 'a', 51), (9, 'd', 9)")
    shop.settle_here(PIPELINE)
    assert totals(shop) == {"a": 51, "d": 9}
