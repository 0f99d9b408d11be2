"""What errors advise gives the rows of the statement that they refuse."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamhouse.duckdb_engine import run_bounded
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.execute import execute
from streamhouse.runtime.session.session import Session
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.functions import supported
from streamhouse.sql.syntax import Query, TextPosition

Result = Counter[tuple[Any, ...]]


def _select(folder: Path, sql: str) -> Result:
    session = Session({"warehouse": str(folder)})
    plan = analyze_bounded(Query(sql, TextPosition(1, 1)), session)
    return Counter(
        tuple(row.values()) for row in run_bounded(plan, Warehouse(str(folder))).to_pylist()
    )


REWRITES = {
    "ADD_MONTHS": ("TIMESTAMPADD(MONTH, 1, DATE '2024-01-31')", "2024-02-29"),
    "COLLECT_LIST": ("CARDINALITY(ARRAY_AGG(x IGNORE NULLS))", "3"),
    "COLLECT_SET": ("CARDINALITY(ARRAY_AGG(DISTINCT x IGNORE NULLS))", "2"),
    "COUNT_DISTINCT": ("COUNT(DISTINCT x)", "2"),
    "COUNTIF": ("COUNT(*) FILTER (WHERE x > 1)", "1"),
    "DATE_ADD": ("DATE '2024-02-28' + INTERVAL '1' DAY", "2024-02-29"),
    "DATE_SUB": ("TIMESTAMPADD(DAY, -1, DATE '2024-03-01')", "2024-02-29"),
    "DATE_TRUNC": ("FLOOR(TIMESTAMP '2024-02-29 13:14:15' TO MONTH)", "2024-02-01 00:00:00"),
    "LAST_DAY": ("CEIL((DATE '2024-01-31' + INTERVAL '1' DAY) TO MONTH) - INTERVAL '1' DAY", None),
    "NVL2": ("CASE WHEN 1 IS NOT NULL THEN 'a' ELSE 'b' END", "a"),
    "SPLIT_PART": ("SPLIT_INDEX('a.b.c', '.', 1)", "b"),
    "SUMIF": ("SUM(CASE WHEN x > 1 THEN x END)", "2"),
}
"""The advised rewrites of functions, with values: what the other system's function returns."""


@pytest.mark.parametrize("name", REWRITES)
def test_rewrites_of_functions(name: str, tmp_path: Path) -> None:
    expression, wanted = REWRITES[name]
    assert name in supported.REPLACEMENTS and name not in supported.known()
    execute(str(tmp_path), "CREATE TABLE t (x INT); INSERT INTO t VALUES (1), (1), (2), (NULL)")
    ((value,),) = _select(tmp_path, f"SELECT CAST({expression} AS STRING) FROM t LIMIT 1")
    assert (value or "").startswith("2024-01-31" if wanted is None else wanted)


@pytest.mark.parametrize(
    "words", ["use a primary-key table", "to ignore retractions", "in the inner SELECT, or"]
)
def test_no_message_has_advice_that_loses_rows(words: str) -> None:
    source = Path(__file__).parents[3] / "src"
    assert not [path for path in source.rglob("*.py") if words in path.read_text()]
