"""The text of a TIMESTAMP(p) has p fractional digits, whatever its source."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

TABLES = """
CREATE TABLE instants (t0 TIMESTAMP(0), t2 TIMESTAMP(2), t3 TIMESTAMP(3), t6 TIMESTAMP(6),
  t9 TIMESTAMP(9), c0 AS CAST(t3 AS TIMESTAMP(0)));
CREATE TABLE seconds (t TIMESTAMP(0), s STRING);
"""
ROW: dict[str, Any] = {
    "t0": datetime(2026, 1, 2, 3, 4, 5),
    "t2": datetime(2026, 1, 2, 3, 4, 5, 670_000),
    "t3": datetime(2026, 1, 2, 3, 4, 5, 678_000),
    "t6": datetime(2026, 1, 2, 3, 4, 5, 678_900),
    "t9": datetime(2026, 1, 2, 3, 4, 5, 678_900),
}
TO_SECOND = "2026-01-02 03:04:05"


@pytest.fixture
def instants(catalog: Catalog) -> Catalog:
    catalog.add(TABLES)
    return catalog


@pytest.mark.parametrize(
    ("expression", "fraction"),
    [
        ("t0", ""),
        ("(t0)", ""),
        ("t2", ".67"),
        ("t3", ".678"),
        ("t6", ".678900"),
        ("t9", ".678900000"),
        ("c0", ""),
        ("CAST(t6 AS TIMESTAMP(0))", ""),
        ("CAST(t6 AS TIMESTAMP(1))", ".6"),
        ("CAST(t6 AS TIMESTAMP(4))", ".6789"),
        ("CAST(t0 AS TIMESTAMP(3))", ".000"),
        ("CAST('2026-01-02 03:04:05.999' AS TIMESTAMP(0))", ""),
        ("t9 + INTERVAL '0' DAY", ".678900000"),
        ("CAST(t9 AS TIMESTAMP(7)) - INTERVAL '0' MONTH", ".6789000"),
        # The digits of what is made of several are those of the longest.
        ("COALESCE(t0, t3)", ".000"),
        ("GREATEST(t0, t0)", ""),
        ("NULLIF(t2, t3)", ".67"),
        ("ELEMENT(ARRAY[t0])", ""),
        ("ARRAY_MAX(ARRAY[t2])", ".67"),
        ("MAP['a', t0]['a']", ""),
        ("CAST(ROW(t3) AS ROW<a TIMESTAMP(0)>).a", ""),
    ],
)
@pytest.mark.parametrize("place", ["SELECT {} AS v FROM instants", "SELECT CAST(x AS STRING) AS v "
                                   "FROM (SELECT {} AS x FROM instants) AS q"])  # fmt: skip
def test_the_text_has_the_digits_of_the_type(
    instants: Catalog, expression: str, fraction: str, place: str
) -> None:
    text = place.format(expression if "STRING" in place else f"CAST({expression} AS STRING)")
    expected = [(TO_SECOND + fraction,)]
    assert instants.query(text, [ROW]) == expected
    assert instants.rows(text, [ROW]) == expected


@pytest.mark.parametrize(
    "query",
    [
        "SELECT CAST(MAX(t0) AS STRING) FROM instants",
        "SELECT CAST(FIRST_VALUE(t0) AS STRING) FROM instants",
        "SELECT CAST(MIN(CAST(t9 AS TIMESTAMP(0))) OVER (ORDER BY t3) AS STRING) FROM instants",
        "SELECT CAST((SELECT MAX(q.t0)) AS STRING) FROM (SELECT t0 FROM instants) AS q",
        "SELECT (SELECT CAST(q.t0 AS STRING)) FROM instants AS q",
        "WITH q AS (SELECT t0 AS x FROM instants) SELECT CAST(x AS STRING) FROM q",
        "SELECT CAST(x AS STRING) FROM (SELECT MAX(t0) AS x FROM instants) AS q",
        "SELECT CAST(x AS STRING) FROM (SELECT LAG(t0, 0) OVER (ORDER BY t3) FROM instants) q(x)",
        "SELECT CAST(x AS STRING) FROM instants CROSS JOIN UNNEST(ARRAY[t0]) AS q(x)",
        "SELECT CAST(x AS STRING) FROM instants, (VALUES (TIMESTAMP '2026-01-02 03:04:05')) q(x)",
    ],
)  # fmt: skip
def test_aggregates_and_queries_keep_the_digits(instants: Catalog, query: str) -> None:
    assert instants.query(query, [ROW]) == [(TO_SECOND,)]


def test_the_sides_of_a_union_have_the_digits_of_both(instants: Catalog) -> None:
    union = "(SELECT {} AS x FROM instants UNION ALL SELECT t0 FROM instants) AS q"
    text = "SELECT CAST(x AS STRING) FROM " + union
    assert instants.query(text.format("t0"), [ROW], [ROW]) == [(TO_SECOND,)] * 2
    texts = instants.query(text.format("t2"), [ROW], [ROW])
    assert sorted(texts) == [(f"{TO_SECOND}.00",), (f"{TO_SECOND}.67",)]


def test_a_null_has_no_text(instants: Catalog) -> None:
    text = "SELECT CAST(t0 AS STRING) AS v, CAST(t2 AS STRING) AS w FROM instants"
    assert instants.query(text, [{}]) == instants.rows(text, [{}]) == [(None, None)]


def test_a_column_of_seconds_gets_whole_seconds(instants: Catalog) -> None:
    text = "INSERT INTO seconds SELECT t6, CAST(t3 AS STRING) FROM instants"
    expected = [(datetime(2026, 1, 2, 3, 4, 5), f"{TO_SECOND}.678")]
    assert instants.query(text, [ROW]) == expected
    assert instants.rows(text, [ROW]) == expected


def test_a_dimensions_column_has_its_own_digits(instants: Catalog) -> None:
    instants.add("CREATE TABLE stream_ (id INT, p AS PROCTIME()); "
                "CREATE TABLE days (id INT PRIMARY KEY NOT ENFORCED, t0 TIMESTAMP(0))")  # fmt: skip
    text = (
        "SELECT CAST(d.t0 AS STRING) AS v FROM stream_ AS s JOIN days FOR SYSTEM_TIME AS OF s.p AS "
        "d ON s.id = d.id"
    )
    assert instants.rows(text, [{"id": 1}], [{"id": 1, "t0": ROW["t0"]}]) == [(TO_SECOND,)]
