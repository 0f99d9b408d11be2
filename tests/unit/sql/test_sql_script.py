"""Parses scripts into statements; every error has a line and a column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.plan import Column, ComputedColumn
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import (
    CreateCatalog,
    CreateDatabase,
    CreateTable,
    Describe,
    Drop,
    Explain,
    Insert,
    ResetOption,
    Select,
    SetOption,
    Show,
    Statement,
    StatementSet,
    TextPosition,
    UseCatalog,
    UseDatabase,
)

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

P = TextPosition(1, 1)
REVENUE = Path(__file__).parent / "fixtures" / "revenue.sql"


def one(text: str) -> Statement:
    (statement,) = parse_script(text)
    return statement


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "CREATE CATALOG c WITH ('type' = 'paimon')",
            CreateCatalog(P, "", "c", {"type": "paimon"}),
        ),
        ("USE CATALOG c", UseCatalog(P, "", "c")),
        ("USE d", UseDatabase(P, "", ("d",))),
        ("use `c`.`d e`", UseDatabase(P, "", ("c", "d e"))),
        ("CREATE DATABASE IF NOT EXISTS d COMMENT 'x'", CreateDatabase(P, "", ("d",), True, "x")),
        ("DROP TABLE IF EXISTS a.b", Drop(P, "", "TABLE", ("a", "b"), True)),
        ("DROP TEMPORARY TABLE t", Drop(P, "", "TABLE", ("t",), False, True)),
        ("DROP CATALOG c", Drop(P, "", "CATALOG", ("c",))),
        ("SET 'a.b' = 'it''s'", SetOption(P, "", "a.b", "it's")),
        ("SET table.local-time-zone = UTC", SetOption(P, "", "table.local-time-zone", "UTC")),
        ("SET", SetOption(P, "")),
        ("RESET 'a'", ResetOption(P, "", "a")),
        ("RESET", ResetOption(P, "")),
        ("SHOW TABLES", Show(P, "", "TABLES")),
        ("SHOW CREATE TABLE a.b", Show(P, "", "CREATE TABLE", ("a", "b"))),
        ("DESC t", Describe(P, "", ("t",))),
    ],
)
def test_statements(text: str, expected: Statement) -> None:
    result = one(text)
    assert type(result) is type(expected)
    assert {**vars(result), "text": ""} == vars(expected)
    assert result.text == text


def test_create_table() -> None:
    made = one(
        "CREATE TEMPORARY TABLE IF NOT EXISTS c.d.t (\n"
        "  id int PRIMARY KEY NOT ENFORCED, name VARCHAR(10) NOT NULL COMMENT 'who', s string,\n"
        "  e VARCHAR(2147483647), m decimal(10,2), n NUMERIC, at_ TIMESTAMP,\n"
        "  z TIMESTAMP(3) WITH LOCAL TIME ZONE, l TIMESTAMP_LTZ(3), p AS PROCTIME(),\n"
        "  q AS m * 2 COMMENT 'twice', a ARRAY<ROW<x INT NOT NULL, `y z` MAP<STRING, BIGINT>>>,\n"
        "  f DOUBLE PRECISION, `order` BYTES, ti TIME(3)\n"
        ") COMMENT 'people' PARTITIONED BY (name, s) WITH ('k' = 'v''w', 'password' = 'p;')"
    )
    assert isinstance(made, CreateTable)
    assert made.name == ("c", "d", "t") and made.temporary and made.if_not_exists
    assert {column.name: column.type for column in made.columns} == {
        "id": "INT", "name": "VARCHAR(10)", "s": "STRING", "e": "STRING", "m": "DECIMAL(10, 2)",
        "n": "DECIMAL(10, 0)", "at_": "TIMESTAMP(6)", "z": "TIMESTAMP_LTZ(3)",
        "l": "TIMESTAMP_LTZ(3)", "a": "ARRAY<ROW<x INT NOT NULL, `y z` MAP<STRING, BIGINT>>>",
        "f": "DOUBLE", "order": "BYTES", "ti": "TIME(3)",
    }  # fmt: skip
    assert made.columns[:2] == (
        Column("id", "INT", nullable=False),
        Column("name", "VARCHAR(10)", nullable=False, comment="who"),
    )
    assert made.computed == (ComputedColumn("p", "PROCTIME()", 9), ComputedColumn("q", "m * 2", 10))
    assert (made.primary_key, made.partitioned_by) == (("id",), ("name", "s"))
    assert made.options == {"k": "v'w", "password": "p;"} and made.comment == "people"
    assert "p;" not in repr(made)


def test_insert_and_sets() -> None:
    text = (
        "-- first; comment\nINSERT OVERWRITE a.t /*+ OPTIONS('x'='1;2') */ (b, c)\nVALUES (1, ';')"
    )
    made = one(text)
    assert isinstance(made, Insert)
    assert (made.target, made.columns, made.overwrite) == (("a", "t"), ("b", "c"), True)
    assert made.options == {"x": "1;2"} and made.query.text == "VALUES (1, ';')"
    assert (made.position, made.query.position) == (TextPosition(2, 1), TextPosition(3, 1))
    inserts = "INSERT INTO a SELECT CASE WHEN x THEN 1 END FROM t; INSERT INTO b SELECT 1;"
    for whole in (
        f"BEGIN STATEMENT SET; {inserts} END;",
        f"EXECUTE STATEMENT SET BEGIN {inserts} END",
    ):
        group = one(whole)
        assert isinstance(group, StatementSet)
        assert [insert.target for insert in group.inserts] == [("a",), ("b",)]
    explained = one("EXPLAIN PLAN FOR SELECT 1")
    assert isinstance(explained, Explain) and isinstance(explained.statement, Select)
    assert parse_script(" ; -- nothing\n ; /* ; */ ") == []


def test_revenue_script(catalog: Catalog) -> None:
    """The scenario's whole script parses, and its queries plan."""
    statements = parse_script(REVENUE.read_text())
    catalog.add(REVENUE.read_text())
    inserts = [s for s in statements if isinstance(s, Insert)]
    plans = [catalog.stream(s.text) for s in inserts]
    plans.append(catalog.stream(statements[-1].text))
    assert [p.source.name[-1] for p in plans] == [
        "order_source", "mysql_customers", "orders", "country_sales",
    ]  # fmt: skip
    assert [p.scan.changelog for p in plans] == [False, True, False, True]
    view = plans[2]
    assert view.scan.columns == ("customer_id", "price")
    assert view.lookups[0].columns == ("id", "country")
    assert view.lookups[0].options == {"lookup.async": "true", "lookup.cache": "AUTO"}
    orders = [{"customer_id": 1, "price": 2.5}, {"customer_id": 11, "price": 1.0}]
    customers = [{"id": 1, "country": "France"}]
    assert catalog.rows(inserts[2].text, orders, customers) == [("France", 1, 2.5)]
    assert catalog.misses(inserts[2].text, orders, customers) == [1]


