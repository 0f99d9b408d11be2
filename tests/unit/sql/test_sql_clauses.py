"""Clauses that scripts for Flink have around their queries: PARTITION, WATERMARK, STATEMENT SET."""

from __future__ import annotations

from datetime import date
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.errors import SqlError
from streamhouse.sql.plan import StreamQuery, Watermark
from streamhouse.sql.resolution.insert_target import given_columns
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import CreateTable, Explain, Insert, StatementSet

TABLES = """
CREATE TABLE log_ (id BIGINT, agent STRING, n INT);
CREATE TABLE days (id BIGINT, agent STRING, day_ DATE, hour_ INT, n INT,
  PRIMARY KEY (id, day_, hour_) NOT ENFORCED) PARTITIONED BY (day_, hour_)
  WITH ('sequence.field' = 'n');
CREATE TABLE sums (agent STRING, day_ DATE, members BIGINT, n BIGINT,
  PRIMARY KEY (agent, day_) NOT ENFORCED) PARTITIONED BY (day_)
  WITH ('merge-engine' = 'aggregation', 'fields.default-aggregate-function' = 'sum');
"""
DAY = date(2026, 5, 1)


@pytest.fixture
def days(catalog: Catalog) -> Catalog:
    catalog.add(TABLES)
    return catalog


def planned(catalog: Catalog, text: str) -> StreamQuery:
    """The one query of a continuous INSERT."""
    (insert,) = parse_script(text)
    assert isinstance(insert, Insert)
    target = catalog.table(insert.target)
    given = given_columns(target, insert)
    (result,) = plan_stream_queries(insert.query, catalog, target, given, insert.partition)
    return result


def rows(catalog: Catalog, text: str, *source: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a continuous INSERT writes."""
    plan = planned(catalog, text)
    kinds = {"id": pa.int64(), "agent": pa.string(), "n": pa.int32()}
    src = pa.table(
        {
            name: pa.array([row.get(name) for row in source], kinds[name])
            for name in plan.scan.columns
        }
    )
    src = src.append_column("_row", pa.array(range(len(source)), pa.int64()))
    with duckdb.connect(":memory:") as connection:
        connection.register("src", src)
        return connection.execute(plan.rows.sql).fetchall()


@pytest.mark.parametrize("day", ["'2026-05-01'", "DATE '2026-05-01'"])
def test_a_partition_of_a_stream_is_a_constant(days: Catalog, day: str) -> None:
    text = f"INSERT INTO days PARTITION (hour_ = 7, day_ = {day}) SELECT id, agent, n FROM log_"
    assert rows(days, text, {"id": 1, "agent": "a", "n": 3}) == [(1, "a", DAY, 7, 3)]
    named = f"INSERT INTO days PARTITION (day_ = {day}) (hour_, n, id) SELECT n, 1, id FROM log_"
    assert rows(days, named, {"id": 1, "n": 3}) == [(1, None, DAY, 3, 1)]


def test_a_partition_clause_with_groups_and_with_numbered_rows(days: Catalog) -> None:
    text = (
        "INSERT INTO sums PARTITION (day_ = '2026-05-01') SELECT agent, COUNT(id), SUM(n) "
        "FROM log_ GROUP BY agent"
    )
    assert rows(days, text, {"agent": "a", "n": 1}, {"agent": "a", "n": 2}) == [("a", DAY, 0, 3)]
    newest = (
        "INSERT INTO days PARTITION (day_ = '2026-05-01', hour_ = '7') SELECT id, agent, n FROM ("
        "SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY n DESC) AS rn FROM log_) "
        "WHERE rn = 1"
    )
    assert planned(days, newest).merging.upsert == "upsert: newest by n of each id, day_, hour_"


def test_another_partition_is_another_query(days: Catalog) -> None:
    text = "INSERT INTO days PARTITION (hour_ = 7, day_ = '{}') SELECT id, agent, n FROM log_"
    prints = {planned(days, text.format(day)).fingerprint for day in ("2026-05-01", "2026-05-02")}
    assert len(prints) == 2


def test_a_partition_clause_applies_to_each_part_of_a_union(days: Catalog) -> None:
    text = (
        "INSERT INTO days PARTITION (hour_ = 7, day_ = '2026-05-01') SELECT id, agent, n FROM log_ "
        "UNION ALL SELECT id + 1, agent, n FROM log_ UNION ALL SELECT 9, 'x', n FROM log_"
    )
    result = rows(days, text, {"id": 1, "agent": "a", "n": 3})
    assert sorted(result) == [(1, "a", DAY, 7, 3), (2, "a", DAY, 7, 3), (9, "x", DAY, 7, 3)]


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("day_ = 'soon'", "'soon' is not a valid value of column 'day_', which is DATE"),
        ("dey = 'x'", "'dey' is not a partition column; did you mean 'day_'?"),
        (
            "day_ = '2026-05-01', hour_ = 1",
            "the query returns 4 column(s), table default.days take",
        ),
    ],
)
def test_wrong_partitions_are_errors(days: Catalog, partition: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        planned(days, f"INSERT INTO days PARTITION ({partition}) SELECT id, agent, n, 1 FROM log_")
    assert message in caught.value.message
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "expression", ["t", "t - INTERVAL '5' SECOND", "t - INTERVAL '0.001' SECOND", "made"]
)
def test_a_watermark_is_read(expression: str) -> None:
    (made,) = parse_script(
        f"CREATE TABLE t (id INT, t TIMESTAMP(3), s STRING, made AS TO_TIMESTAMP(s), "
        f"WATERMARK FOR {'made' if expression == 'made' else 't'} AS {expression}, "
        "PRIMARY KEY (id) NOT ENFORCED)"
    )
    assert isinstance(made, CreateTable)
    assert made.watermark == Watermark("made" if expression == "made" else "t", expression)
    assert [column.name for column in made.columns] == ["id", "t", "s"]


def test_a_statement_set_may_be_explained() -> None:
    body = "STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END;"
    for text in (f"EXPLAIN {body}", f"EXPLAIN EXECUTE {body}", f"EXPLAIN PLAN FOR EXECUTE {body}"):
        (result,) = parse_script(text)
        assert isinstance(result, Explain) and isinstance(result.statement, StatementSet)
        assert [insert.target for insert in result.statement.inserts] == [("a",), ("b",)]
