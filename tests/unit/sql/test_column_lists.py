"""`AS t (a, b)` names all columns of a table, a view or a subquery, or is refused."""

from __future__ import annotations

import pytest
from tests.unit.views.view_session import ViewSession

from streamhouse.errors import SqlError

_RELATIONS = {
    "table": "three AS t ({})",
    "table with a computed column": "computed AS t ({})",
    "view": "v AS t ({})",
    "star": "(SELECT * FROM three) AS t ({})",
    "set operation": "(SELECT * FROM three UNION SELECT * FROM three) AS t ({})",
    "join": "(SELECT x.a, y.* FROM three x JOIN (SELECT b, c FROM three) y USING (b)) AS t ({})",
    "values": "(VALUES (1, 2, 3)) AS t ({})",
    "lateral": "three x JOIN LATERAL (SELECT * FROM three y WHERE y.a = x.a) AS t ({}) ON TRUE",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> ViewSession:
    session = ViewSession(tmp_path_factory.mktemp("lists") / "warehouse")
    session.execute("CREATE TABLE three (a INT, b INT, c INT)")
    session.execute("CREATE TABLE computed (a INT, b INT, c AS a + b)")
    session.execute("INSERT INTO three VALUES (1, 2, 3)")
    session.execute("INSERT INTO computed VALUES (1, 2)")
    session.run("CREATE VIEW v AS SELECT * FROM three")
    return session


@pytest.mark.parametrize("name", _RELATIONS)
def test_column_lists(name: str, session: ViewSession) -> None:
    relation = _RELATIONS[name]
    assert session.exact_rows(f"SELECT t.r, t.p FROM {relation.format('p, q, r')}") == [[3, 1]]
    with pytest.raises(SqlError, match="'t' has no column 'a'"):
        session.exact_rows(f"SELECT t.a FROM {relation.format('p, q, r')}")
    for listed in ("p", "p, q", "p, q, r, s"):
        with pytest.raises(SqlError, match=r"t names \d column"):
            session.exact_rows(f"SELECT 1 FROM {relation.format(listed)}")


def test_with_queries_have_column_lists(session: ViewSession) -> None:
    query = "WITH w ({}) AS (SELECT * FROM three) SELECT * FROM w"
    assert session.exact_rows(query.format("p, q, r")) == [[1, 2, 3]]
    with pytest.raises(SqlError, match="w names 1 column"):
        session.exact_rows(query.format("p"))


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("VALUES (2), (1), (3) ORDER BY 1 LIMIT 2", [[1], [2]]),
        ("(VALUES (2), (1))", [[2], [1]]),
        ("VALUES (1, 2) UNION ALL (VALUES (3, 4))", [[1, 2], [3, 4]]),
        ("SELECT (SELECT MAX(a) FROM three), b FROM three ORDER BY 1, 2", [[1, 2]]),
        ("SELECT (SELECT MAX(a) FROM three) AS m FROM three ORDER BY 1", [[1]]),
        ("SELECT EXISTS (SELECT 1 FROM three), COUNT(*) FROM three GROUP BY 1", [[True, 1]]),
    ],
)
def test_queries_and_their_rows(session: ViewSession, query: str, rows: list[list[int]]) -> None:
    assert session.exact_rows(query) == rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.r.* FROM nested t",
        "SELECT r.* FROM nested t JOIN (SELECT 1 AS one) u ON one > 0",
        "SELECT q.r.* FROM (SELECT r, id FROM nested) q",
        "SELECT x.a, x.`B c` FROM (SELECT t.r.*, id FROM nested t) x",
        "SELECT q.z.* FROM (SELECT CAST(r AS ROW<a INT, `B c` STRING>) AS z FROM nested) q",
    ],
)
def test_the_fields_of_a_row(session: ViewSession, query: str) -> None:
    session.execute(
        "CREATE TABLE IF NOT EXISTS nested (id INT, r ROW<a INT, `B c` STRING>); INSERT OVERWRITE "
        "nested VALUES (1, CAST(ROW(2, 'x') AS ROW<a INT, `B c` STRING>)), (2, NULL)"
    )
    assert sorted(session.exact_rows(query), key=str) == [[2, "x"], [None, None]]


def test_union_by_name_is_refused(session: ViewSession) -> None:
    with pytest.raises(SqlError, match="BY NAME is not supported"):
        session.exact_rows("SELECT a FROM three UNION ALL BY NAME SELECT b FROM three")


def test_computed_columns_have_commas_in_brackets(session: ViewSession) -> None:
    session.execute("CREATE TABLE c (a INT, m AS MAP['x', a, 'y', 2], l AS ARRAY[a, 1], z INT)")
    session.execute("INSERT INTO c VALUES (5, 6)")
    assert session.exact_rows("SELECT m['x'], l, z FROM c") == [[5, [5, 1], 6]]
