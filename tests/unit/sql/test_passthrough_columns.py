"""Which output columns certainly have the values of a source column, unconverted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.sql.conftest import TABLES, Catalog

from streamhouse.sql.streaming.passthrough_columns import copied_columns

_TARGETS = """
CREATE TABLE copy (id INT PRIMARY KEY NOT ENFORCED, name STRING, country STRING);
CREATE TABLE wide (id BIGINT, name STRING, PRIMARY KEY (id, name) NOT ENFORCED);
"""


@pytest.mark.parametrize(
    ("query", "passed"),
    [
        (
            "copy SELECT * FROM customers_cdc",
            {"id": "id", "name": "name", "country": "country"},
        ),
        ("copy (country, id) SELECT name, id FROM customers_cdc", {"country": "name", "id": "id"}),
        ("copy SELECT id, UPPER(name), country FROM customers_cdc AS c WHERE id > 1",
         {"id": "id", "country": "country"}),
        # Converted values may be equal where the source's are not.
        ("wide SELECT id, name FROM customers_cdc", {"name": "name"}),
        ("copy SELECT CAST(id AS INT), name, country FROM customers_cdc",
         {"name": "name", "country": "country"}),
        ("copy SELECT id + 1, name, 'x' FROM customers_cdc", {"name": "name"}),
        ("copy SELECT a, n, n FROM (SELECT id AS a, name AS n FROM customers_cdc)",
         {"id": "id", "name": "name", "country": "name"}),
        ("copy SELECT * FROM customers_cdc UNION ALL SELECT id + 1, name, country "
         "FROM customers_cdc", {}),
        ("country_sales SELECT country, COUNT(*), SUM(1.0E0) FROM customers_cdc GROUP BY country",
         {}),
    ],
)  # fmt: skip
def test_passthrough_columns(query: str, passed: dict[str, str]) -> None:
    catalog = Catalog()
    catalog.add(TABLES)
    catalog.add(_TARGETS)
    assert catalog.stream(f"INSERT INTO {query}").rows.passed == passed


@pytest.mark.parametrize(
    ("query", "copied"),
    [
        ("copy SELECT * FROM customers_cdc", ("id", "name", "country", "rowkind")),
        ("copy (country, id) SELECT name, id FROM customers_cdc", None),
        ("wide SELECT id, name FROM customers_cdc", None),
        ("copy SELECT * FROM customers_cdc WHERE id > 1", None),
        ("copy SELECT id, UPPER(name), country FROM customers_cdc", None),
        ("copy SELECT * FROM customers_cdc UNION ALL SELECT * FROM customers_cdc", None),
        ("country_sales SELECT country, COUNT(*), SUM(1.0E0) FROM customers_cdc GROUP BY country",
         None),
    ],
)  # fmt: skip
def test_columns_of_queries_that_only_copy_them(query: str, copied: tuple[str, ...] | None) -> None:
    catalog = Catalog()
    catalog.add(TABLES)
    catalog.add(_TARGETS)
    assert copied_columns(catalog.stream(f"INSERT INTO {query}")) == copied


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT a FROM src",
        "SELECT a FROM src LIMIT 1",
        "SELECT a FROM src ORDER BY b",
        "SELECT a FROM src, other",
        "SELECT a FROM src TABLESAMPLE 10%",
        "SELECT a FROM (SELECT b AS a FROM src)",
        "WITH src AS (SELECT 1 AS a) SELECT a FROM src",
        "SELECT a FROM src QUALIFY ROW_NUMBER() OVER (PARTITION BY a) = 1",
    ],
)
def test_queries_that_do_more_than_copy(sql: str) -> None:
    catalog = Catalog()
    catalog.add(TABLES)
    catalog.add(_TARGETS)
    copy = catalog.stream("INSERT INTO copy SELECT * FROM customers_cdc")
    assert copied_columns(replace(copy, rows=replace(copy.rows, sql=sql))) is None
