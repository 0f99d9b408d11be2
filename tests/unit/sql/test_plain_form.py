"""Clauses that are rewritten before names are resolved: their rows, with nulls."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from streamhouse.errors import SqlError, UnsupportedSqlError

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

Row = tuple[int | None, ...]
_L = "(VALUES (1, 'a'), (2, CAST(NULL AS STRING)), (CAST(NULL AS INT), 'a'), (3, 'z')) AS l (a, b)"
_R = "(VALUES (1, 'a'), (2, 'q'), (1, CAST(NULL AS STRING))) AS r (c, d)"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (f"SELECT (a, b) IN ((1, 'a'), (2, 'x')) FROM {_L}", [True, None, None, False]),
        (f"SELECT (a, b) NOT IN ((1, 'a'), (2, NULL)) FROM {_L}", [False, None, None, True]),
        (f"SELECT (a, b) = (1, 'a') FROM {_L}", [True, False, None, False]),
        (f"SELECT (a, b) <> (1, 'a') FROM {_L}", [False, True, None, True]),
        (f"SELECT ((a, b), 1) = (ROW(1, 'a'), 1) FROM {_L}", [True, False, None, False]),
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
        (f"SELECT b SIMILAR TO d || '_*' FROM {_L}, {_R} WHERE c = 2", [False, None, False, False]),
        (
            f"SELECT CONCAT('p.q', b) NOT SIMILAR TO (SELECT '(r|%' || MAX(d) || '.)' FROM {_R}) "
            f"FROM {_L} LIMIT 9",
            [False, None, False, False],
        ),
        (f"SELECT a FROM {_L} ORDER BY a DESC LIMIT ALL OFFSET 2", [1, None]),
        (f"SELECT a <> SOME (VALUES (1), (2)) FROM {_L}", [True, True, None, True]),
        (f"SELECT a >= ALL (VALUES (1), (2)) FROM {_L}", [False, True, None, True]),
        (f"SELECT (a, b) IN (VALUES (1, 'a')) FROM {_L}", [True, False, None, False]),
        (f"SELECT a IN (VALUES 1, 3) FROM {_L}", [True, False, None, True]),
        (f"SELECT a + (VALUES (1)) FROM {_L}", [2, 3, None, 4]),
        (f"SELECT a > ALL (0, 1) FROM {_L}", [False, True, None, True]),
        (f"SELECT a = ANY (1, 3) FROM {_L}", [True, False, None, True]),
        (f"SELECT a = ANY (ARRAY[1, 3]) FROM {_L}", [True, False, None, True]),
        ("SELECT n FROM (VALUES 1, 2) AS n MINUS SELECT 2", [1]),
        ("VALUES 1, 1, 2 MINUS ALL (SELECT 1)", [1, 2]),
        ("SELECT minus AS minus FROM (VALUES 1) AS minus", [1]),
        (f"SELECT a = 1 IS NOT TRUE FROM {_L}", [False, True, True, True]),
        (f"SELECT b = 'a' IS NULL FROM {_L}", [False, True, False, False]),
        (f"SELECT 1 FROM {_L} WHERE FALSE GROUP BY 1, TRUE", []),
        (f"SELECT COUNT(*) FROM {_L} WHERE FALSE GROUP BY 1", []),
        (f"SELECT GROUP_ID() FROM {_L} GROUP BY ROLLUP (a)", [0] * 5),
        (f"SELECT SUM(a) FROM {_L} GROUP BY b WITH ROLLUP ORDER BY 1", [1, 2, 3, 6]),
        (f"SELECT COUNT(*), b IS NULL FROM {_L} GROUP BY ALL ORDER BY 1", [1, 3]),
        (f"SELECT 1 AS one FROM {_L} GROUP BY ALL", [1]),
        (
            "WITH RECURSIVE w (n, f) AS (SELECT 1, 1 UNION ALL SELECT n + 1, f * (n + 1) FROM w "
            "WHERE n < 4) SELECT f FROM w",
            [1, 2, 6, 24],
        ),
        (f"SELECT DISTINCT ON (b IS NULL) a FROM {_L} ORDER BY b IS NULL, a DESC", [3, 2]),
        (f"SELECT DISTINCT ON (x) b IS NULL AS x, a FROM {_L} ORDER BY 1, a DESC", [False, True]),
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
        ("SELECT * FROM UNNEST(ARRAY[1, 2])", [1, 2]),
        ("SELECT (SELECT * FROM (VALUES 7) AS v)", [7]),
        (f"SELECT l.a FROM {_L} SEMI JOIN {_R} ON l.a < r.c AND d <> 'p'", [1]),
        (f"SELECT a FROM {_L} ANTI JOIN (SELECT c FROM {_R}) AS r ON a < r.c", [2, None, 3]),
        ("SELECT 8 = (WITH w AS (SELECT 7 + 1) SELECT * FROM w)", [True]),
        ("SELECT 1 + (SELECT MAX(EXPR$0) FROM (SELECT 2 * 3))", [7]),
        ("SELECT t.EXPR$0 FROM UNNEST(ARRAY[1, 2]) WITH ORDINALITY AS t WHERE ORDINALITY = 2", [2]),
        ("SELECT n FROM (VALUES (1, ARRAY[3])) AS l (n, v), UNNEST(l.v)", [1]),
        ("SELECT x + x.x FROM UNNEST(ARRAY[1, 2]) AS x", [2, 4]),
        ("SELECT v.n + w FROM (VALUES (1, ARRAY[3])) AS v (n, a), LATERAL UNNEST(a) AS w", [4]),
        ("SELECT x FROM (VALUES 1, 2) AS x WHERE x.x > 1", [2]),
        ("SELECT EXPR$1 FROM (VALUES (1, 'a'), (2, 'b')) WHERE EXPR$0 = 2", ["b"]),
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
            f"SELECT v FROM {_R} CROSS JOIN UNNEST(ARRAY[ROW(c, d), ROW(9, 'z')]) AS u (k, v) "
            "WHERE k > 1",
            ["q", "z", "z", "z"],
        ),
        ("SELECT x + y FROM (VALUES ROW(1, 2), (3, 4), row(5, 6)) AS t (x, y)", [3, 7, 11]),
        ("SELECT x + 1 FROM (VALUES ROW(1), 2) AS t (x)", [2, 3]),
        ("VALUES CAST('1' AS INT), ROW(2), (3) ORDER BY 1 LIMIT 2", [1, 2]),
        ("VALUES ROW(1, 2) UNION ALL VALUES (3, 4)", [1, 3]),
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


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


def _decided(sign: str, left: Row, right: Row) -> bool | None:
    """What SQL says of two rows: the first fields that differ decide, or make it unknown."""
    pairs = list(zip(left, right, strict=True))
    if sign in ("=", "<>"):
        differs = any(None not in pair and pair[0] != pair[1] for pair in pairs)
        return differs == (sign == "<>") if differs or None not in (*left, *right) else None
    first, second = pairs
    a, b = second if first[0] == first[1] else first
    return None if None in (*first, a, b) else _COMPARED[sign](a, b)


def _numbered(pairs: list[tuple[int | None, ...]]) -> str:
    """The rows of VALUES: a number, and the values of a tuple."""
    return ", ".join(
        f"({n}, {', '.join('CAST(NULL AS INT)' if v is None else str(v) for v in pair)})"
        for n, pair in enumerate(pairs)
    )


@pytest.mark.parametrize("sign", [*_COMPARED, "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
def test_rows_are_compared_field_by_field(catalog: Catalog, sign: str) -> None:
    pairs = list(itertools.product((None, 1, 2), repeat=4))
    rows = _numbered(pairs)
    row = "(SELECT p.c, p.d FROM t AS p WHERE p.n = t.n)"
    query = (
        f"WITH t AS (SELECT * FROM (VALUES {rows}) AS v (n, a, b, c, d)) SELECT n, (a, b) {sign} "
        f"(c, d), ROW(a, b) {sign} {row}, NOT ({row.replace('p.c, p.d', 'p.a, p.b')} {sign} (c, "
        "d)) FROM t"
    )
    for n, *found in catalog.query(query):
        left, right = pairs[n][:2], pairs[n][2:]
        even = left != right if sign == "IS DISTINCT FROM" else left == right
        truth = _decided(sign, left, right) if sign in _COMPARED else even
        assert found == [truth, truth, None if truth is None else not truth], (pairs[n], query)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM {} NATURAL JOIN {}", "b a c"),
        ("SELECT * FROM {} JOIN {} USING (b)", "b a c"),
        ("SELECT l.* FROM {} JOIN {} USING (b)", "a b"),
        ("SELECT b0, a FROM (SELECT * FROM {} CROSS JOIN {})", "b0 a"),
        ("SELECT * EXCEPT (a) FROM {} JOIN {} USING (b)", "b c"),
        ("SELECT l.* EXCEPT (a), r.* FROM {} JOIN {} USING (b)", "b c b0"),
        ("SELECT * EXCEPT (l.b) FROM {} CROSS JOIN {}", "a c b"),
        ("SELECT x FROM (SELECT * RENAME (a AS x) FROM {} JOIN {} USING (b))", "x"),
        ("SELECT * FROM (SELECT l.* REPLACE (1 AS b) FROM {} JOIN {} USING (b))", "a b"),
    ],
)
def test_the_columns_of_stars(catalog: Catalog, query: str, names: str) -> None:
    right = "(VALUES (9, 'a')) AS r (c, b)"
    plan = catalog.bounded(query.format(_L, right))
    assert " ".join(plan.output) == names
    rows = catalog.query(query.format(_L, right))
    assert len(rows) == (4 if "CROSS" in query else 2)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * EXCEPT (x) FROM {}", "has no column 'x'; known: a, b"),
        ("SELECT a FROM (SELECT * EXCEPT (a) FROM {}) AS t", "there is no column 'a'"),
        ("SELECT A FROM (SELECT a, b AS A FROM {}) AS t", "'a' and 'A' differ only in case"),
        ("SELECT * FROM {}, (VALUES (1, 2)) AS t (x, X)", "'x' and 'X' differ only in case"),
        ("SELECT * FROM {}, UNNEST(ARRAY[ROW(1, 'a')])", "name a column for each field"),
        ("SELECT * FROM {} NATURAL SEMI JOIN (VALUES (1)) AS r (a)", "name the columns in USING"),
    ],
)
def test_columns_that_stars_do_not_have(catalog: Catalog, query: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        catalog.bounded(query.format(_L))


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


@pytest.mark.parametrize("sign", _COMPARED)
def test_rows_are_compared_with_all_rows_of_a_query(catalog: Catalog, sign: str) -> None:
    pairs = list(itertools.product((None, 1, 2), repeat=2))
    rows = _numbered(pairs)
    others = "(SELECT a, b FROM t AS p WHERE p.n > t.n AND p.n < t.n + 4)"
    query = (
        f"WITH t AS (SELECT * FROM (VALUES {rows}) AS v (n, a, b)) SELECT n, (a, b) {sign} ANY "
        f"{others}, (a, b) {sign} ALL {others}, (a, b) {sign} ALL (SELECT a, b FROM t) FROM t"
    )
    for n, some, every, whole in catalog.query(query):
        found = {_decided(sign, pairs[n], each) for each in pairs[n + 1 : n + 4]}
        assert some == (True if True in found else None if None in found else False), n
        assert every == (False if False in found else None if None in found else True), n
        found = {_decided(sign, pairs[n], each) for each in pairs}
        assert whole == (False if False in found else None if None in found else True), n
