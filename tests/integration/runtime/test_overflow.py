"""Sums that exceed their type are errors, however their rows arrive."""

from __future__ import annotations

import pytest
from tests.integration.runtime.conftest import Shop

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.runtime.streaming.query import QueryFailed

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE src (k INT, v INT);
CREATE TABLE sums (k INT PRIMARY KEY NOT ENFORCED, v INT, d DECIMAL(5, 2)) WITH (
  'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum',
  'fields.d.aggregate-function' = 'sum', 'bucket' = '2');
INSERT INTO src VALUES (1, 2147483647), (2, 999);
"""
SCRIPT = """
INSERT INTO sums SELECT k, SUM(v), SUM(CAST(v % 1000 AS DECIMAL(5, 2))) FROM src GROUP BY k;
"""


def kept(shop: Shop) -> dict[int, tuple[int, str]]:
    return {row["k"]: (row["v"], str(row["d"])) for row in shop.rows("sums")}


def test_a_sum_grows_from_batch_to_batch(shop: Shop) -> None:
    shop.do(TABLES)
    shop.settle_here(SCRIPT)
    before = kept(shop)
    shop.do("INSERT INTO src VALUES (1, 1)")
    message = "column 'v' would be 2,147,483,648 where k = 1, which exceeds INT"
    refused(shop, message)
    assert kept(shop) == before
    # The same once the files that held the sum have been compacted.
    with Sidecar(shop.warehouse.options) as java:
        java.compact("default.sums", full=True)
    refused(shop, message)
    assert kept(shop) == before
    shop.do("ALTER TABLE sums MODIFY v BIGINT")
    shop.settle_here(SCRIPT)
    assert kept(shop) == {1: (2**31, "648.00"), 2: (999, "999.00")}
    shop.do("INSERT INTO src VALUES (2, 1)")
    refused(shop, "column 'd' would be 1,000.00 where k = 2, which exceeds DECIMAL(5, 2)")
    shop.do("ALTER TABLE sums MODIFY d DECIMAL(6, 2)")
    shop.settle_here(SCRIPT)
    assert kept(shop)[2] == (1000, "1000.00")


def refused(shop: Shop, message: str) -> None:
    with pytest.raises(QueryFailed) as failed:
        shop.settle_here(SCRIPT)
    assert message in str(failed.value) and "MODIFY" in str(failed.value)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO sums VALUES (1, 1, 0)",
        "INSERT INTO sums VALUES (3, 2147483647, 0), (3, 1, 0)",
        "INSERT INTO sums SELECT k, v, 0 FROM src",
        "INSERT INTO sums VALUES (2, 0, 0.99), (2, 0, 0.01)",
        "INSERT OVERWRITE sums VALUES (3, 2147483647, 0), (3, 1, 0)",
        "MERGE INTO sums AS t USING src AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET d = d + 1",
    ],
)
def test_a_statement_changes_all_or_nothing(shop: Shop, statement: str) -> None:
    shop.do(TABLES)
    shop.settle_here(SCRIPT)
    before = kept(shop)
    with pytest.raises(StreamhouseError, match="exceeds|out of range|Out of Range|does not fit"):
        shop.do(statement)
    assert kept(shop) == before
