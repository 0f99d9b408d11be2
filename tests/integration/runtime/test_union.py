"""UNION ALL and ROW_NUMBER() = 1 in a running pipeline, across a kill; audited."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.runtime.conftest import Dying, Shop

import streamhouse
from streamhouse.runtime.audit.audit import audit

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE IF NOT EXISTS web (id INT PRIMARY KEY NOT ENFORCED, state STRING, n INT)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS shop (id INT, state STRING, n INT) WITH ('bucket' = '-1');
CREATE TABLE IF NOT EXISTS both_ (id INT PRIMARY KEY NOT ENFORCED, list STRING, n INT)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS newest (id INT PRIMARY KEY NOT ENFORCED, state STRING, n INT)
  WITH ('bucket' = '1', 'sequence.field' = 'n');
CREATE TABLE IF NOT EXISTS totals (state STRING PRIMARY KEY NOT ENFORCED, rows_ BIGINT, n BIGINT)
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation',
  'fields.rows_.aggregate-function' = 'sum', 'fields.n.aggregate-function' = 'sum');
CREATE VIEW IF NOT EXISTS everything AS
  SELECT id, state, n FROM web UNION ALL SELECT id + 100, state, n FROM shop;
"""
QUERIES = """
INSERT INTO both_ SELECT id, 'open', n FROM web WHERE state = 'open'
  UNION ALL SELECT id, 'shut', -n FROM web WHERE state = 'shut';
INSERT INTO totals SELECT state, COUNT(*), SUM(n) FROM everything GROUP BY state;
INSERT INTO newest SELECT id, state, n FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY n DESC) AS rn FROM shop) AS s WHERE rn = 1;
"""
FIRST = (
    "INSERT INTO web VALUES (1, 'open', 5), (2, 'open', 6), (3, 'gone', 7); "
    "INSERT INTO shop VALUES (1, 'open', 9), (1, 'shut', 4), (2, 'shut', 1);"
)
SECOND = (
    "UPDATE web SET state = 'shut' WHERE id = 1; UPDATE web SET state = 'gone' WHERE id = 2; "
    "UPDATE web SET state = 'open', n = 8 WHERE id = 3; DELETE FROM web WHERE id = 3; "
    "UPDATE web SET state = 'open' WHERE id = 1; UPDATE web SET state = 'shut' WHERE id = 1; "
    "INSERT INTO shop VALUES (2, 'open', 3), (1, 'late', 2);"
)


def test_united_streams(shop: Shop, dying: Dying) -> None:
    streamhouse.execute(shop.warehouse.options, TABLES + FIRST)
    # Which of the queries is killed, and how far the others are then, is all the same.
    with dying(TABLES + QUERIES, "batch-written:0:default.totals"):
        pass
    streamhouse.execute(shop.warehouse.options, SECOND)
    shop.settle_here(TABLES + QUERIES)

    def found(table: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in shop.rows(table)]

    assert found("both_") == [(1, "shut", -5)]
    assert found("newest") == [(1, "open", 9), (2, "open", 3)]
    assert {row[0]: row[1:] for row in found("totals") if row[1]} == {
        "open": (2, 12), "shut": (3, 10), "gone": (1, 6), "late": (1, 2)
    }  # fmt: skip
    names = {path.name for path in (shop.path / ".checkpoints" / "shop.sql").iterdir()}
    assert names == {
        "default.both_", "default.newest", "default.totals", "default.totals+default.shop"
    }  # fmt: skip
    for table in ("both_", "newest", "totals"):
        proven = audit(shop.warehouse.options, f"default.{table}")
        assert (proven.differences, proven.rows) == ((), len(found(table)))
