"""Bounded queries, executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.expressions.binder import BindError, describe

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

CUSTOMERS: list[dict[str, Any]] = [
    {"id": 1, "name": "Ann", "country": "France"},
    {"id": 2, "name": "Bob", "country": "Peru"},
    {"id": 3, "name": "Eve", "country": None},
]
ORDERS: list[dict[str, Any]] = [
    {"order_id": n, "customer_id": n % 3, "price": float(n)} for n in range(6)
]


def test_join_group_order(catalog: Catalog) -> None:
    text = (
        "SELECT c.country, COUNT(*) AS n, SUM(o.price) AS total, AVG(o.customer_id) AS a "
        "FROM orders AS o JOIN customers AS c ON o.customer_id = c.id "
        "GROUP BY c.country HAVING COUNT(*) > 1 ORDER BY total DESC LIMIT 5"
    )
    assert catalog.query(text, ORDERS, CUSTOMERS) == [("Peru", 2, 7.0, 2), ("France", 2, 5.0, 1)]
    scans = catalog.bounded(text).scans
    assert [scan.columns for scan in scans] == [("customer_id", "price"), ("id", "country")]


def test_lookup_join_reads_the_dimension_as_it_is(catalog: Catalog) -> None:
    text = (
        "SELECT /*+ LOOKUP('table'='c') */ o.order_id, c.name FROM orders AS o LEFT JOIN customers "
        "FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.customer_id = c.id ORDER BY 1 LIMIT 2"
    )
    assert catalog.query(text, ORDERS, CUSTOMERS) == [(0, None), (1, "Ann")]


def test_nulls_come_first_as_in_flink(catalog: Catalog) -> None:
    text = "SELECT country FROM customers ORDER BY country"
    assert catalog.query(text, CUSTOMERS) == [(None,), ("France",), ("Peru",)]


def test_with_window_set_operation_subquery(catalog: Catalog) -> None:
    text = (
        "WITH q AS (SELECT id, country, ROW_NUMBER() OVER (ORDER BY id DESC) AS r FROM customers) "
        "SELECT q.id, r FROM q WHERE r < 3 UNION ALL SELECT order_id, 0 FROM orders "
        "WHERE customer_id IN (SELECT id FROM customers WHERE name = 'Ann') ORDER BY id"
    )
    result = catalog.query(text, CUSTOMERS, ORDERS, CUSTOMERS)
    assert result == [(1, 0), (2, 2), (3, 1), (4, 0)]


def test_correlated_subquery_and_star(catalog: Catalog) -> None:
    text = (
        "SELECT * FROM (SELECT id, name FROM customers) AS c WHERE EXISTS "
        "(SELECT 1 FROM orders AS o WHERE o.customer_id = c.id AND price > 4)"
    )
    assert catalog.query(text, CUSTOMERS, ORDERS) == [(2, "Bob")]
    assert catalog.bounded(text).output == ("id", "name")


@pytest.mark.parametrize("item", ["* LIKE 'i%'", "* ILIKE 'i%'", "c.* LIKE 'i%'", "c.* + 1"])
def test_a_star_is_no_value(catalog: Catalog, item: str) -> None:
    with pytest.raises(SqlError, match=r"\* stands for columns, and is no value"):
        catalog.bounded(f"SELECT {item} FROM customers AS c")


def test_values(catalog: Catalog) -> None:
    plan = catalog.bounded("VALUES (1, 'a'), (2, NULL)")
    assert plan.output == ("EXPR$0", "EXPR$1") and plan.scans == ()
    text = "INSERT INTO typed (m, s, n) VALUES (1.5, 'x;y', 2)"
    assert catalog.query(text)[0][1:4] == (2, None, "x;y")
    assert len(catalog.bounded(text).output) == 8


@pytest.mark.parametrize("source", ["VALUES (NULL, 1)", "SELECT NULL, 1"])
def test_a_null_fits_a_column_of_any_type(catalog: Catalog, source: str) -> None:
    table = catalog.table(("typed",))
    for column in table.columns:
        if column.nullable and column.name != "n":
            text = f"INSERT INTO typed (`{column.name}`, n) {source}"
            row = dict(zip(catalog.bounded(text).output, catalog.query(text)[0], strict=True))
            assert row[column.name] is None and row["n"] == 1


def test_output_names(catalog: Catalog) -> None:
    text = "SELECT id, id, id + 1, COUNT(*) AS `my count` FROM customers GROUP BY id"
    assert catalog.bounded(text).output == ("id", "id0", "EXPR$2", "my count")


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:00:00'", (None, 1704067200000, None)),
        (
            "FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:05:00' - INTERVAL '5' MINUTE",
            (None, 1704067200000, None),
        ),
        ("VERSION AS OF 7", (7, None, None)),
        ("FOR VERSION AS OF 'nightly'", (None, None, "nightly")),
    ],
)
def test_time_travel(catalog: Catalog, clause: str, expected: tuple[object, ...]) -> None:
    text = f"SELECT c.id FROM customers /*+ OPTIONS('scan.x'='1') */ {clause} AS c"
    (scan,) = catalog.bounded(text).scans
    as_of = scan.as_of
    assert (as_of.snapshot, as_of.timestamp_ms, as_of.tag) == expected
    assert scan.options == {"scan.x": "1"}


ERRORS = [
    (
        "SELECT id,\n  contry FROM customers",
        2,
        3,
        "there is no column 'contry'; did you mean 'country'?",
    ),
    (
        "SELECT c.contry FROM customers c",
        1,
        8,
        "'c' has no column 'contry'; did you mean 'country'?",
    ),
    ("SELECT d.id FROM customers c", 1, 8, "there is no table or alias 'd'; known: c"),
    ("SELECT id FROM custmers", 1, 16, "there is no table 'custmers'; did you mean 'customers'?"),
    (
        "SELECT id FROM customers a, customers b",
        1,
        8,
        "column 'id' is ambiguous; write a.id or b.id",
    ),
    (
        "SELECT nme FROM (SELECT * FROM customers) q",
        1,
        8,
        "there is no column 'nme'; did you mean 'name'?",
    ),
    (
        "INSERT INTO plain VALUES ('a', 1)",
        1,
        27,
        "the query returns 2 column(s), table default.plain takes 3: country, orders, revenue",
    ),
    (
        "INSERT INTO plain VALUES ('a', 'b', 1)",
        1,
        27,
        "column 'orders' is BIGINT, but the query returns STRING; write CAST(… AS BIGINT)",
    ),
    (
        "INSERT INTO plain (contry) VALUES ('a')",
        1,
        36,
        "table default.plain has no column 'contry'; did you mean 'country'?",
    ),
    ("SELECT id FROM customers FOR SYSTEM_TIME AS OF id", 1, 26, "FOR SYSTEM_TIME AS OF takes"),
    ("SELECT id FROM customers FOR SYSTEM_TIME AS OF", 1, 26, "AS OF needs a constant time"),
    (
        "SELECT country, COUNT(*) FROM customers",
        1,
        8,
        'column "country" must appear in the GROUP BY',
    ),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), ERRORS)
def test_errors(catalog: Catalog, text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        catalog.bounded(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE is not supported"),
        ("FOR UPDATE", "FOR UPDATE is not supported"),
    ],
)
def test_clauses_that_flink_does_not_have(catalog: Catalog, tail: str, message: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=message):
        catalog.bounded(f"SELECT id FROM customers {tail}")


def test_a_condition_is_boolean(catalog: Catalog) -> None:
    with pytest.raises(SqlError, match="a condition must be BOOLEAN"):
        catalog.bounded("SELECT id FROM customers WHERE id")
    with pytest.raises(SqlError, match="line 1, column 32: a condition must be BOOLEAN"):
        catalog.stream("SELECT id FROM customers WHERE id")


def test_unknown_hint_key(catalog: Catalog) -> None:
    with pytest.raises(SqlError, match="unknown hint OPTION; did you mean OPTIONS?"):
        catalog.bounded("SELECT id FROM customers /*+ OPTION('a'='b') */")
    with pytest.raises(SqlError, match="hint BROADCAST is not allowed on a table; write it after"):
        catalog.bounded("SELECT id FROM customers /*+ BROADCAST(c) */")


def test_a_with_query_sees_those_before_it_only(catalog: Catalog) -> None:
    inner = "WITH b AS (SELECT id FROM `x.csv`) SELECT id FROM b"
    with pytest.raises(SqlError, match="'x.csv'"):
        catalog.bounded(f"WITH a AS ({inner}), `x.csv` AS (SELECT 1 AS id) SELECT id FROM a")
    seen = "WITH `x.csv` AS (SELECT 1 AS id), a AS ({}) SELECT id FROM a"
    assert catalog.bounded(seen.format(inner)).scans == ()


def test_a_point_in_time_is_no_query(catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "salaries.csv"
    file.write_text("pay\n1704067200\n")
    instant = f"(SELECT COUNT(*) FROM `{file}`)"
    for text in (instant, f"TO_TIMESTAMP_LTZ({instant}, 0)", f"TIMESTAMP '2024-01-01' + {instant}"):
        read = f"SELECT id FROM customers FOR SYSTEM_TIME AS OF {text}"
        with pytest.raises(SqlError):
            catalog.bounded(f"WITH `{file}` AS (SELECT 1 AS pay) {read}")


def test_binding_reads_no_files(tmp_path: Path) -> None:
    file = tmp_path / "salaries.csv"
    file.write_text("pay\n1\n")
    rows = pa.table({"n": [1]})
    for name in (str(file), "rows"):
        with pytest.raises(BindError):
            describe(f'SELECT * FROM "{name}"', {})
    assert rows.num_rows == 1


@pytest.mark.parametrize(
    "inner",
    [
        "INSERT INTO customers VALUES (1, 'a', 'b')",
        "INSERT INTO customers SELECT * FROM customers",
        "DELETE FROM customers",
        "UPDATE customers SET id = 1",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE customers",
        "DESCRIBE customers",
        "COPY customers TO 'x.csv'",
        "SET x = 1",
        "PRAGMA version",
        "ATTACH 'x.db'",
        "USE x",
        "TRUNCATE TABLE customers",
        "KILL 1",
        "1 + 1",
        "customers",
    ],
)
def test_a_query_only_reads(catalog: Catalog, inner: str) -> None:
    for text in (
        "WITH x AS ({}) SELECT 1 AS n",
        "SELECT 1 AS n WHERE EXISTS (WITH x AS ({}) SELECT 1)",
    ):
        with pytest.raises(SqlError):
            catalog.bounded(text.format(inner))