SYNTAX = [
    ("SELCT a FROM t", 1, 1, "'SELCT' is not expected here; did you mean SELECT?"),
    ("SELECT 1;\n\nSELECT a FORM t", 3, 10, "'FORM' is not a keyword; did you mean FROM?"),
    ("SELECT a FROM t WHER a = 1", 1, 17, "'WHER' is not a keyword; did you mean WHERE?"),
    ("SELECT a FROM t GROUP a", 1, 17, "'GROUP' is not a keyword; did you mean GROUP BY?"),
    ("SELECT a FROM t WHERE", 1, 22, "the statement ends too early: expected an expression"),
    ("SELECT CAST(a AS INT FROM t", 1, 22, "'FROM' is not expected here; expected ')'"),
    ("SELECT TRIM(BOTH 'x' FROM a", 1, 28, "the statement ends too early: expected ')'"),
    ("SELECT (a FROM t", 1, 11, "'FROM' is not expected here; expected ')'"),
    ("SELECT", 1, 1, "SELECT needs at least one column"),
    ("SELECT *", 1, 1, "SELECT * needs a FROM"),
    ("INSERT INTO t SELECT 1 WHERE EXISTS (SELECT *)", 1, 15, "SELECT * needs a FROM"),
    ("WITH default ( END CAST(i AS INT) SET", 1, 20, "'CAST' is not expected here"),
    ("SELECT 'a\nFROM t", 1, 8, "this string is never closed; end it with '"),
    ("SELECT 1 /* x", 1, 10, "this comment is never closed; end it with */"),
    ('SELECT "a" FROM t', 1, 8, "double quotes are not used in Flink SQL"),
    ("SELECT a /*+ OPTIONS('x'='y') */ FROM t", 1, 10, "a hint /*+ … */ is only allowed after"),
    ("CREATE TABEL t (a INT)", 1, 8, "'TABEL' is not expected here; did you mean TABLE?"),
    ("CREATE TABLE t (\n  a INTT)", 2, 5, "'INTT' is not expected here; did you mean INT?"),
    ("CREATE TABLE t (a INT,)", 1, 23, "expected a column's name, got )"),
    ("CREATE TABLE t (a DATETIME)", 1, 19, "'DATETIME' is not a Flink type; write TIMESTAMP(3)"),
    ("CREATE TABLE t (a ROW<b text>)", 1, 25, "'TEXT' is not a Flink type; write STRING"),
    ("CREATE TABLE t (a INT PRIMARY KEY)", 1, 34, "expected NOT ENFORCED after PRIMARY KEY, got )"),
    ("CREATE TABLE t (a INT, a INT)", 1, 24, "column 'a' is defined twice"),
    ("CREATE TABLE t (a INT, WATERMARK FOR a AS a)", 1, 38, "WATERMARK: column 'a' is INT"),
    ("CREATE TABLE t (a INT, WATERMARK FOR b AS b)", 1, 38, "WATERMARK: there is no column 'b'"),
    ("CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS)", 1, 51, "expected an expression"),
    (
        "CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS a, WATERMARK FOR a AS a)",
        1,
        55,
        "a table has one WATERMARK; this is the second",
    ),
    (
        "CREATE TABLE t (a INT, PRIMARY KEY (b) NOT ENFORCED)",
        1,
        24,
        "PRIMARY KEY: there is no column 'b'; known: a",
    ),
    ("CREATE TABLE t (a DECIMAL(50, 2))", 1, 19, "DECIMAL(p, s) needs 1 <= p <= 38"),
    ("CREATE TABLE t (a INT) WITH ('k' 'v')", 1, 34, "expected =, got a string"),
    ("CREATE TABLE t (a INT) WITH ('k'='v', 'k'='w')", 1, 39, "option 'k' is given twice"),
    ("CREATE TABLE t (a INT) WTIH ('k'='v')", 1, 24, "expected COMMENT, PARTITIONED BY, WITH"),
    ("INSERT t SELECT 1", 1, 8, "expected INTO, got t"),
    ("INSERT INTO t SELCT 1", 1, 15, "'SELCT' is not expected here; did you mean SELECT?"),
    ("CREATE TABLE a AS", 1, 18, "the statement ends too early: expected SELECT, WITH or VALUES"),
    ("SET x", 1, 6, "the statement ends too early: expected ="),
    ("SHOW TABLE", 1, 6, "'TABLE' is not expected here; did you mean TABLES?"),
    ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1;", 1, 1, "the statement set is never closed"),
    ("BEGIN STATEMENT SET; SELECT 1; END;", 1, 22, "a statement set holds INSERT statements"),
    ("SELECT a FROM t FOR SYSTEM_TIME x AS c", 1, 33, "'x' is not expected here; expected 'AS OF'"),
    ("DROP TABLE a b", 1, 14, "expected the end of the statement (;), got b"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), SYNTAX)
