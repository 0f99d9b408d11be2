"""Unsupported continuous queries: errors with positions and alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamhouse.errors import NotStreamedError, SqlError, UnsupportedSqlError

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

JOIN = "JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.customer_id = c.id"
UNSUPPORTED = [
    (
        "SELECT o.price FROM orders o JOIN customers FOR SYSTEM_TIME AS OF o.order_time AS c "
        "ON o.customer_id = c.id",
        67,
        "'o.order_time' is not a processing-time column",
    ),
    (
        "SELECT o.price FROM orders o JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c "
        "ON o.customer_id > c.id",
        87,
        "ON needs an equality",
    ),
]
NOT_STREAMED = [
    (
        "SELECT o.price FROM orders o JOIN customers c ON o.customer_id = c.id",
        "a join of two streams",
    ),
    (
        "SELECT price FROM orders, customers",
        "a join of two streams",
    ),
    (
        "SELECT o.price FROM orders o RIGHT " + JOIN,
        "RIGHT JOIN",
    ),
    (
        "SELECT price FROM orders UNION SELECT price FROM orders",
        "UNION without ALL",
    ),
    (
        "SELECT DISTINCT price FROM orders",
        "DISTINCT",
    ),
    (
        "SELECT price FROM orders ORDER BY price",
        "ORDER BY",
    ),
    (
        "SELECT price FROM orders LIMIT 3",
        "LIMIT",
    ),
    (
        "SELECT ROW_NUMBER() OVER (ORDER BY price) FROM orders",
        "a window function",
    ),
    (
        "SELECT price FROM orders WHERE customer_id IN (SELECT id FROM customers)",
        "a subquery",
    ),
    (
        "SELECT SUM(price) FROM orders",
        "an aggregation whose target has no 'merge-engine'",
    ),
    (
        "SELECT n FROM (SELECT COUNT(*) AS n FROM orders) AS q",
        "an aggregation in a subquery",
    ),
    (
        "INSERT INTO plain SELECT 'a', COUNT(*), SUM(price) FROM orders",
        "an aggregation whose target has no 'merge-engine' = 'aggregation'",
    ),
    (
        "INSERT INTO country_sales SELECT 'a', customer_id, SUM(price) FROM orders "
        "GROUP BY customer_id",
        "a GROUP BY that is not the primary key of its target, country",
    ),
    (
        "INSERT INTO country_sales SELECT c.country, COUNT(*), MAX(o.price) FROM orders o "
        + JOIN
        + " GROUP BY c.country",
        "column 'revenue' merges by sum, not by max",
    ),
    (
        "INSERT INTO country_sales SELECT c.country, COUNT(*), AVG(o.price) FROM orders o "
        + JOIN
        + " GROUP BY c.country",
        "column 'revenue' merges by sum, which does not compute its expression",
    ),
    (
        "VALUES (1)",
        "VALUES",
    ),
    (
        "SELECT 1",
        "a SELECT without FROM",
    ),
]
WRONG = [
    ("SELECT contry FROM customers", 8, "there is no column 'contry'; did you mean 'country'?"),
    ("SELECT o.prise FROM orders o", 8, "'o' has no column 'prise'; did you mean 'price'?"),
    (
        "SELECT o.price FROM orders o WHERE p.price > 1",
        36,
        "there is no table or alias 'p'; known: o",
    ),
    ("SELECT price FROM oders", 19, "there is no table 'oders'; did you mean 'orders'?"),
    (
        "SELECT country FROM orders o "
        + JOIN
        + " JOIN rates FOR SYSTEM_TIME AS OF o.proc_time AS r "
        "ON c.country = r.country",
        8,
        "column 'country' is ambiguous; write c.country or r.country",
    ),
    (
        "SELECT /*+ LOOKUP('table'='d') */ o.price FROM orders o " + JOIN,
        12,
        "hint LOOKUP: no lookup join has the table 'd'; known: c",
    ),
    (
        "SELECT /*+ LOOKUP('table'='c', 'fixed-dely'='1s') */ o.price FROM orders o " + JOIN,
        32,
        "hint LOOKUP: unknown option 'fixed-dely'; did you mean 'fixed-delay'?",
    ),
    (
        "SELECT /*+ LOOKUP('table'='c', 'fixed-delay'='1s') */ o.price FROM orders o " + JOIN,
        12,
        "hint LOOKUP: option 'fixed-delay' needs 'retry-predicate'",
    ),
    (
        "SELECT /*+ LOKUP('table'='c') */ o.price FROM orders o " + JOIN,
        12,
        "unknown hint LOKUP; did you mean LOOKUP?",
    ),
    (
        "SELECT /*+ OPTIONS('a'='b') */ price FROM orders",
        12,
        "hint OPTIONS is not allowed after SELECT",
    ),
    (
        "INSERT INTO plain SELECT 'a', price, 1 FROM orders",
        31,
        "column 'orders' is BIGINT, but the query returns DOUBLE; write CAST(… AS BIGINT)",
    ),
    ("INSERT INTO plain SELECT 'a', 1 FROM orders", 26, "the query returns 2 column(s)"),
    (
        "INSERT INTO orders (proc_time) SELECT order_time FROM orders",
        39,
        "table default.orders: 'proc_time' is computed and cannot be written",
    ),
    ("SELECT price AS _row FROM orders", 8, "'_row' is a reserved name"),
    ("SELECT price FROM orders WHERE SUM(price) > 1", 32, "an aggregate is not allowed in WHERE"),
]


@pytest.mark.parametrize(("text", "column", "message"), UNSUPPORTED)
def test_unsupported(catalog: Catalog, text: str, column: int, message: str) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        catalog.stream("\n" + text)
    assert caught.value.message.startswith(message)
    assert (caught.value.line, caught.value.column) == (2, column)


@pytest.mark.parametrize(("text", "reason"), NOT_STREAMED)
def test_not_streamed(catalog: Catalog, text: str, reason: str) -> None:
    with pytest.raises(NotStreamedError) as caught:
        catalog.stream(text)
    assert caught.value.message.startswith(reason)


@pytest.mark.parametrize(("text", "column", "message"), WRONG)
def test_wrong(catalog: Catalog, text: str, column: int, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        catalog.stream("\n" + text)
    assert not isinstance(caught.value, UnsupportedSqlError)
    assert caught.value.message.startswith(message)
    assert (caught.value.line, caught.value.column) == (2, column)


def test_the_error_shows_the_whole_line(catalog: Catalog) -> None:
    with pytest.raises(SqlError) as caught:
        catalog.stream("INSERT INTO plain SELECT 'a', 1, prise FROM orders")
    assert str(caught.value) == (
        "line 1, column 34: there is no column 'prise'; did you mean 'price'?\n"
        "  INSERT INTO plain SELECT 'a', 1, prise FROM orders\n"
        "                                   ^^^^^"
    )
