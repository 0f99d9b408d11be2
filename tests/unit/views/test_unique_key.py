"""The key of a view: inferred where the query's form guarantees it, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession

from streamhouse.operators.planning.view_plan import plan_view
from streamhouse.runtime.session.session import Session
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select
from streamhouse.sql.views.stored_view import HIDDEN_KEY

_JOIN = "FROM orders o {} JOIN customers c ON o.customer_id = c.id"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder: Path = tmp_path_factory.mktemp("views") / "warehouse"
    ViewSession(folder)
    session = Session({"warehouse": str(folder)})
    session.catalogs.use_database(("shop",))
    return session


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT * FROM orders", "id"),
        ("SELECT id AS number, price FROM orders WHERE price > 0", "number"),
        ("SELECT price FROM orders", HIDDEN_KEY),
        ("SELECT * FROM visits", HIDDEN_KEY),
        ("SELECT COUNT(*) AS n FROM orders", HIDDEN_KEY),
        ("SELECT id, COUNT(*) AS n FROM orders GROUP BY id", "id"),
        ("SELECT product, COUNT(*) AS n FROM orders GROUP BY product", HIDDEN_KEY),
        (
            "SELECT product, COUNT(*) AS n FROM orders WHERE product IS NOT NULL GROUP BY product",
            "product",
        ),
        ("SELECT COUNT(*) AS n FROM orders GROUP BY product", HIDDEN_KEY),
        (f"SELECT o.id, c.name {_JOIN.format('')}", "id"),
        (f"SELECT o.id, c.name {_JOIN.format('LEFT')}", "id"),
        (f"SELECT o.id, c.name {_JOIN.format('RIGHT')}", HIDDEN_KEY),
        (f"SELECT o.id, c.id AS c {_JOIN.format('FULL')}", HIDDEN_KEY),
        (f"SELECT c.id, o.price {_JOIN.format('')}", HIDDEN_KEY),
        ("SELECT o.id, v.page FROM orders o JOIN visits v USING (customer_id)", HIDDEN_KEY),
        ("SELECT a.id, b.id AS other FROM orders a CROSS JOIN orders b", "id, other"),
        ("SELECT DISTINCT id, price FROM orders", "id"),
        ("SELECT id FROM orders UNION SELECT id FROM customers", "id"),
        ("SELECT id FROM orders UNION ALL SELECT id FROM customers", HIDDEN_KEY),
        ("SELECT id FROM orders EXCEPT SELECT id FROM customers", "id"),
        ("SELECT id, product FROM orders GROUP BY ROLLUP (id, product)", HIDDEN_KEY),
        ("SELECT id, COUNT(*) AS n FROM orders GROUP BY GROUPING SETS ((id))", "id"),
        ("SELECT o.id, t.tag FROM orders o CROSS JOIN UNNEST(o.tags) AS t (tag)", HIDDEN_KEY),
        ("WITH w AS (SELECT id FROM orders) SELECT id FROM w", "id"),
        ("SELECT id + 1 AS id FROM orders", HIDDEN_KEY),
    ],
)
def test_the_key_of_a_query(session: Session, query: str, key: str) -> None:
    (statement,) = parse_script(query)
    assert isinstance(statement, Select)
    assert ", ".join(plan_view(statement.query, session).key) == key
