"""A value that does not fit is named by its column and the key of its row."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.execute import execute
from streamhouse.runtime.query_operator import QueryOperator
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.statements.insert_plan import plan_insert
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Insert

CASES = int(os.environ.get("STREAMHOUSE_DIFFERENTIAL_CASES", "2"))
TABLES = """
CREATE TABLE src (id INT, grp STRING, big BIGINT, txt STRING);
CREATE TABLE tgt (k INT, kk STRING, i INT, d DECIMAL(6, 2), n STRING NOT NULL,
  PRIMARY KEY (k, kk) NOT ENFORCED) WITH ('bucket' = '1');
"""
BAD = {
    "big": ["3000000000", "-3000000000"],
    "txt": ["'x7'", "''"],
}
EXPRESSIONS = {
    ("i", "big"): ["big", "CAST(big AS INT)", "CAST(big AS INT) + 1", "CAST(big * 2 AS INT)"],
    ("i", "txt"): ["CAST(txt AS INT)", "CASE WHEN id >= 0 THEN CAST(txt AS INT) END"],
    ("d", "big"): ["CAST(big AS DECIMAL(6, 2))"],
    ("d", "txt"): ["CAST(txt AS DECIMAL(6, 2))"],
    ("n", "txt"): ["NULLIF(txt, {bad})"],
}


def _case(seed: int) -> tuple[str, str, str, str]:
    """The rows of `src`, an INSERT of which one row fails, its column, and the key of that row."""
    chance = random.Random(seed)
    (column, source), expressions = chance.choice(list(EXPRESSIONS.items()))
    bad, count = chance.choice(BAD[source]), chance.randrange(1, 40)
    wrong, rows = chance.randrange(count), []
    for number in range(count):
        values = {"big": str(number), "txt": f"'{number}'"}
        if number == wrong:
            values[source] = bad
        elif chance.random() < 0.2 and column != "n":
            values[source] = f"CAST(NULL AS {'BIGINT' if source == 'big' else 'STRING'})"
        rows.append(f"({number}, 'g{number % 3}', {values['big']}, {values['txt']})")
    given = {"i": "1", "d": "CAST(1 AS DECIMAL(6, 2))", "n": "'n'"}
    given[column] = chance.choice(expressions).replace("{bad}", bad)
    names = ", ".join(["k", "kk", *given])
    insert = f"INSERT INTO tgt ({names}) SELECT id, grp, {', '.join(given.values())} FROM src"
    if chance.random() < 0.5:
        insert += " WHERE id >= 0"
    return ", ".join(rows), insert, column, f"k = {wrong}, kk = g{wrong % 3}"


@pytest.mark.parametrize("seed", range(5 * CASES))
def test_bounded_statements_and_queries_name_column_and_key(seed: int, tmp_path: Path) -> None:
    rows, insert, column, key = _case(seed)
    execute(str(tmp_path), f"{TABLES} INSERT INTO src VALUES {rows}")
    message = f"column '{column}' .*{re.escape(key)}[;:]"
    with pytest.raises(StreamhouseError, match=message):
        execute(str(tmp_path), insert)
    session = Session({"warehouse": str(tmp_path)})
    statement = parse_script(insert)[0]
    assert isinstance(statement, Insert)
    target = session.table(statement.target)
    planned = plan_insert(session, statement, target)
    assert isinstance(planned, list)
    (query,) = planned
    tables = session.catalogs.warehouse("default_catalog")
    schema = tables.table("default.tgt").arrow_schema
    operator = QueryOperator(query, schema, None, key=target.primary_key)
    read = pa.Table.from_batches(tables.table("default.src").read())
    operator.bind(0)
    with pytest.raises(StreamhouseError, match=message):
        operator.rows(read.select(list(query.scan.columns)))


def test_other_statements(tmp_path: Path) -> None:
    def failing(text: str, message: str) -> None:
        with pytest.raises(StreamhouseError, match=message):
            execute(str(tmp_path), text)

    execute(
        str(tmp_path),
        f"{TABLES} INSERT INTO src VALUES (1, 'a', 5, '7'), (2, 'b', 3000000000, 'x');"
        "INSERT INTO tgt VALUES (1, 'a', 1, 1, 'n'), (2, 'b', 2, 2, 'n');"
        "CREATE TABLE log (a INT, b INT)",
    )
    failing("UPDATE tgt SET i = k * 2000000000", "column 'i' of the row with k = 2, kk = b: 2 \\*")
    failing("UPDATE tgt SET n = NULLIF(kk, 'b')", "column 'n' .* first with k = 2, kk = b;")
    merge = "MERGE INTO tgt USING src ON tgt.k = src.id WHEN MATCHED THEN UPDATE SET i = src.big"
    failing(merge, "column 'i' of the row with k = 2, kk = b: 3000000000 does not fit into INT")
    failing(
        "INSERT INTO tgt (k, kk, i, n) SELECT id, grp, SUM(big), 'n' FROM src GROUP BY id, grp",
        "column 'i' of the row with k = 2, kk = b: 3000000000 does not fit into INT",
    )
    failing("INSERT INTO log SELECT id, CAST(txt AS INT) FROM src", "column 'b' .* a = 2: 'x' is")
    failing("INSERT INTO log SELECT id, 1 FROM src WHERE 1 / (id - 1) > 0", "Division by zero")
