"""The merge job of the revenue view, while orders stream in: nothing lost, nothing twice."""

from __future__ import annotations

import signal

import pytest
from tests.integration.runtime import revenue
from tests.integration.runtime.conftest import Shop

import streamhouse
from streamhouse.paimon.sidecar import Sidecar
from streamhouse.runtime.audit import audit

VIEW = "default.country_sales"
MERGE = """
MERGE INTO country_sales AS v USING (SELECT DISTINCT country FROM customers) AS c
ON v.country = c.country
WHEN MATCHED AND v.country = 'Chile' THEN UPDATE SET revenue = 0
WHEN NOT MATCHED THEN INSERT VALUES (c.country, 0, 0)
WHEN NOT MATCHED BY SOURCE THEN DELETE
"""
SANTA = "INSERT INTO customers VALUES (11, 'Santa', 'North Pole'), (4, 'c4', 'Norway')"


@pytest.mark.timeout(240)
def test_merge_beside_a_stream(shop: Shop) -> None:
    options = shop.warehouse.options
    shop.settle(revenue.TABLES + revenue.CUSTOMERS)
    run = shop.start(revenue.whole(rows=1_000_000, rate=2_000))

    def orders(country: str) -> int:
        rows = shop.rows("country_sales")
        return sum(row["orders"] for row in rows if row["country"] == country)

    run.until(lambda: orders("Kenya") > 100 and orders("Peru") > 100)
    streamhouse.execute(options, SANTA)
    # Kenya's last customer has moved; orders that are on their way may still be Kenya's.
    done = streamhouse.execute(options, MERGE)
    assert (done.inserted, done.updated, done.deleted) == (1, 1, 1)
    before = orders("Peru")
    assert streamhouse.execute(options, "DELETE FROM country_sales WHERE country = 'Peru'").deleted
    run.until(lambda: 0 < orders("Peru"))
    run.signal(signal.SIGTERM)
    ended = run.wait()
    assert ended.code == 0, ended.err

    result = audit(options, VIEW)
    assert result.differences == ()
    assert result.foreign_snapshots == 2 and result.batches > 5
    view = {row["country"]: row["orders"] for row in shop.rows("country_sales")}
    assert view["North Pole"] == 0
    assert before > 100 and 0 < view["Peru"]
    with Sidecar(options) as java:
        assert sorted(java.read(VIEW).to_pylist(), key=str) == sorted(
            shop.rows("country_sales"), key=str
        )
        java.compact(VIEW, full=True)
        rows = {row["country"]: row["orders"] for row in java.read(VIEW).to_pylist()}
    assert rows == view
    assert audit(options, VIEW).equal