def test_mistakes(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_script(text)
    assert not isinstance(caught.value, UnsupportedSqlError)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.message.startswith(message)


UNSUPPORTED = [
    ("CREATE TABLE t (a INT) DISTRIBUTED BY (a)", 24, "DISTRIBUTED BY is not supported"),
    ("CREATE TABLE t (a MULTISET<INT>)", 19, "type MULTISET is not supported"),
    ("ALTER DATABASE d SET ('a'='b')", 7, "ALTER DATABASE is not supported"),
    ("DROP DATABASE d CASCADE", 17, "CASCADE is not supported"),
    ("SELECT a FROM t FOR SYSTEM_TIME BETWEEN 1 AND 2", 17, "only AS OF a point in time"),
]


@pytest.mark.parametrize(("text", "column", "message"), UNSUPPORTED)
def test_understood_and_not_supported(text: str, column: int, message: str) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        parse_script(text)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert caught.value.message.startswith(message)


def test_the_whole_message() -> None:
    with pytest.raises(SqlError) as caught:
        parse_script("SELECT 1;\n  SELECT a FROM t WHER b = 1;")
    assert str(caught.value) == (
        "line 2, column 19: 'WHER' is not a keyword; did you mean WHERE?\n"
        "    SELECT a FROM t WHER b = 1;\n"
        "                    ^^^^"
    )


def test_no_password_in_a_message() -> None:
    text = "CREATE TABLE t (a INT) WITH ('password' = 'hunter2', 'k' = 7)"
    with pytest.raises(SqlError) as caught:
        parse_script(text)
    assert "hunter2" not in str(caught.value) + repr(caught.value) + caught.value.snippet
    assert "'password' = '*******'" in str(caught.value)
