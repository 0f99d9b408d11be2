"""EXPLAIN draws the tree of a view."""

from __future__ import annotations

import re

import pytest

from streamhouse.runtime.session.ddl import define
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.runtime.statements.explain import explain
from streamhouse.runtime.statements.script_plan import plan_script
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Explain

_TABLES = """
CREATE TABLE orders (id INT PRIMARY KEY NOT ENFORCED, customer_id INT, price DECIMAL(10, 2));
CREATE TABLE customers (id INT PRIMARY KEY NOT ENFORCED, country STRING);
CREATE TABLE totals (country STRING PRIMARY KEY NOT ENFORCED, most DECIMAL(10, 2));
"""
_SELECT = """SELECT c.country, MAX(o.price) AS most FROM orders o JOIN customers c
ON o.customer_id = c.id GROUP BY c.country HAVING COUNT(*) > 1"""
_TREE = """
└─ filter (COUNT(*) > 1) [key c.country; emits inserts, updates and deletes]
   └─ aggregate by c.country: MAX(o.price), COUNT(*) [key c.country; emits inserts, updates and
      └─ inner join on o.customer_id = c.id [emits inserts, updates and deletes; keeps its left
         ├─ scan orders (customer_id, price) [emits inserts, updates and deletes]
         └─ scan customers (id, country) [key c.id; emits inserts, updates and deletes]
""".strip().splitlines()
_ROLLUP = "SELECT country, COUNT(*) AS n FROM customers GROUP BY ROLLUP (country)"


def _explained(statement: str) -> list[str]:
    session = DraftSession(None)
    *definitions, explained = parse_script(f"{_TABLES}{statement}")
    for definition in definitions:
        define(session, definition)
    assert isinstance(explained, Explain)
    return explain(session, explained)


@pytest.mark.parametrize(
    ("statement", "sink"),
    [
        (f"EXPLAIN CREATE MATERIALIZED VIEW v AS {_SELECT}", "a hidden hash of country"),
        (f"EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW v AS {_SELECT}", "a hidden hash of country"),
        (f"EXPLAIN INSERT INTO totals {_SELECT}", "country"),
        (f"EXPLAIN {_SELECT}", "a hidden hash of country"),
    ],
)
def test_the_tree_of_a_view(statement: str, sink: str) -> None:
    first, *rest = _explained(statement)
    assert first.startswith(f"sink by {sink} [key ")
    for line, expected in zip(rest, _TREE, strict=False):
        assert re.sub(r"scan \S+\.", "scan ", line).startswith(expected)
    assert any(line.startswith("incremental: each operator") for line in rest)


def test_a_reason_why_an_operator_has_no_delta_form() -> None:
    query = "SELECT id, FIRST_VALUE(country) AS c FROM customers GROUP BY id"
    lines = _explained(f"EXPLAIN CREATE MATERIALIZED VIEW v AS {query}")
    assert any("recomputed: an aggregate depends on the order of rows" in line for line in lines)
    assert any(line.startswith("recompute: the whole tree") for line in lines)


def test_inexact_numbers_without_a_key_are_recomputed() -> None:
    query = "SELECT CAST(id AS DOUBLE) AS d FROM orders EXCEPT ALL SELECT id / 8.0e0 FROM customers"
    lines = _explained(f"EXPLAIN CREATE MATERIALIZED VIEW v AS {query}")
    assert any("recomputed: it has no key, and numbers that are not" in line for line in lines)
    assert any(line.startswith("recompute: the whole tree") for line in lines)


def test_what_tasks_of_a_large_refresh_exchange() -> None:
    found = _explained(
        "SET 'view.parallel-rows' = '1000000'; SET 'parallelism.default' = '4'; "
        f"EXPLAIN CREATE MATERIALIZED VIEW v AS {_SELECT}"
    )
    (line,) = (line for line in found if "exchange" in line)
    assert re.sub(r"scan \S+\.", "scan ", line) == (
        "recomputed by 4 tasks from 1,000,000 rows on, which exchange scan orders (customer_id, "
        "price) by o.customer_id; scan customers (id, country) by c.id; inner join on "
        "o.customer_id = c.id by c.country"
    )
    for alone in (f"INSERT INTO totals {_SELECT}", "SELECT COUNT(*) AS n FROM orders"):
        lines = _explained(f"SET 'view.parallel-rows' = '1'; EXPLAIN {alone}")
        assert not any("exchange" in line for line in lines)


def test_explain_defines_no_view() -> None:
    text = f"{_TABLES}EXPLAIN CREATE MATERIALIZED VIEW v AS {_ROLLUP}; SELECT * FROM v;"
    with pytest.raises(Exception, match="v"):
        list(plan_script(DraftSession(None), parse_script(text)))
