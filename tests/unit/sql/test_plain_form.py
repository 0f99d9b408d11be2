"""Clauses that are rewritten before names are resolved: their rows, with nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streamhouse.errors import SqlError, UnsupportedSqlError

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

_L = "(VALUES (1, 'a'), (2, CAST(NULL AS STRING)), (CAST(NULL AS INT), 'a'), (3, 'z')) AS l (a, b)"
_R = "(VALUES (1, 'a'), (2, 'q'), (1, CAST(NULL AS STRING))) AS r (c, d)"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (f"SELECT (a, b) IN ((1, 'a'), (2, 'x')) FROM {_L}", [True, None, None, False]),
        (f"SELECT (a, b) NOT IN ((1, 'a'), (2, NULL)) FROM {_L}", [False, None, None, True]),
        (f"SELECT (a, b) = (1, 'a') FROM {_L}", [True, False, None, False]),
        (f"SELECT (a, b) <> (1, 'a') FROM {_L}", [False, True, None, True]),
        (f"SELECT ROW(a, b) IN (ROW(1, 'a')) FROM {_L}", [True, False, None, False]),
        (f"SELECT (a, b) IN (SELECT c, d FROM {_R}) FROM {_L}", [True, None, None, False]),
        (
            f"SELECT (a, b) IN (SELECT c, d FROM {_R} WHERE r.c <= COALESCE(l.a, 9)) FROM {_L}",
            [True, None, None, False],
        ),
        (
            f"SELECT (a, b) NOT IN (SELECT c, d FROM {_R} WHERE r.c <= COALESCE(l.a, 9)) FROM {_L}",
            [False, None, None, True],
        ),
        (f"SELECT a > ALL (0, 1) FROM {_L}", [False, True, None, True]),
        (f"SELECT a = ANY (1, 3) FROM {_L}", [True, False, None, True]),
        (f"SELECT a = 1 IS NOT TRUE FROM {_L}", [False, True, True, True]),
        (f"SELECT b = 'a' IS NULL FROM {_L}", [False, True, False, False]),
        (f"SELECT 1 FROM {_L} WHERE FALSE GROUP BY 1, TRUE", []),
        (f"SELECT COUNT(*) FROM {_L} WHERE FALSE GROUP BY 1", []),
        (f"SELECT GROUP_ID() FROM {_L} GROUP BY ROLLUP (a)", [0] * 5),
        (f"SELECT a FROM {_L} QUALIFY ROW_NUMBER() OVER (ORDER BY a DESC) = 1", [3]),
        (
            f"SELECT EXISTS (SELECT 1 FROM (SELECT c FROM {_R} WHERE r.c = l.a) AS x) FROM {_L}",
            [True, True, False, False],
        ),
        (
            "SELECT (WITH w AS (SELECT c FROM "
            f"{_R} WHERE r.c = l.a) SELECT COUNT(*) FROM w) FROM {_L}",
            [2, 1, 0, 0],
        ),
        (
            "SELECT p FROM (VALUES (ARRAY['x', 'y'])) AS t (v) CROSS JOIN UNNEST(t.v) WITH "
            "ORDINALITY AS u (w, p) WHERE w = 'y'",
            [2],
        ),
        (
            "SELECT k FROM (VALUES (MAP['x', 1, 'y', 2])) AS t (m) CROSS JOIN UNNEST(t.m) AS u "
            "(k, v) WHERE v = 2",
            ["y"],
        ),
        (
            "SELECT s FROM (SELECT CAST(ARRAY[ROW('x', 1), ROW('y', 2)] AS ARRAY<ROW<a STRING, "
            "b INT>>) AS v) AS t LEFT JOIN "
            "UNNEST(t.v) WITH ORDINALITY AS u (s, n, p) ON TRUE WHERE n + p = 4",
            ["y"],
        ),
        (
            f"SELECT d FROM {_L}, LATERAL (SELECT d FROM {_R} WHERE c = l.a ORDER BY d DESC "
            "LIMIT 1)",
            ["a", "q"],
        ),
        (f"SELECT COUNT(*) FROM (SELECT a FROM {_L}) JOIN (SELECT c FROM {_R}) ON a = c", [3]),
    ],
)
def test_the_values_of_rewritten_clauses(catalog: Catalog, query: str, rows: list[Any]) -> None:
    found = [row[0] for row in catalog.query(query)]
    assert sorted(found, key=repr) == sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM {} NATURAL JOIN {}", "b a c"),
        ("SELECT * FROM {} JOIN {} USING (b)", "b a c"),
        ("SELECT l.* FROM {} JOIN {} USING (b)", "a b"),
        ("SELECT b0, a FROM (SELECT * FROM {} CROSS JOIN {})", "b0 a"),
    ],
)
def test_the_columns_of_stars(catalog: Catalog, query: str, names: str) -> None:
    right = "(VALUES (9, 'a')) AS r (c, b)"
    plan = catalog.bounded(query.format(_L, right))
    assert " ".join(plan.output) == names
    rows = catalog.query(query.format(_L, right))
    assert len(rows) == (4 if "CROSS" in query else 2)


def test_a_group_id_of_equal_grouping_sets_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UnsupportedSqlError, match="write each set once"):
        catalog.bounded(f"SELECT GROUP_ID() FROM {_L} GROUP BY GROUPING SETS (a, a)")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (VALUES (1), (3)) AS t (a, b)",
        "SELECT * FROM (VALUES (1, 2)) AS t (a)",
        "SELECT * FROM (SELECT 1, 2 UNION SELECT 3, 4) AS t (a)",
        "WITH t (a, b) AS (SELECT 1) SELECT * FROM t",
    ],
)
def test_a_column_list_names_each_column(catalog: Catalog, query: str) -> None:
    with pytest.raises(SqlError, match=r"t names \d column\(s\), but its query returns \d"):
        catalog.bounded(query)
