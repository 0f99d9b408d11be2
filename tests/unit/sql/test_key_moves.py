"""Which queries reorder a batch: those whose target's key lacks values of the source's key."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import Catalog

SOURCE = (
    "CREATE TABLE people (id INT, region STRING, email STRING, "
    "PRIMARY KEY (id, region) NOT ENFORCED)"
)
DIM = "CREATE TABLE dim (id INT PRIMARY KEY NOT ENFORCED, name STRING)"
LOG = "CREATE TABLE log (id INT, region STRING, email STRING)"
KEY = "CREATE TABLE t (a {}, b STRING, c STRING, PRIMARY KEY ({}) NOT ENFORCED) {}"
BOTH = "SELECT id, region, email FROM people"


def reorders(
    select: str, key: str = "a, b", kind: str = "INT", options: str = "", more: str = ""
) -> tuple[str, ...]:
    catalog = Catalog()
    catalog.add(f"{SOURCE}; {DIM}; {LOG}; {KEY.format(kind, key, options)}; {more}")
    query = catalog.stream(f"INSERT INTO t {select}")
    assert set(query.reorder_key) <= set(query.scan.columns)
    return query.reorder_key


@pytest.mark.parametrize(
    ("select", "key", "kind", "options"),
    [
        (BOTH, "a, b", "INT", ""),
        (BOTH, "a, b, c", "BIGINT", ""),
        (BOTH, "a, b", "DOUBLE", ""),
        (
            "SELECT i, r, e FROM (SELECT email AS e, id AS i, region AS r FROM people)",
            "a, b", "INT", "",
        ),
        (
            "SELECT p.id, p.region, d.name FROM people AS p LEFT JOIN dim FOR SYSTEM_TIME AS OF "
            "PROCTIME() AS d ON p.id = d.id WHERE p.id > 3",
            "a, b", "INT", "",
        ),
        ("SELECT id, region, email FROM log", "c", "INT", ""),
        (BOTH, "c", "INT", "WITH ('sequence.field' = 'a')"),
        (
            "SELECT COUNT(*), 'x', email FROM people GROUP BY email", "c", "BIGINT",
            "WITH ('merge-engine' = 'aggregation', 'fields.a.aggregate-function' = 'sum')",
        ),
    ],
)  # fmt: skip
def test_the_order_is_kept(select: str, key: str, kind: str, options: str) -> None:
    assert reorders(select, key, kind, options) == ()


@pytest.mark.parametrize(
    ("select", "key", "kind", "options"),
    [
        (BOTH, "c", "INT", ""),
        (BOTH, "a", "INT", ""),
        (BOTH, "b, c", "INT", "WITH ('changelog-producer' = 'input')"),
        ("SELECT id + 1, region, email FROM people", "a, b", "INT", ""),
        ("SELECT CAST(id AS FLOAT), region, email FROM people", "a, b", "FLOAT", ""),
        ("SELECT id, LOWER(region), email FROM people", "a, b", "INT", ""),
        (f"{BOTH} WHERE id < 3 UNION ALL SELECT id, email, region FROM people", "a, b", "INT", ""),
        (
            BOTH, "c", "INT",
            "WITH ('merge-engine' = 'partial-update', "
            "'partial-update.remove-record-on-delete' = 'true')",
        ),
    ],
)  # fmt: skip
def test_the_current_rows_come_last(select: str, key: str, kind: str, options: str) -> None:
    assert reorders(select, key, kind, options) == ("id", "region")


def test_digits_that_a_key_loses_may_join_two_rows() -> None:
    more = "CREATE TABLE big (n BIGINT PRIMARY KEY NOT ENFORCED, s STRING)"
    assert reorders("SELECT n, s, s FROM big", "a", "DOUBLE", "", more) == ("n",)
