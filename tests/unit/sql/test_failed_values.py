"""The error of a value that cannot be computed names its clause and its row."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.duckdb_engine import run_bounded
from streamhouse.errors import QueryError, StreamhouseError
from streamhouse.runtime.query_operator import QueryOperator
from streamhouse.sql.plan import BoundedScan

CASES = int(os.environ.get("STREAMHOUSE_DIFFERENTIAL_CASES", "1"))
TABLES = "CREATE TABLE a (id INT, g STRING, v STRING, n BIGINT); CREATE TABLE b (k INT, w BIGINT);"
WRONG, HUGE = 7, 2**63 - 1
# What fails for the row 7 of `a`, the column it reads, and what the error says.
PROBLEMS = {
    "CAST(a.v AS INT)": ("v = odd", "'odd' is not a valid INT"),
    "CAST(a.v AS DECIMAL(5, 2))": ("v = odd", "'odd' is not a valid DECIMAL(5,2)"),
    "CAST(CONCAT('2020-01-', a.v) AS DATE)": ("v = odd", "'2020-01-odd' is not a valid DATE"),
    "CAST(a.n AS INT)": (f"n = {HUGE}", f"{HUGE} does not fit into INT"),
    "a.n * 3": (f"n = {HUGE}", f"{HUGE} * 3 exceeds BIGINT"),
    "10 / (a.id - 7)": ("id = 7", "Division by zero"),
    "CASE WHEN a.id >= 0 THEN CAST(a.n AS INT) END": (
        f"id = 7, n = {HUGE}",
        f"{HUGE} does not fit into INT",
    ),
}
# Queries in which `{x}` is computed, and what the error calls the place.
CLAUSES = {
    "SELECT {x} AS c FROM a": "column 'c' of the row",
    "SELECT id FROM a WHERE {x} IS NOT NULL": "WHERE for the row",
    "SELECT id FROM a WHERE NOT ({x} IS NULL) AND id >= 0": "WHERE for the row",
    "SELECT id FROM b JOIN a ON b.k = a.id AND {x} IS NOT NULL": "join with 'a' for the row",
    "SELECT id FROM a LEFT JOIN b ON CHAR_LENGTH(CAST({x} AS STRING)) = b.k": (
        "join with 'b' for the row"
    ),
    "SELECT COUNT(*) AS c FROM a GROUP BY {x}": "GROUP BY for the row",
    "SELECT g, MAX({x}) AS c FROM a GROUP BY g": "column 'c' of the row",
    "SELECT COUNT(DISTINCT {x}) AS c FROM a": "column 'c' of the row",
    "SELECT g FROM a GROUP BY g HAVING MAX({x}) IS NOT NULL": "HAVING for the row",
    "SELECT id FROM a ORDER BY {x}": "ORDER BY for the row",
    "SELECT DISTINCT {x} AS c FROM a": "column 'c' of the row",
    "SELECT MAX(c) AS m FROM (SELECT {x} AS c FROM a) AS s": "column 'c' of the row",
    "WITH s AS (SELECT {x} AS c FROM a) SELECT COUNT(c) AS m FROM s": "column 'c' of the row",
    "SELECT id FROM a UNION ALL SELECT CASE WHEN {x} IS NULL THEN 1 END FROM a": (
        "column 'id' of the row"
    ),
    "SELECT w FROM b WHERE EXISTS (SELECT 1 FROM a WHERE {x} IS NOT NULL AND a.id = b.k)": (
        "WHERE for the row"
    ),
    "SELECT (SELECT MAX({x}) FROM a) AS m FROM b": "a column of a subquery of the row",
    "SELECT id, ROW_NUMBER() OVER (PARTITION BY g ORDER BY {x}) AS r FROM a": (
        "column 'r' of the row"
    ),
}
# What fails for a group or a pair of rows.
SUMS = {
    "SELECT g, SUM(n) AS s FROM a GROUP BY g": "column 's' of the group with g = odd",
    "SELECT SUM(n) AS s FROM a": "failed: column 's'",
    "SELECT g FROM a GROUP BY g HAVING SUM(n) > 5": "HAVING for the group with g = odd",
    "SELECT g, COUNT(*) AS c FROM a GROUP BY g ORDER BY SUM(n)": (
        "ORDER BY for the group with g = odd"
    ),
    "SELECT SUM(s) AS t FROM (SELECT g, SUM(n) AS s FROM a GROUP BY g) AS q": (
        "column 's' of the group with g = odd"
    ),
    "SELECT a.id FROM a JOIN b ON a.id = b.k AND a.n + b.w > 0": (
        f"join with 'b' for the row with n = {HUGE}, w = 1"
    ),
}


def _catalog() -> Catalog:
    catalog = Catalog()
    catalog.add(TABLES)
    return catalog


def _failure(sql: str, rows: int) -> str:
    """The message of a query over `rows` rows, of which row 7 has odd values."""

    def scanner(scan: BoundedScan) -> tuple[pa.Schema, Callable[[], Iterator[pa.RecordBatch]]]:
        table = _rows(scan.table.name[-1], rows).select(list(scan.columns))
        return table.schema, lambda: iter(table.to_batches(max_chunksize=5))

    with pytest.raises(QueryError) as caught:
        run_bounded(_catalog().bounded(sql), scanner)
    return str(caught.value)


def _rows(table: str, count: int) -> pa.Table:
    ids = list(range(count))
    if table == "b":
        return pa.table({"k": pa.array(ids, pa.int32()), "w": pa.array([1] * count, pa.int64())})
    values: dict[str, list[Any]] = {
        "g": ["odd" if each in (WRONG, WRONG + 1) else f"g{each % 3}" for each in ids],
        "v": ["odd" if each == WRONG else None if each % 5 == 0 else "12" for each in ids],
        "n": [HUGE if each == WRONG else None if each % 5 == 0 else 1 for each in ids],
    }
    return pa.table({"id": pa.array(ids, pa.int32()), **values})


@pytest.mark.parametrize("clause", CLAUSES)
def test_the_clause_and_the_row_are_named(clause: str) -> None:
    chance = random.Random(clause)
    for problem in chance.sample(list(PROBLEMS), min(len(PROBLEMS), 2 * CASES)):
        shown, text = PROBLEMS[problem]
        message = _failure(clause.format(x=problem), chance.randrange(9, 40))
        assert message.endswith(f"{CLAUSES[clause]} with {shown}: {text}"), message


@pytest.mark.parametrize("sql", SUMS)
def test_the_group_or_the_pair_is_named(sql: str) -> None:
    message = _failure(sql, 20)
    assert re.search(
        rf"{re.escape(SUMS[sql])}: \d+ (does not fit into|\+ 1 exceeds) BIGINT$", message
    )


def test_of_several_rows_one_is_named_with_its_own_problem() -> None:
    chance = random.Random(3)
    texts = [f"x{number}" if chance.random() < 0.3 else str(number) for number in range(300)]
    table = pa.table({"v": texts})
    for where in ("CAST(v AS INT) > 3", "v <> '' AND CAST(v AS INT) > 3"):
        query = _catalog().bounded(f"SELECT v FROM a WHERE {where}")
        with pytest.raises(QueryError, match=r"with v = (x\d+): '\1' is not"):
            run_bounded(query, lambda _: (table.schema, lambda: iter(table.to_batches(30))))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_continuous_queries_name_them_too(problem: str) -> None:
    shown, text = PROBLEMS[problem]
    plan = _catalog().stream(f"SELECT id FROM a WHERE {problem} IS NOT NULL")
    operator = QueryOperator(plan, pa.schema([("id", pa.int32())]), None)
    operator.bind(0)
    rows = _rows("a", 20).select(list(plan.scan.columns))
    numbered = rows.append_column("_row", pa.array(range(20), pa.int64()))
    with pytest.raises(StreamhouseError) as caught:
        operator.rows(numbered)
    assert f"WHERE for the row with {shown}: {text}; change" in str(caught.value)
