"""Tables are altered while a pipeline uses them: it continues, or its error says why not."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.integration.runtime.conftest import Shop, Until

from streamhouse import execute
from streamhouse.errors import StreamhouseError
from streamhouse.runtime.streaming.query import QueryFailed

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE orders (
  order_id INT, customer_id INT, item STRING, price INT, at AS PROCTIME()
) WITH ('bucket' = '-1');
CREATE TABLE customers (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('bucket' = '1', 'changelog-producer' = 'input');
CREATE TABLE sold (order_id INT, name STRING, item STRING, price INT,
  PRIMARY KEY (order_id) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TABLE totals (name STRING, price INT, PRIMARY KEY (name) NOT ENFORCED) WITH
  ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.price.aggregate-function' = 'sum');
CREATE TABLE people (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
INSERT INTO customers VALUES (1, 'Ann'), (2, 'Ben');
INSERT INTO orders VALUES (1, 1, 'tea', 3);
"""
JOIN = """FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.at AS c
ON o.customer_id = c.id"""
RETRY = (
    "/*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', "
    "'fixed-delay'='200ms', 'max-attempts'='10000') */"
)
QUERIES = f"""
INSERT INTO sold SELECT {RETRY} o.order_id, c.name, o.item, o.price {JOIN};
INSERT INTO totals SELECT c.name, SUM(o.price) {JOIN} GROUP BY c.name;
INSERT INTO people SELECT id, name FROM customers;
"""


def rows(shop: Shop, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in shop.rows(table)]


def until(shop: Shop, wait: Until, **expected: list[tuple[Any, ...]]) -> None:
    """Wait for tables to have these rows."""
    for table, wanted in expected.items():
        try:
            wait(partial(_has, shop, table, wanted))
        except AssertionError as error:
            raise AssertionError(f"{table} is {rows(shop, table)}: {error}") from None


def _has(shop: Shop, table: str, wanted: list[tuple[Any, ...]]) -> bool:
    return rows(shop, table) == wanted


def alter(shop: Shop, *statements: str) -> None:
    execute(shop.warehouse, ";".join(f"ALTER TABLE {statement}" for statement in statements))


def insert(shop: Shop, text: str) -> None:
    execute(shop.warehouse, f"INSERT INTO {text}")


def test_a_pipeline_continues_while_its_tables_change(shop: Shop) -> None:
    shop.do(TABLES)
    with shop.running_here(QUERIES) as wait:
        until(
            shop,
            wait,
            sold=[(1, "Ann", "tea", 3)],
            totals=[("Ann", 3)],
            people=[(1, "Ann"), (2, "Ben")],
        )
        # An order waits, with the columns of before, for a customer who comes after the changes.
        insert(shop, "orders VALUES (2, 3, 'rum', 5)")
        wait(lambda: len(shop.rows("sold__pending")) == 1)
        alter(
            shop,
            "orders ADD (note STRING FIRST, item2 INT)",
            "customers ADD zip STRING AFTER id",
            "sold ADD (first STRING FIRST, last INT)",
            "totals ADD extra INT",
            "people ADD (city STRING AFTER id)",
        )
        insert(
            shop, "orders (order_id, customer_id, item, price, note) VALUES (3, 2, 'tea', 4, 'x')"
        )
        until(
            shop, wait,
            sold=[(None, 1, "Ann", "tea", 3, None), (None, 3, "Ben", "tea", 4, None)],
            totals=[("Ann", 3, None), ("Ben", 4, None)],
        )  # fmt: skip
        insert(shop, "customers (id, name, zip) VALUES (2, 'Bob', '0001')")
        until(shop, wait, people=[(1, None, "Ann"), (2, None, "Bob")])
        alter(
            shop,
            "orders RENAME item TO thing",
            "orders RENAME item2 TO item",
            "orders MODIFY price BIGINT",
            "customers RENAME name TO full_name",
            "sold RENAME price TO amount",
            "sold MODIFY amount BIGINT",
            "sold DROP (first, last)",
            "totals RENAME price TO amount",
            "totals RENAME name TO who",
            "people RENAME name TO who",
        )
        insert(shop, "customers (id, full_name, zip) VALUES (3, 'Cat', '0002'), (1, 'Ada', NULL)")
        insert(
            shop, "orders (order_id, customer_id, thing, price, item) VALUES (4, 1, 'ale', 6, 9)"
        )
        until(
            shop, wait,
            sold=[(1, "Ann", "tea", 3), (2, "Cat", "rum", 5), (3, "Ben", "tea", 4),
                  (4, "Ada", "ale", 6)],
            totals=[("Ada", 6, None), ("Ann", 3, None), ("Ben", 4, None)],
            people=[(1, None, "Ada"), (2, None, "Bob"), (3, None, "Cat")],
        )  # fmt: skip
        insert(
            shop, "orders (order_id, customer_id, thing, price, item) VALUES (5, 4, 'gin', 7, 9)"
        )
        wait(lambda: len(shop.rows("sold__pending")) == 1)
        renamed = "no column 'name'; in table default.customers it was renamed to 'full_name'"
        with pytest.raises(StreamhouseError, match=renamed):
            shop.printed(QUERIES)
        ends_at_a_dropped_column(shop, wait)
    # With the names of now it goes on; the row that waits has come over to them.
    insert(shop, "customers (id, full_name) VALUES (4, 'Dan')")
    changed = QUERIES.replace("c.name", "c.full_name").replace("o.item, ", "")
    changed = changed.replace("INTO totals", "INTO totals (who, amount)")
    shop.settle_here(changed.replace("SELECT id, name", "SELECT id, NULL, full_name"))
    assert rows(shop, "sold")[4:] == [(5, "Dan", 7), (6, "Bob", 8)]
    # Whether the sums knew Dan when his order came is all the same.
    assert [row for row in rows(shop, "totals") if row[0] != "Dan"] == [
        ("Ada", 6, None), ("Ann", 3, None), ("Ben", 4, None), ("Bob", 8, None)
    ]  # fmt: skip
    assert rows(shop, "sold__pending") == []
    names = shop.warehouse.table("default.sold__pending").arrow_schema.names
    assert sorted(names[4:]) == ["customer_id", "item", "note", "order_id", "price", "thing"]


def ends_at_a_dropped_column(shop: Shop, wait: Until) -> None:
    """A column that the query writes goes; the script has to be changed."""
    alter(shop, "sold DROP item")
    insert(shop, "orders (order_id, customer_id, thing, price, item) VALUES (6, 2, 'rye', 8, 9)")
    message = "column 'item' of table default.sold, which the query writes, has been dropped"
    with pytest.raises(QueryFailed, match=message):
        wait(lambda: False)
