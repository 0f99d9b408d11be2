"""ROW_NUMBER() = 1 as an upsert by key: allowed targets, and errors."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.errors import NotStreamedError

TABLES = """
CREATE TABLE raw_ (id BIGINT, v_date STRING, n INT, at_ TIMESTAMP(3), p AS PROCTIME());
CREATE TABLE keyed (id BIGINT, v_date STRING, n INT, at_ TIMESTAMP(3),
  PRIMARY KEY (id) NOT ENFORCED);
CREATE TABLE newest (v_date STRING, id BIGINT, n INT, at_ TIMESTAMP(3),
  PRIMARY KEY (v_date, id) NOT ENFORCED) PARTITIONED BY (v_date)
  WITH ('sequence.field' = 'at_');
CREATE TABLE oldest (v_date STRING, id BIGINT, n INT, at_ TIMESTAMP(3),
  PRIMARY KEY (v_date, id) NOT ENFORCED)
  WITH ('sequence.field' = 'at_', 'sequence.field.sort-order' = 'descending');
CREATE TABLE timed (id BIGINT, v_date STRING, n INT, at_ TIMESTAMP(3) NOT NULL);
CREATE TABLE timed_oldest (v_date STRING, id BIGINT, n INT, at_ TIMESTAMP(3) NOT NULL,
  PRIMARY KEY (v_date, id) NOT ENFORCED)
  WITH ('sequence.field' = 'at_', 'sequence.field.sort-order' = 'descending');
CREATE TABLE two (id BIGINT PRIMARY KEY NOT ENFORCED, n INT, at_ TIMESTAMP(3))
  WITH ('sequence.field' = 'at_,n');
CREATE TABLE arrives (id BIGINT PRIMARY KEY NOT ENFORCED, n INT);
CREATE TABLE by_n (n INT PRIMARY KEY NOT ENFORCED, id BIGINT);
CREATE TABLE measured (id BIGINT, t TIMESTAMP(6), d DECIMAL(10, 4), b BIGINT, f FLOAT,
  day_ DATE);
CREATE TABLE by_ms (id BIGINT PRIMARY KEY NOT ENFORCED, at_ TIMESTAMP(3))
  WITH ('sequence.field' = 'at_');
CREATE TABLE by_both (id BIGINT PRIMARY KEY NOT ENFORCED, at_ TIMESTAMP(6), ms TIMESTAMP(3))
  WITH ('sequence.field' = 'at_');
CREATE TABLE by_day (id BIGINT PRIMARY KEY NOT ENFORCED, at_ DATE) WITH ('sequence.field' = 'at_');
CREATE TABLE by_cents (id BIGINT PRIMARY KEY NOT ENFORCED, at_ DECIMAL(20, 2))
  WITH ('sequence.field' = 'at_');
CREATE TABLE by_number (id BIGINT PRIMARY KEY NOT ENFORCED, at_ DOUBLE)
  WITH ('sequence.field' = 'at_');
CREATE TABLE first_ (id BIGINT PRIMARY KEY NOT ENFORCED, n INT)
  WITH ('merge-engine' = 'first-row');
