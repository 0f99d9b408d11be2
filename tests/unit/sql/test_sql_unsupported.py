"""Unsupported constructs: errors with positions and alternatives."""

from __future__ import annotations

import re

import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.errors import UnsupportedSqlError
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import Insert, Select

ALTERNATIVE = re.compile(
    r"\b(use|write|leave|leave out|declare|order|limit|filter|keep|read|put|INSERT|DROP|drop|CAST|"
    r"known|join|a lookup join needs|apply it|number them|give|run it once|add|"
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
    "SELECT DISTINCT price FROM orders",
    "SELECT price FROM orders ORDER BY price",
    "SELECT price FROM orders LIMIT 3",
    "SELECT price FROM orders OFFSET 3",
    "SELECT SUM(price) FROM orders",
    "SELECT customer_id, COUNT(*) FROM orders GROUP BY customer_id HAVING COUNT(*) > 1",
    "SELECT RANK() OVER (PARTITION BY customer_id ORDER BY price) FROM orders",
    "SELECT SUM(price) OVER (PARTITION BY customer_id ORDER BY order_time) FROM orders",
    "SELECT price FROM orders UNION SELECT price FROM orders",
    "SELECT price FROM orders EXCEPT SELECT price FROM orders",
    "SELECT price FROM orders INTERSECT SELECT price FROM orders",
    "SELECT price FROM orders UNION ALL SELECT price FROM orders ORDER BY price",
    "SELECT o.price FROM orders AS o JOIN customers AS c ON o.customer_id = c.id",
    "SELECT o.price FROM orders AS o, customers AS c",
    "SELECT o.price FROM orders AS o FULL JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c "
    "ON o.customer_id = c.id",
    "SELECT o.price FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.order_time AS c "
    "ON o.customer_id = c.id",
    "SELECT o.price FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c "
    "ON o.customer_id > c.id",
    "SELECT price FROM orders WHERE customer_id IN (SELECT id FROM customers)",
    "SELECT price FROM orders WHERE EXISTS (SELECT id FROM customers)",
    "SELECT (SELECT MAX(id) FROM customers) FROM orders",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM orders GROUP BY customer_id) AS q",
    "SELECT x.p FROM orders AS x (p)",
    "WITH q (p) AS (SELECT price FROM orders) SELECT p FROM q",
    "INSERT INTO plain SELECT c.country, COUNT(*), 1 FROM customers AS c GROUP BY c.country",
    "INSERT INTO country_sales SELECT country, MAX(id), 1 FROM customers GROUP BY country",
    "INSERT INTO country_sales SELECT country, COUNT(*), AVG(id) FROM customers GROUP BY country",
    "INSERT INTO country_sales SELECT country, 1, SUM(id) FROM customers GROUP BY name, country",
    "INSERT INTO country_sales SELECT country, COUNT(*), SUM(id) FROM customers "
    "GROUP BY ROLLUP (country)",
    "SELECT price FROM orders FOR SYSTEM_TIME AS OF proc_time",
    "SELECT window_end, SUM(price) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(order_time), "
    "INTERVAL '10' MINUTES)) GROUP BY window_end",
    "SELECT SUM(price) FROM orders GROUP BY TUMBLE(order_time, INTERVAL '1' DAY)",
    "SELECT o.price FROM orders AS o JOIN orders AS p ON o.order_id = p.order_id "
    "AND p.order_time BETWEEN o.order_time - INTERVAL '1' HOUR AND o.order_time",
    "SELECT o.price FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c "
    "USING (id)",
    "INSERT INTO country_sales SELECT country, SUM(n), 1 FROM (SELECT country, COUNT(*) AS n "
    "FROM customers GROUP BY country, name) AS q GROUP BY country",
    "SELECT JSON_QUERY('{}', '$.a' RETURNING STRING) FROM orders",
    "SELECT UUID(), price FROM orders",
    "SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY id ORDER BY name) AS n "
    "FROM customers) WHERE n <= 5",
)


@pytest.mark.parametrize("text", [*STATEMENTS, *QUERIES])
def test_each_error_has_a_position_and_an_alternative(catalog: Catalog, text: str) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        for statement in parse_script("-- one line above\n" + text):
            insert = statement if isinstance(statement, Insert) else None
            target = None if insert is None else catalog.table(insert.target)
            if isinstance(statement, Insert | Select):
                plan_stream_queries(statement.query, catalog, target)
    error = caught.value
    assert (error.line, error.column > 0, bool(error.snippet)) == (2, True, True)
    assert ALTERNATIVE.search(error.message), error.message


def test_the_list_of_unsupported_syntax_is_long() -> None:
    assert len({*STATEMENTS, *QUERIES}) > 50
