"""Which output columns certainly have the values of a source column, unconverted."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import TABLES, Catalog

_TARGETS = """
CREATE TABLE copy (id INT PRIMARY KEY NOT ENFORCED, name STRING, country STRING);
CREATE TABLE removing (id INT PRIMARY KEY NOT ENFORCED, name STRING, country STRING) WITH (
  'merge-engine' = 'partial-update', 'partial-update.remove-record-on-delete' = 'true');
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
        ("copy SELECT id, name, country FROM (SELECT * FROM customers_cdc WHERE id > 1)", None),
        ("removing SELECT * FROM customers_cdc", None),
        ("country_sales SELECT country, COUNT(*), SUM(1.0E0) FROM customers_cdc GROUP BY country",
         None),
    ],
)  # fmt: skip
def test_columns_of_queries_that_only_copy_them(query: str, copied: tuple[str, ...] | None) -> None:
    catalog = Catalog()
    catalog.add(TABLES)
    catalog.add(_TARGETS)
    assert catalog.stream(f"INSERT INTO {query}").copied == copied
