"""INSERTs and streaming SELECTs that no stream computes: a view keeps the result for any sink."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.integration.runtime.conftest import CollectedOutput, Shop
from tests.integration.runtime.test_views import rows

from streamhouse.errors import TableError, UnsupportedSqlError

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT, customer_id INT, price DECIMAL(10, 2));
CREATE TABLE IF NOT EXISTS regions (customer_id INT, region STRING);
CREATE TABLE IF NOT EXISTS customers (id INT PRIMARY KEY NOT ENFORCED, country STRING)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS listed (id INT, region STRING);
CREATE TABLE IF NOT EXISTS totals (country STRING PRIMARY KEY NOT ENFORCED, total DECIMAL(20, 2))
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.total.aggregate-function' = 'sum');
"""
LISTED = "SELECT o.id, r.region FROM orders o JOIN regions r ON o.customer_id = r.customer_id"
PRICES = "SELECT c.country, o.price FROM orders o JOIN customers c ON o.customer_id = c.id"
TOTALS = f"SELECT country, SUM(price) FROM ({PRICES}) GROUP BY country"
CHANGES = (
    "INSERT INTO orders VALUES (1, 1, 10), (2, 2, 20), (2, 2, 20); INSERT INTO regions VALUES "
    "(1, 'north'), (1, 'all'), (2, 'all'); INSERT INTO customers VALUES (1, 'DE'), (2, 'FR')",
    "UPDATE customers SET country = 'IT' WHERE id = 1; INSERT INTO regions VALUES (2, 'south')",
    "INSERT INTO orders VALUES (3, 1, 5), (1, 1, 10); DELETE FROM customers WHERE id = 2",
    "INSERT INTO customers VALUES (2, 'DE'); INSERT INTO regions VALUES (1, 'north')",
)
POINTS = (
    "target-committed:0:default.listed__view_shop_sql",
    "batch-written:0:default.listed",
    "target-committed:0:default.files$filesystem",
    "batch-written:0:default.totals__view_shop_sql",
)


def script(folder: Path) -> str:
    return f"""{TABLES}
CREATE TEMPORARY TABLE files (id INT, region STRING) WITH ('connector' = 'filesystem',
  'path' = '{folder}/files', 'format' = 'json');
INSERT INTO listed {LISTED};
INSERT INTO files {LISTED};
INSERT INTO totals {PRICES};
"""


def in_files(folder: Path) -> list[tuple[Any, ...]]:
    lines = [
        line for path in (folder / "files").glob("[!._]*") for line in path.read_text().splitlines()
    ]
    return sorted((tuple(json.loads(line).values()) for line in lines), key=repr)


@pytest.mark.parametrize("first", [2, pytest.param(0, marks=pytest.mark.soak)])
def test_sinks_have_the_result_once_across_failures(shop: Shop, first: int) -> None:
    shop.do(";".join((TABLES, *CHANGES[:first])))
    for change, point in zip(CHANGES[first:], POINTS[first:], strict=True):
        shop.do(change)
        with shop.failing_here(script(shop.folder), point):
            pass
        shop.settle_here(script(shop.folder))
        expected = rows(shop, LISTED)
        assert rows(shop, "SELECT * FROM listed") == expected, point
        assert in_files(shop.folder) == expected, point
        totals = [row for row in rows(shop, "SELECT * FROM totals") if row[1]]
        assert totals == rows(shop, TOTALS), point


def test_a_streaming_select_prints_the_changes_of_any_select(shop: Shop) -> None:
    shop.do(TABLES + CHANGES[0])
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


def test_what_cannot_be_written_is_refused_at_declaration(shop: Shop) -> None:
    shop.do(TABLES)
    with pytest.raises(UnsupportedSqlError, match="table default.customers has updates"):
        shop.settle_here(f"{TABLES} INSERT INTO listed (region) SELECT country FROM ({PRICES});")
    with pytest.raises(UnsupportedSqlError, match="no primary key.*COUNT changes when rows"):
        shop.settle_here(f"{TABLES} INSERT INTO listed (id) SELECT COUNT(*) FROM orders;")
    assert "totals__view" not in str(shop.warehouse.tables("default"))


def test_two_pipelines_do_not_keep_one_table(shop: Shop) -> None:
    kept = (
        "CREATE TABLE IF NOT EXISTS kept (id INT PRIMARY KEY NOT ENFORCED, price DECIMAL(10, 2));"
    )
    insert = f"{TABLES}{kept} INSERT INTO kept SELECT id, MAX(price) FROM orders GROUP BY id;"
    shop.settle_here(insert)
    with pytest.raises(TableError, match="result of an INSERT of pipeline 'shop.sql'"):
        shop.settle_here(insert, name="other.sql")
    shop.settle_here(insert)
