"""What errors advise gives the rows of the statement that they refuse."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamhouse.duckdb_engine import run_bounded
from streamhouse.errors import UnsupportedSqlError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.execute import execute
from streamhouse.runtime.session.session import Session
from streamhouse.sql.batch.bounded_query import analyze_bounded
from streamhouse.sql.functions import supported
from streamhouse.sql.functions.unsupported_functions import replacement_for
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.streaming.union_all import RECOMPUTED
from streamhouse.sql.syntax import Insert, Query, Select, TextPosition

CASES = int(os.environ.get("STREAMHOUSE_DIFFERENTIAL_CASES", "1"))
Rows = list[tuple[int, int, int | None]]
Result = Counter[tuple[Any, ...]]
TABLES = """
CREATE TABLE a (id INT, k INT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TABLE b (id INT, k INT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TABLE t (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1',
  'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'max');
"""


def _greatest(rows: Rows) -> dict[int, int | None]:
    found: dict[int, int | None] = {}
    for _, k, v in rows:
        old = found.setdefault(k, v)
        found[k] = v if old is None else old if v is None else max(old, v)
    return found


REFUSED = {
    "SELECT DISTINCT k, v FROM a": lambda a, b: Counter({(k, v) for _, k, v in a}),
    "SELECT k, v FROM a UNION SELECT k, v FROM b": lambda a, b: Counter(
        {(k, v) for _, k, v in a} | {(k, v) for _, k, v in b}
    ),
    "SELECT a.id, b.v FROM a JOIN b ON a.k = b.k": lambda a, b: Counter(
        (x[0], y[2]) for x in a for y in b if x[1] == y[1]
    ),
    "SELECT a.id, b.v FROM a LEFT JOIN b ON a.k = b.k": lambda a, b: Counter(
        pair for x in a for pair in [(x[0], y[2]) for y in b if x[1] == y[1]] or [(x[0], None)]
    ),
    "INSERT INTO t SELECT k, MAX(v) FROM a GROUP BY k": lambda a, b: Counter(_greatest(a).items()),
    "INSERT INTO t SELECT k, v FROM a": None,
}
"""Queries that no continuous query can compute, and a model of their rows."""


def _rows(chance: random.Random, count: int) -> Rows:
    values = [None, 1, 2, 3]
    return [(n, chance.randrange(3), chance.choice(values)) for n in range(count)]


def _write(folder: Path, name: str, rows: Rows) -> None:
    values = ", ".join(f"({i}, {k}, {'CAST(NULL AS INT)' if v is None else v})" for i, k, v in rows)
    execute(str(folder), f"INSERT INTO {name} VALUES {values}")


def _select(folder: Path, sql: str) -> Result:
    session = Session({"warehouse": str(folder)})
    plan = analyze_bounded(Query(sql, TextPosition(1, 1)), session)
    return Counter(
        tuple(row.values()) for row in run_bounded(plan, Warehouse(str(folder))).to_pylist()
    )


@pytest.mark.parametrize("seed", range(CASES))
def test_the_advised_view_has_the_rows_of_the_refused_query(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    execute(str(tmp_path), TABLES)
    a, b = _rows(chance, 12), _rows(chance, 7)
    _write(tmp_path, "a", a)
    _write(tmp_path, "b", b)
    session = Session({"warehouse": str(tmp_path)})
    for number, (text, model) in enumerate(REFUSED.items()):
        (statement,) = parse_script(text)
        with pytest.raises(UnsupportedSqlError) as caught:
            assert isinstance(statement, Insert | Select)
            inserts = isinstance(statement, Insert)
            plan_stream_queries(
                statement.query, session, session.table(("t",)) if inserts else None
            )
        assert RECOMPUTED in caught.value.message, text
        if model is not None:
            query = text[text.index("SELECT") :]
            execute(str(tmp_path), f"CREATE VIEW v{number} AS {query}")
    gone = chance.sample(range(12), 5)
    execute(str(tmp_path), f"DELETE FROM a WHERE id IN ({', '.join(map(str, gone))})")
    a = [(i, k, None if v is None else v + 1) for i, k, v in a if i not in gone]
    execute(str(tmp_path), "UPDATE a SET v = v + 1")
    for number, (text, model) in enumerate(REFUSED.items()):
        if model is not None:
            assert _select(tmp_path, f"SELECT * FROM v{number}") == model(a, b), text


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
    assert replacement_for(name) is not None and name not in supported.known()
    execute(str(tmp_path), "CREATE TABLE t (x INT); INSERT INTO t VALUES (1), (1), (2), (NULL)")
    ((value,),) = _select(tmp_path, f"SELECT CAST({expression} AS STRING) FROM t LIMIT 1")
    assert (value or "").startswith("2024-01-31" if wanted is None else wanted)


@pytest.mark.parametrize(
    "words", ["use a primary-key table", "to ignore retractions", "in the inner SELECT, or"]
)
def test_no_message_has_advice_that_loses_rows(words: str) -> None:
    source = Path(__file__).parents[3] / "src"
    assert not [path for path in source.rglob("*.py") if words in path.read_text()]
