"""The keys that a chunk looks for in each dimension, and the hints that choose a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streamhouse.errors import SqlError

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

ORDERS: list[dict[str, Any]] = [
    {"order_id": 1, "customer_id": 1, "price": 10.0},
    {"order_id": 2, "customer_id": 2, "price": 20.0},
    {"order_id": 3, "customer_id": 2, "price": 30.0},
    {"order_id": 4, "customer_id": None, "price": 40.0},
    {"order_id": 5, "customer_id": 9, "price": 50.0},
]
CUSTOMERS: list[dict[str, Any]] = [
    {"id": 1, "name": "Ann", "country": "France"},
    {"id": 2, "name": "Bob", "country": "Peru"},
]
JOIN = "JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.customer_id = c.id"
RATES = "JOIN rates FOR SYSTEM_TIME AS OF o.proc_time AS r ON c.country = r.country"


def test_keys_come_once_and_never_null(catalog: Catalog) -> None:
    text = f"SELECT o.order_id, c.name FROM orders AS o LEFT {JOIN}"
    assert catalog.stream(text).lookups[0].key_columns == ("id",)
    assert catalog.keys(text, 0, ORDERS) == [(1,), (2,), (9,)]


def test_rows_that_a_filter_of_the_source_leaves_out_look_for_nothing(catalog: Catalog) -> None:
    text = f"SELECT o.order_id FROM orders AS o {JOIN} WHERE o.price > 25 AND c.name <> 'x'"
    assert catalog.keys(text, 0, ORDERS) == [(2,), (9,)]


def test_a_lookup_by_the_result_of_the_previous_lookup(catalog: Catalog) -> None:
    text = f"SELECT o.order_id, r.rate FROM orders AS o LEFT {JOIN} LEFT {RATES}"
    assert catalog.keys(text, 1, ORDERS, CUSTOMERS) == [("France",), ("Peru",)]


def test_expressions_and_levels(catalog: Catalog) -> None:
    text = (
        "SELECT o.n, c.name FROM (SELECT order_id AS n, customer_id + 1 AS k, PROCTIME() AS t "
        "FROM orders WHERE price < 45) AS o JOIN customers FOR SYSTEM_TIME AS OF o.t AS c "
        "ON c.id = o.k * 2 AND c.country = UPPER('peru') AND c.zip > 'a'"
    )
    assert catalog.stream(text).lookups[0].key_columns == ("id", "country")
    assert catalog.keys(text, 0, ORDERS) == [(4, "PERU"), (6, "PERU")]


@pytest.mark.parametrize(
    ("side", "columns", "found"),
    [
        # A number too great for the key's type cannot be there; others are the key's own.
        ("o.order_id * 1000000000", ("id",), [(1_000_000_000,), (2_000_000_000,)]),
        ("CAST(o.customer_id AS DECIMAL(12, 1))", ("id",), [(1,), (2,), (9,)]),
        # Equality of these is not that of whole numbers.
        ("o.price", (), None),
    ],
)
def test_only_equality_of_the_keys_own_kind_counts(
    catalog: Catalog, side: str, columns: tuple[str, ...], found: list[tuple[int]] | None
) -> None:
    text = (
        "SELECT o.order_id FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c "
        f"ON {side} = c.id"
    )
    assert catalog.stream(text).lookups[0].key_columns == columns
    assert catalog.keys(text, 0, ORDERS) == found


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        ("'strategy'='Partial'", "partial"),
        ("'strategy'='bucket', 'shuffle'='true'", "bucket"),
        ("'shuffle'='true'", "shuffle"),
        ("'shuffle'='false'", None),
        ("'async'='true'", None),
    ],
)
def test_a_hint_asks_for_a_strategy(catalog: Catalog, options: str, strategy: str | None) -> None:
    text = f"SELECT /*+ LOOKUP('table'='c', {options}) */ o.order_id FROM orders AS o {JOIN}"
    assert catalog.stream(text).lookups[0].strategy == strategy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("'strategy'='hash'", "'hash' is not one of full, partial, bucket"),
        ("'strategy'='full', 'shuffle'='true'", "'shuffle' = 'true' requires strategy 'bucket'"),
    ],
)
def test_a_wrong_strategy_is_an_error_with_its_place(
    catalog: Catalog, options: str, message: str
) -> None:
    text = f"SELECT /*+ LOOKUP('table'='c', {options}) */ o.order_id FROM orders AS o {JOIN}"
    with pytest.raises(SqlError, match=f"line 1, column 12: hint LOOKUP: .*{message}"):
        catalog.stream(text)


def test_row_keys_unless_a_key_depends_on_another_lookup(catalog: Catalog) -> None:
    text = f"SELECT o.order_id, r.rate FROM orders AS o LEFT {JOIN} LEFT {RATES} WHERE o.price > 15"
    first, second = catalog.stream(text).lookups
    assert first.row_keys_sql is not None and second.row_keys_sql is None
    assert "dim_" not in first.row_keys_sql
    inner = f"SELECT o.order_id AS n, o.proc_time AS t FROM orders AS o {JOIN}"
    outer = (
        f"SELECT n FROM ({inner}) AS s JOIN customers FOR SYSTEM_TIME AS OF s.t AS d ON s.n = d.id"
    )
    for lookup in catalog.stream(outer).lookups:
        assert lookup.row_keys_sql is not None and "dim_" not in lookup.row_keys_sql
