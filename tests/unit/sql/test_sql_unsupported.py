"""Unsupported constructs: errors with positions and alternatives."""

from __future__ import annotations

import re

import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.errors import NotStreamedError, UnsupportedSqlError
from streamhouse.operators.planning.view_plan import plan_view
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import Insert, Select

ALTERNATIVE = re.compile(
    r"\b(use|write|[Ll]eave|leave out|declare|order|limit|filter|keep|read|put|INSERT|DROP|drop|"
    r"CAST|known|join|a lookup join needs|apply it|number them|give|run it once|add|"
    r"end the process|store|copy|move)\b"
)
STATEMENTS = (
    "ANALYZE TABLE orders COMPUTE STATISTICS",
    "ADD JAR 'x.jar'",
    "REMOVE JAR 'x.jar'",
    "LOAD MODULE hive",
    "UNLOAD MODULE hive",
    "COMPILE PLAN 'p' FOR SELECT 1",
    "STOP JOB 'j'",
    "QUIT",
    "EXIT",
    "CLEAR",
    "HELP",
    "CREATE OR REPLACE TABLE t (a INT)",
    "CREATE VIEW v WITH ('a' = 'b') AS SELECT 1",
    "CREATE DATABASE d WITH ('a' = 'b')",
    "CREATE TABLE t (a INT) DISTRIBUTED BY (a)",
    "CREATE TABLE t (a MULTISET<INT>)",
    "CREATE TABLE t (a VARIANT)",
    "CREATE TABLE t (a TIMESTAMP(3) WITH TIME ZONE)",
    "DROP DATABASE d CASCADE",
    "USE MODULES hive",
    "DESCRIBE EXTENDED orders",
    "EXPLAIN CHANGELOG_MODE SELECT price FROM orders",
    "CREATE FUNCTION f AS 'org.example.F'",
    "CREATE TEMPORARY SYSTEM FUNCTION f AS 'org.example.F' LANGUAGE JAVA",
    "ALTER TEMPORARY FUNCTION f AS 'org.example.F'",
)
QUERIES = (
    "SELECT o.price FROM orders AS o FULL JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS"
    " c ON o.customer_id = c.id",
    "SELECT o.price FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.order_time AS c "
    "ON o.customer_id = c.id",
    "SELECT o.price FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON"
    " o.customer_id > c.id",
    "SELECT price FROM orders FOR SYSTEM_TIME AS OF proc_time",
    "SELECT o.price FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c "
    "USING (id)",
    "SELECT JSON_QUERY('{}', '$.a' RETURNING INT) FROM orders",
    "SELECT UUID(), price FROM orders",
)


@pytest.mark.parametrize("text", [*STATEMENTS, *QUERIES])
def test_each_error_has_a_position_and_an_alternative(catalog: Catalog, text: str) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        for statement in parse_script("-- one line above\n" + text):
            insert = statement if isinstance(statement, Insert) else None
            target = None if insert is None else catalog.table(insert.target)
            if isinstance(statement, Insert | Select):
                try:
                    plan_stream_queries(statement.query, catalog, target)
                except NotStreamedError:
                    plan_view(statement.query, catalog)
    error = caught.value
    assert (error.line, error.column > 0, bool(error.snippet)) == (2, True, True)
    assert ALTERNATIVE.search(error.message), error.message


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("WITH a AS (INSERT INTO t VALUES (1)) SELECT 1 AS b", "INSERT"),
        ("WITH a AS (SELECT 1 AS b) DELETE FROM t", "DELETE"),
        ("WITH a AS (ALTER TABLE t ADD c INT) SELECT 1 AS b", "ALTER"),
        ("SELECT * FROM (DESCRIBE t)", "DESCRIBE"),
        ("WITH a AS (1 + 1) SELECT 1 AS b", "a"),
    ],
)
def test_statements_in_queries_are_refused_at_their_first_word(text: str, word: str) -> None:
    with pytest.raises(UnsupportedSqlError, match="a query must be SELECT or VALUES") as caught:
        parse_script(text)
    assert caught.value.snippet == word


@pytest.mark.parametrize("text", ["TRUNCATE(b, 1)", "REPLACE(b, 'x', 'y')"])
def test_functions_named_as_statements_begin_are_expressions(text: str) -> None:
    assert parse_script(f"CREATE TABLE t (b STRING, c AS {text})")