"""
ROWS = [
    {"id": 1, "v_date": "mon", "n": 5, "at_": None},
    {"id": 1, "v_date": "mon", "n": 6, "at_": None},
]


def numbered(into: str, items: str, over: str, where: str = "rn = 1", source: str = "raw_") -> str:
    return (
        f"INSERT INTO {into} SELECT {items} FROM (SELECT *, ROW_NUMBER() OVER ({over}) AS rn "
        f"FROM {source}) AS q WHERE {where}"
    )


NEWEST = ("newest", "v_date, id, n, at_", "PARTITION BY v_date, id ORDER BY at_ DESC")


@pytest.fixture
def tables(catalog: Catalog) -> Catalog:
    catalog.add(TABLES)
    return catalog


@pytest.mark.parametrize("where", ["rn = 1", "1 = q.rn", "(rn <= 1)", "rn < 2"])
def test_the_target_keeps_the_newest_row(tables: Catalog, where: str) -> None:
    text = numbered(*NEWEST, where)
    assert tables.stream(text).merging.upsert == "upsert: newest by at_ of each v_date, id"
    assert [row[:3] for row in tables.rows(text, ROWS)] == [("mon", 1, 5), ("mon", 1, 6)]


@pytest.mark.parametrize(
    "text",
    [
        numbered("oldest", NEWEST[1], "PARTITION BY v_date, id ORDER BY at_ NULLS LAST"),
        numbered("oldest", NEWEST[1], "PARTITION BY v_date, id ORDER BY at_", source="timed"),
        numbered("timed_oldest", NEWEST[1], "PARTITION BY v_date, id ORDER BY at_"),
        numbered("two", "id, n, at_", "PARTITION BY id ORDER BY at_ DESC, n DESC"),
        numbered("arrives", "id, n", "PARTITION BY id ORDER BY p DESC"),
        numbered("first_", "id, n", "PARTITION BY id ORDER BY PROCTIME()"),
        # Each key is of one row, whose changes come in order.
        numbered("arrives", "id, n", "PARTITION BY id ORDER BY at_ DESC", source="keyed"),
        "INSERT INTO two WITH q AS (SELECT r.id + 1 AS k, r.n AS m, r.at_ AS t, ROW_NUMBER() "
        "OVER (PARTITION BY r.id + 1 ORDER BY at_ DESC, r.n DESC) AS place FROM raw_ AS r "
        "WHERE r.n > 0) SELECT x.k, x.m, x.t FROM (SELECT k, m, t FROM q WHERE place = 1) AS x",
        "INSERT INTO arrives SELECT q.id, c.id FROM (SELECT id, p, ROW_NUMBER() OVER (PARTITION BY "
        "id ORDER BY p DESC) AS rn FROM raw_) AS q LEFT JOIN customers "
        "FOR SYSTEM_TIME AS OF q.p AS c ON c.id = q.id WHERE rn = 1",
    ],
)
def test_other_forms(tables: Catalog, text: str) -> None:
    assert tables.stream(text).merging.upsert.startswith("upsert: ")


def test_the_number_itself_is_one(tables: Catalog) -> None:
    text = numbered("arrives", "id, CAST(rn AS INT)", "PARTITION BY id ORDER BY p DESC")
    assert tables.rows(text, ROWS) == [(1, 1), (1, 1)]


@pytest.mark.parametrize(
    "text",
    [
        numbered(*NEWEST, "rn <= 3"),
        numbered(*NEWEST, "rn = 1 AND n > 1"),
        numbered(NEWEST[0], NEWEST[1], "ORDER BY at_ DESC"),
        numbered(NEWEST[0], NEWEST[1], "PARTITION BY id"),
        numbered(NEWEST[0], NEWEST[1], "PARTITION BY v_date, id ORDER BY at_ DESC, n"),
        numbered(NEWEST[0], NEWEST[1], "PARTITION BY id ORDER BY at_ DESC"),
        numbered(NEWEST[0], NEWEST[1], "PARTITION BY v_date, id ORDER BY at_"),
        numbered("oldest", NEWEST[1], "PARTITION BY v_date, id ORDER BY at_ DESC"),
        numbered("oldest", NEWEST[1], "PARTITION BY v_date, id ORDER BY at_"),
        numbered(*NEWEST[:2], "PARTITION BY v_date, id ORDER BY at_ DESC NULLS FIRST"),
        numbered("two", "id, n, at_", "PARTITION BY id ORDER BY at_ DESC, n DESC NULLS FIRST"),
        numbered("arrives", "id, n", "PARTITION BY id ORDER BY n DESC"),
        numbered("arrives", "id, n", "PARTITION BY id ORDER BY at_ DESC"),
        numbered("arrives", "id, n", "PARTITION BY id ORDER BY p"),
        numbered("plain", "v_date, id, CAST(n AS DOUBLE)", "PARTITION BY id ORDER BY p DESC"),
        numbered("by_n", "n, id", "PARTITION BY n ORDER BY at_ DESC", source="keyed"),
        numbered("arrives", "id, n", "PARTITION BY n ORDER BY at_ DESC", source="keyed"),
        "SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY id ORDER BY p DESC) AS r "
        "FROM raw_) WHERE r = 1",
        "INSERT INTO arrives SELECT q.id, c.id FROM (SELECT id, p, ROW_NUMBER() OVER "
        "(PARTITION BY id ORDER BY p DESC) AS rn FROM raw_) AS q JOIN customers "
        "FOR SYSTEM_TIME AS OF q.p AS c ON c.id = q.id WHERE rn = 1",
        "SELECT id FROM (SELECT id, RANK() OVER (PARTITION BY id ORDER BY p DESC) AS r "
        "FROM raw_) WHERE r = 1",
    ],
)
def test_a_view_computes_other_row_numbers(tables: Catalog, text: str) -> None:
    with pytest.raises(NotStreamedError):
        tables.stream(text)


def by(column: str, into: str) -> str:
    over = f"PARTITION BY id ORDER BY {column} DESC"
    return numbered(into, f"id, {column}", over, source="measured")


@pytest.mark.parametrize(
    ("column", "into"),
    [
        ("day_", "by_ms"),
        ("day_", "by_day"),
        ("b", "by_cents"),
        ("d", "by_number"),
        ("f", "by_number"),
    ],
)
def test_an_order_that_the_target_keeps(tables: Catalog, column: str, into: str) -> None:
    assert tables.stream(by(column, into)).merging.upsert


@pytest.mark.parametrize(
    ("column", "into"),
    [
        ("t", "by_ms"),
        ("t", "by_day"),
        ("d", "by_cents"),
        ("f", "by_cents"),
        ("b", "by_number"),
    ],
)
def test_an_order_that_would_lose_digits(tables: Catalog, column: str, into: str) -> None:
    with pytest.raises(NotStreamedError, match="sequence.field"):
        tables.stream(by(column, into))


def test_a_column_outside_the_order_may_have_fewer_digits(tables: Catalog) -> None:
    over = "PARTITION BY id ORDER BY t DESC"
    assert tables.stream(numbered("by_both", "id, t, t", over, source="measured")).merging.upsert


def test_an_order_through_a_subquery_that_would_lose_digits(tables: Catalog) -> None:
    text = (
        "INSERT INTO by_ms SELECT id, u FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER "
        "BY u DESC) AS rn FROM (SELECT id, t AS u FROM measured) AS w) AS q WHERE rn = 1"
    )
    with pytest.raises(NotStreamedError, match="sequence.field"):
        tables.stream(text)
