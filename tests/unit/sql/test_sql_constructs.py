"""All that Flink's grammar has: each construct is run, or told with its place and a way round.

`BOTH` are taken by streams and by queries that end, `ENDING` by the latter only, `NONE` by neither.
"""

from __future__ import annotations

import re

import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.errors import NotStreamedError, SqlError, UnsupportedSqlError
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.batch.dml_plan import analyze_dml
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import DmlStatement, Insert, Query, Select, Statement

NESTED = """
CREATE TABLE nested (id INT, tags ARRAY<STRING>, props MAP<STRING, INT>,
  who ROW<name STRING, age INT>, proc_time AS PROCTIME());
CREATE TABLE kept (id INT PRIMARY KEY NOT ENFORCED, n BIGINT);
"""
ALTERNATIVE = re.compile(
    r"\b(use|write|leave|declare|order|limit|filter|keep|read|store|copy|move|apply|pass|INSERT|DROP|drop|CAST|join|"
    r"number|give|run it once|end the process|compare|change|name|did you mean|named?)\b"
)
FOREIGN = re.compile(
    r"Line \d+, Col|Binder Error|Parser Error|Catalog Error|Not implemented|Expecting|Token|"
    r"sqlglot|DuckDB|LINE \d|Scalar Function|Unexpected",
    re.IGNORECASE,
)
LOOKUP = "JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.customer_id = c.id"
WINDOW = "TABLE({}(TABLE orders, DESCRIPTOR(order_time), {}))"
MINUTE = "INTERVAL '1' MINUTE"
BOTH = (
    "SELECT /*+ BROADCAST(c), SHUFFLE_HASH(c) */ price FROM orders AS c",
    "SELECT /*+ STATE_TTL('o' = '1d') */ price FROM orders AS o",
    f"SELECT o.price, c.country FROM orders AS o {LOOKUP}",
    f"SELECT o.price, c.country FROM orders AS o LEFT {LOOKUP}",
    "SELECT price FROM orders WHERE price > 1 AND customer_id IS NOT NULL",
    "SELECT price FROM orders UNION ALL SELECT price FROM orders",
    "(SELECT price FROM orders) UNION ALL (SELECT price FROM orders)",
    "WITH q AS (SELECT price FROM orders) SELECT price FROM q",
    "SELECT q.price FROM (SELECT price FROM orders) AS q",
    "SELECT ALL price FROM orders",
    f"SELECT window_end, price FROM {WINDOW.format('TUMBLE', MINUTE)}",
    "SELECT tags[1] AS x, CARDINALITY(tags) AS n FROM nested",
    "SELECT props['a'] AS x, who.name AS y, nested.who.age AS z FROM nested",
    "SELECT ARRAY[1, 2] AS a, MAP['k', 1] AS m, ROW(1, 'x') AS r FROM orders",
    "SELECT CAST(ROW(1, 'x') AS ROW<a INT, b STRING>) AS r FROM orders",
    "SELECT CAST(ARRAY['1'] AS ARRAY<INT>) AS a, CAST(ARRAY['1'] AS INT ARRAY) AS b FROM orders",
    "SELECT CAST(MAP['k', '1'] AS MAP<STRING, INT>) AS m FROM orders",
    "SELECT CAST(price AS DECIMAL(20, 4)) AS a, CAST(price AS STRING) AS b FROM orders",
    "SELECT CAST(order_time AS TIME) AS a, CAST(order_time AS TIME(3)) AS b FROM orders",
    "SELECT CAST('a' AS CHAR(3)) AS a, CAST('a' AS VARCHAR(3)) AS b, CAST('a' AS BYTES) AS c, "
    "CAST('a' AS BINARY(2)) AS d FROM orders",
    "SELECT CAST(order_time AS TIMESTAMP_LTZ(3)) AS a, CAST(order_time AS TIMESTAMP(9)) AS b "
    "FROM orders",
    "SELECT CAST(order_time AS TIMESTAMP(3) WITH LOCAL TIME ZONE) AS a FROM orders",
    "SELECT TRY_CAST('x' AS INT) AS a, CAST(1 AS BOOLEAN) AS b FROM orders",
    "SELECT price BETWEEN 1 AND 2 AS a, price NOT BETWEEN SYMMETRIC 2 AND 1 AS b FROM orders",
    "SELECT b IS UNKNOWN AS x, b IS NOT UNKNOWN AS y, b IS TRUE AS z FROM typed",
    "SELECT s LIKE 'a!%' ESCAPE '!' AS x, s NOT LIKE 'b%' AS y FROM typed",
    "SELECT s ILIKE 'a%' AS x, s RLIKE 'a.*' AS y FROM typed",
    "SELECT i IN (1, 2) AS x, i NOT IN (1) AS y, (i, n) IN ((1, 2)) AS z FROM typed",
    "SELECT i IS DISTINCT FROM n AS x, i <> n AS y, i != n AS z FROM typed",
    "SELECT CASE i WHEN 1 THEN 'a' WHEN 2 THEN 'b' ELSE 'c' END AS x FROM typed",
    "SELECT COALESCE(i, 1) AS x, NULLIF(i, 1) AS y, IF(i > 1, 'a', 'b') AS z FROM typed",
    "SELECT JSON_VALUE(s, '$.a' RETURNING INT) AS x, JSON_EXISTS(s, '$.a') AS y FROM typed",
    "SELECT t + INTERVAL '1' DAY AS a, t - INTERVAL '2' HOURS AS b FROM typed",
    "SELECT EXTRACT(DOW FROM t) AS a, FLOOR(t TO HOUR) AS b, CEIL(t TO MONTH) AS c FROM typed",
    "SELECT TIMESTAMPDIFF(DAY, t, t) AS a, TIMESTAMPADD(HOUR, 1, t) AS b FROM typed",
    "SELECT TRIM(BOTH 'x' FROM s) AS a, SUBSTRING(s FROM 1 FOR 2) AS b, "
    "POSITION('a' IN s) AS c FROM typed",
    "SELECT m / n AS a, m * 2 AS b, n / 2 AS c, MOD(n, 2) AS d, -m AS e FROM typed",
    "SELECT CURRENT_DATE AS a, LOCALTIME AS b, CURRENT_TIMESTAMP AS c, PROCTIME() AS d FROM typed",
    "SELECT DATE '2026-01-01' AS a, TIME '10:00:00' AS b, TIMESTAMP '2026-01-01 00:00:00' AS c "
    "FROM typed",
    "SELECT `price` AS `the price` FROM `orders`",
)
ENDING = (
    ("SELECT price FROM orders NATURAL JOIN customers", "join"),
    ("SELECT price FROM orders QUALIFY ROW_NUMBER() OVER (ORDER BY price) = 1", "QUALIFY"),
    ("SELECT COUNT(*) AS n FROM orders GROUP BY 1", "aggregation"),
    ("SELECT DISTINCT price FROM orders", "DISTINCT"),
    ("SELECT price FROM orders ORDER BY price DESC NULLS LAST", "ORDER BY"),
    ("SELECT price FROM orders LIMIT 3", "LIMIT"),
    ("SELECT price FROM orders FETCH FIRST 3 ROWS ONLY", "LIMIT"),
    ("SELECT price FROM orders FETCH NEXT ROW ONLY", "LIMIT"),
    ("SELECT price FROM orders OFFSET 3 ROWS", "OFFSET"),
    ("SELECT COUNT(*) AS n FROM orders", "aggregation"),
    ("SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id HAVING COUNT(*) > 1",
     "HAVING"),
    ("INSERT INTO country_sales SELECT country, COUNT(*), 1 FROM customers "
     "GROUP BY GROUPING SETS ((country), ())", "GROUPING SETS"),
    ("INSERT INTO country_sales SELECT country, COUNT(*), 1 FROM customers GROUP BY CUBE (country)",
     "CUBE"),
    ("INSERT INTO country_sales SELECT country, COUNT(*), 1 FROM customers "
     "GROUP BY ROLLUP (country)", "ROLLUP"),
    ("SELECT ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY price) AS n FROM orders",
     "window function"),
    ("SELECT SUM(price) OVER (ORDER BY order_time RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND "
     "CURRENT ROW) AS s FROM orders", "window function"),
    ("SELECT SUM(price) OVER w AS s FROM orders WINDOW w AS (ORDER BY order_time ROWS BETWEEN 2 "
     "PRECEDING AND CURRENT ROW)", "WINDOW"),
    ("SELECT LAG(price, 1) OVER (ORDER BY order_time) AS s FROM orders", "window function"),
    ("SELECT price FROM orders UNION SELECT price FROM orders", "UNION"),
    ("SELECT price FROM orders INTERSECT SELECT price FROM orders", "INTERSECT"),
    ("SELECT price FROM orders INTERSECT ALL SELECT price FROM orders", "INTERSECT"),
    ("SELECT price FROM orders EXCEPT SELECT price FROM orders", "EXCEPT"),
    ("SELECT price FROM orders UNION ALL SELECT price FROM orders ORDER BY price LIMIT 1", "ORDER"),
    ("SELECT o.price FROM orders AS o JOIN customers AS c ON o.customer_id = c.id", "join"),
    ("SELECT o.price FROM orders AS o FULL OUTER JOIN customers AS c ON o.customer_id = c.id",
     "join"),
    ("SELECT o.price FROM orders AS o CROSS JOIN customers AS c", "join"),
    ("SELECT o.price FROM orders AS o, customers AS c WHERE o.customer_id = c.id", "join"),
    ("SELECT name FROM customers AS c JOIN customers_cdc USING (id, name)", "join"),
    ("SELECT o.price FROM orders AS o JOIN orders AS p ON o.order_id = p.order_id AND p.order_time "
     "BETWEEN o.order_time - INTERVAL '1' HOUR AND o.order_time", "join"),
    (f"SELECT o.price FROM orders AS o RIGHT {LOOKUP}", "RIGHT JOIN"),
    ("SELECT price FROM orders WHERE customer_id IN (SELECT id FROM customers)", "subquery"),
    ("SELECT price FROM orders WHERE customer_id NOT IN (SELECT id FROM customers)", "subquery"),
    ("SELECT price FROM orders AS o WHERE EXISTS (SELECT 1 FROM customers AS c WHERE c.id = "
     "o.customer_id)", "subquery"),
    ("SELECT price FROM orders WHERE customer_id = ANY (SELECT id FROM customers)", "subquery"),
    ("SELECT (SELECT MAX(id) FROM customers) AS x FROM orders", "subquery"),
    ("SELECT o.price FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON "
     "o.customer_id = c.id AND c.id IN (SELECT id FROM customers)", "subquery"),
    ("SELECT t.x FROM nested CROSS JOIN UNNEST(tags) AS t (x)", "UNNEST"),
    ("SELECT n.id, t.x FROM nested AS n, UNNEST(n.tags) AS t (x)", "UNNEST"),
    ("SELECT t.a FROM (VALUES (1), (2)) AS t (a)", "VALUES"),
    ("SELECT x.p FROM (SELECT price FROM orders) AS x (p)", "column names after an alias"),
    ("SELECT n FROM (SELECT COUNT(*) AS n FROM orders GROUP BY customer_id) AS q", "aggregation"),
    ("VALUES (1, 'a'), (2, 'b')", "VALUES"),
    ("SELECT 1 AS one", "FROM"),
    *((f"SELECT window_end, SUM(price) AS s FROM {WINDOW.format(name, rest)} GROUP BY window_end",
       word) for name, rest, word in (
        ("TUMBLE", MINUTE, "merge-engine"), ("HOP", f"{MINUTE}, {MINUTE}", "UNNEST"),
        ("CUMULATE", f"{MINUTE}, {MINUTE}", "UNNEST"),
        ("SESSION", MINUTE, "window function"))),
    (f"SELECT TUMBLE_END(order_time, {MINUTE}) AS e, SUM(price) AS s FROM orders GROUP BY "
     f"TUMBLE(order_time, {MINUTE})", "merge-engine"),
    ("SELECT SUM(price) FROM orders GROUP BY SESSION(order_time, INTERVAL '1' DAY)",
     "window function"),
    ("INSERT INTO kept SELECT id, COUNT(*) FROM nested GROUP BY id", "merge-engine"),
    ("INSERT INTO TABLE kept SELECT id, COUNT(tags[1]) FROM nested GROUP BY id",
     "merge-engine"),
)  # fmt: skip
NONE = (
    ("SELECT CUMULATE(order_time, INTERVAL '1' DAY) FROM orders", "FROM CUMULATE(TABLE"),
    ("SELECT * FROM orders PIVOT (SUM(price) FOR customer_id IN (1, 2))", "PIVOT"),
    ("SELECT * FROM orders UNPIVOT (v FOR k IN (price, order_id))", "UNPIVOT"),
    ("SELECT price FROM orders TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE"),
    ("SELECT price FROM orders AS o TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
    ("SELECT price FROM orders, LATERAL TABLE(split(name)) AS t (w)", "LATERAL TABLE"),
    ("SELECT price FROM orders LEFT JOIN LATERAL TABLE(split(name)) AS t (w) ON TRUE",
     "LATERAL TABLE"),
    ("SELECT w FROM nested LATERAL VIEW EXPLODE(tags) x AS w", "LATERAL VIEW"),
    ("SELECT * FROM TABLE(f(1))", "F"),
    ("SELECT * FROM f(r => TABLE orders)", "F"),
    ("SELECT * FROM ML_PREDICT(TABLE orders, MODEL m, DESCRIPTOR(price))", "ML_PREDICT"),
    ("SELECT o.price FROM orders AS o JOIN (SELECT id FROM customers) FOR SYSTEM_TIME AS OF "
     "o.proc_time AS c ON o.customer_id = c.id", "FOR SYSTEM_TIME"),
    ("SELECT o.price FROM orders AS o JOIN (SELECT id FROM customers) AS c FOR SYSTEM_TIME AS OF "
     "o.proc_time ON o.customer_id = c.id", "FOR SYSTEM_TIME"),
    ("SELECT price FROM orders FOR SYSTEM_TIME BETWEEN 1 AND 2", "AS OF"),
    ("SELECT price FROM orders FETCH FIRST 3 ROWS WITH TIES", "WITH TIES"),
    ("SELECT price FROM orders FOR UPDATE", "FOR UPDATE"),
    ("SELECT UPPER(s => 'a') FROM typed", "named arguments"),
    ("SELECT price FROM orders WHERE customer_id = ?", "parameters"),
    ("SELECT price FROM orders WHERE customer_id = :id", "parameters"),
    ("SELECT ARRAY_TRANSFORM(tags, x -> x) FROM nested", "ARRAY_TRANSFORM"),
    ("SELECT CARDINALITY(x -> x) FROM nested", "lambdas"),
    ("SELECT MULTISET[1, 2] FROM orders", "multisets"),
    ("SELECT id FROM nested WHERE tags MEMBER OF tags", "multisets"),
    ("SELECT CAST(price AS MULTISET<INT>) FROM orders", "MULTISET"),
    ("SELECT CAST(price AS RAW('a', 'b')) FROM orders", "RAW"),
    ("SELECT CAST(price AS VARIANT) FROM orders", "VARIANT"),
    ("SELECT CAST('1' AS INTERVAL DAY) FROM orders", "INTERVAL"),
    ("SELECT CAST(order_time AS TIMESTAMP(3) WITH TIME ZONE) FROM orders", "WITH TIME ZONE"),
    ("SELECT s COLLATE x FROM typed", "COLLATE"),
    ("SELECT t AT TIME ZONE 'UTC' FROM typed", "AT TIME ZONE"),
    ("SELECT UNNEST(tags) FROM nested", "UNNEST"),
    ("SELECT db.my_function(price) FROM orders", "MY_FUNCTION"),
    ("SELECT INT(s) FROM typed", "INT"),
    ("SELECT ARRAY(SELECT 1) FROM typed", "ARRAY"),
    ("SELECT MAP('a', 1) FROM typed", "MAP"),
    ("INSERT INTO kept SELECT id, 1 FROM nested ON CONFLICT DO NOTHING", "ON CONFLICT"),
    ("CREATE FUNCTION f AS 'org.example.F'", "functions"),
    ("CREATE TEMPORARY FUNCTION IF NOT EXISTS f AS 'org.example.F' LANGUAGE SCALA", "functions"),
    ("CREATE FUNCTION f AS 'example.f' LANGUAGE PYTHON USING JAR 'f.jar'", "USING JAR"),
    ("CREATE FUNCTION f AS 'example.f' LANGUAGE PYTHON WITH ('a' = 'b')", "options of a function"),
    ("CREATE TEMPORARY SYSTEM FUNCTION f AS 'x'", "functions"),
    ("ALTER FUNCTION f AS 'x'", "ALTER FUNCTION"),
    ("CREATE MODEL m INPUT (a INT) OUTPUT (b INT) WITH ('provider' = 'x')", "models"),
    ("ALTER MODEL m RENAME TO n", "models"),
    ("DROP MODEL m", "models"),
    ("CREATE OR REPLACE TABLE t AS SELECT 1 AS a", "CREATE OR REPLACE"),
    ("CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES u (a))", "FOREIGN"),
    ("CREATE TABLE t (a INT, CHECK (a > 0))", "CHECK"),
    ("CREATE TABLE t (a INT, CONSTRAINT c UNIQUE (a))", "constraint"),
    ("CREATE TABLE t (a INT MULTISET)", "MULTISET"),
    ("CREATE TABLE t (a RAW('x', 'y'))", "RAW"),
    ("CREATE TABLE t (a INTERVAL DAY TO SECOND)", "INTERVAL"),
    ("CREATE TABLE t (a INT) DISTRIBUTED INTO 4 BUCKETS", "DISTRIBUTED"),
    ("CREATE CATALOG c COMMENT 'x' WITH ('type' = 'paimon')", "COMMENT"),
    ("CREATE VIEW v AS VALUES (1)", "VALUES"),
    ("ALTER VIEW v AS SELECT 1", "ALTER VIEW"),
    ("ALTER CATALOG c SET ('a' = 'b')", "ALTER CATALOG"),
    ("ALTER DATABASE d SET ('a' = 'b')", "ALTER DATABASE"),
    ("ALTER TABLE t ADD CONSTRAINT c PRIMARY KEY (a) NOT ENFORCED", "primary key"),
    ("ALTER TABLE t ADD DISTRIBUTION BY (a)", "DISTRIBUTION"),
    ("ALTER TABLE t PARTITION (p = '1') COMPACT", "PARTITION"),
    ("ANALYZE TABLE orders COMPUTE STATISTICS FOR ALL COLUMNS", "ANALYZE"),
    ("COMPILE PLAN 'p.json' FOR INSERT INTO kept SELECT 1, 2", "COMPILE PLAN"),
    ("EXECUTE PLAN 'p.json'", "EXECUTE PLAN"),
    ("EXPLAIN PLAN FOR DROP TABLE t", "EXPLAIN"),
    ("EXPLAIN ESTIMATED_COST, CHANGELOG_MODE SELECT 1", "EXPLAIN"),
    ("STOP JOB '1' WITH SAVEPOINT", "STOP JOB"),
    ("ADD JAR '/x.jar'", "ADD JAR"),
    ("LOAD MODULE hive WITH ('a' = 'b')", "LOAD MODULE"),
    ("USE MODULES core, hive", "USE MODULES"),
    ("SHOW FULL MODULES", "modules"),
    ("SHOW JARS", "SHOW JARS"),
    ("SHOW PARTITIONS orders", "SHOW PARTITIONS"),
    ("SHOW PROCEDURES", "SHOW PROCEDURES"),
    ("SHOW CREATE CATALOG c", "SHOW CREATE CATALOG"),
    ("DESCRIBE JOB '1'", "DESCRIBE JOB"),
    ("DESC CATALOG EXTENDED c", "DESCRIBE CATALOG"),
    ("DESCRIBE EXTENDED orders", "DESCRIBE EXTENDED"),
    ("TABLE orders", "TABLE"),
    ("UPSERT INTO kept VALUES (1, 2)", "UPSERT"),
)  # fmt: skip


@pytest.fixture
def tables(catalog: Catalog) -> Catalog:
    catalog.add(NESTED)
    return catalog


def run(catalog: Catalog, text: str, bounded: bool) -> None:
    """Read and plan the one statement of a text, as a stream or as a bounded query."""
    (statement,) = parse_script("-- one line above\n" + text)
    query, target = _parts(catalog, statement)
    if query is not None and bounded:
        analyze_bounded(query, catalog, target)
    elif query is not None:
        plan_stream_queries(query, catalog, target)
    elif isinstance(statement, DmlStatement):
        analyze_dml(statement, catalog)


def _parts(catalog: Catalog, statement: Statement) -> tuple[Query | None, TableInfo | None]:
    if isinstance(statement, Insert):
        return statement.query, catalog.table(statement.target)
    return (statement.query, None) if isinstance(statement, Select) else (None, None)


def refusal(catalog: Catalog, text: str, bounded: bool) -> str:
    """The message of a construct that is not supported, its form checked."""
    with pytest.raises(UnsupportedSqlError) as caught:
        run(catalog, text, bounded)
    error = caught.value
    # What no streaming query computes, a view does: that needs no place and no advice.
    if not isinstance(error, NotStreamedError):
        assert (error.line, error.column > 0, bool(error.snippet.strip())) == (2, True, True)
        assert ALTERNATIVE.search(error.message), error.message
    assert not FOREIGN.search(error.message), error.message
    return error.message


@pytest.mark.parametrize("text", BOTH)
def test_supported_on_streams_and_in_bounded_queries(tables: Catalog, text: str) -> None:
    run(tables, text, bounded=False)
    run(tables, text, bounded=True)


@pytest.mark.parametrize(("text", "word"), ENDING)
def test_supported_in_bounded_queries_only(tables: Catalog, text: str, word: str) -> None:
    assert word in refusal(tables, text, bounded=False)
    run(tables, text, bounded=True)


@pytest.mark.parametrize(("text", "word"), NONE)
def test_supported_nowhere(tables: Catalog, text: str, word: str) -> None:
    for bounded in (False, True):
        assert word.lower() in refusal(tables, text, bounded).lower()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM a AS x JOIN b AS x ON x.id = x.id",
        "SELECT id FROM customers AS c, customers_cdc AS c",
        "SELECT id, name FROM customers UNION SELECT id FROM customers",
        "SELECT id FROM customers ORDER BY 7",
        "SELECT o.price FROM orders AS o JOIN customers AS c USING (nothing)",
        "SELECT SUM(SUM(price)) FROM orders",
        "SELECT UPPER(price) + 1 FROM orders",
        "SELECT price FROM orders AS c FOR SYSTEM_TIME AS OF c.proc_time",
        "SELECT CAST(price AS DECIMAL(50, 2)) FROM orders",
        "SELECT CAST(price AS NUMBERS) FROM orders",
        "SELECT CAST(price AS UUID) FROM orders",
        "SELECT CAST(price AS JSON) FROM orders",
        "SELECT CAST(price AS HUGEINT) FROM orders",
        "SELECT TRY_CAST(price AS INET) FROM orders",
        "SELECT CAST(price) FROM orders",
        "SELECT price FROM orders LIMIT x",
        "SELECT price FROM orders WHERE",
        "SELECT price FROM orders o p q",
        "SELECT price, FROM orders",
        "SELECT a.b.c.d.e FROM orders",
        "VALUES (1, 2), (3)",
        "INSERT INTO kept VALUES ()",
        "SELECT CASE WHEN 1 THEN 2 FROM orders",
        "SELECT ) FROM orders",
        "SELECT 1 FROM orders GROUP BY",
        "DELETE FROM kept WHERE",
        "UPDATE kept SET n = (1",
    ],
)
def test_mistakes_have_messages_for_users(tables: Catalog, text: str) -> None:
    for bounded in (False, True):
        with pytest.raises(SqlError) as caught:
            run(tables, text, bounded)
        if not isinstance(caught.value, NotStreamedError):
            assert caught.value.line == 2 and caught.value.column > 0
        assert not re.search(r"Line \d+, Col|Error:|Token|sqlglot", caught.value.message)
