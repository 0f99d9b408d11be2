"""Which results only grow while rows are added to their tables."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.views import view_session
from tests.unit.views.generated_queries import Generator
from tests.unit.views.view_session import ViewSession

from streamhouse.operators.planning.view_plan import plan_view
from streamhouse.runtime.session.ddl import define
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Select

APPEND_ONLY = view_session.TABLES.replace(" PRIMARY KEY NOT ENFORCED", "").replace(
    " WITH ('bucket' = '1')", ""
)
GROWING = """
SELECT DISTINCT o.id, page FROM orders o JOIN visits v ON o.customer_id = v.customer_id
SELECT o.id FROM orders o, customers c WHERE o.customer_id = c.id AND amount > 1
SELECT id FROM orders UNION SELECT id FROM customers
SELECT id FROM orders INTERSECT SELECT id FROM customers
SELECT product FROM orders GROUP BY product
SELECT id FROM visits, orders WHERE id IN (SELECT id FROM customers) AND id > 1
SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM visits v WHERE v.customer_id = o.customer_id)
SELECT id, tag FROM orders LEFT JOIN UNNEST(tags) AS t (tag) ON TRUE
WITH w AS (SELECT id FROM customers WHERE vip) SELECT amount FROM w JOIN orders o ON o.id = w.id
""".strip().splitlines()
CHANGING = {
    "SELECT id FROM keyed": "table shop.keyed has updates and deletes",
    "SELECT MAX(amount) AS m FROM orders": "MAX changes",
    "SELECT product FROM orders GROUP BY product HAVING COUNT(*) < 3": "COUNT changes",
    "SELECT o.id FROM orders o LEFT JOIN visits v ON v.customer_id = o.id": "LEFT JOIN",
    "SELECT id FROM orders EXCEPT SELECT id FROM customers": "EXCEPT",
    "SELECT id FROM orders WHERE id NOT IN (SELECT id FROM customers)": "subquery",
    "SELECT id, id IN (SELECT id FROM customers) AS known FROM orders": "subquery",
    "SELECT id FROM orders WHERE amount = (SELECT MAX(seconds) FROM visits)": "",
    "SELECT id, ROW_NUMBER() OVER (ORDER BY price) AS r FROM orders": "ROW_NUMBER OVER",
    "SELECT id FROM orders ORDER BY price LIMIT 3": "LIMIT",
    "SELECT id, NOW() AS seen FROM orders": "current time",
}


def changes_by(query: str) -> str | None:
    session = DraftSession(None)
    script = APPEND_ONLY + "CREATE TABLE keyed (id INT PRIMARY KEY NOT ENFORCED, x INT);" + query
    *definitions, select = parse_script(script)
    for definition in definitions:
        define(session, definition)
    assert isinstance(select, Select)
    return plan_view(select.query, session).changes_by


@pytest.mark.parametrize("query", GROWING)
def test_results_that_only_grow(query: str) -> None:
    assert changes_by(query) is None


@pytest.mark.parametrize("query", CHANGING)
def test_results_that_change(query: str) -> None:
    found = changes_by(query)
    assert found is not None and CHANGING[query] in found


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 60))]
)
def test_no_row_leaves_a_generated_result_that_only_grows(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_session, "TABLES", APPEND_ONLY)
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    queries = [Generator(seed * 500 + n).query() for n in range(150)]
    growing = [*GROWING, *(query for query in queries if changes_by(query) is None)]
    before = {query: session.rows(query) for query in growing}
    for number in range(3):
        inserts = view_session.change(rng, number).split("; ")
        session.execute("; ".join(s for s in inserts if s.startswith("INSERT")))
        for query in growing:
            rows = session.rows(query)
            assert not before[query] - rows, query
            before[query] = rows
    assert len(growing) > len(GROWING) + 5
