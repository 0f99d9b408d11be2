"""A script that fails creates nothing, or says what it left."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.execute import execute
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

CASES = int(os.environ.get("STREAMHOUSE_DIFFERENTIAL_CASES", "1"))
TABLE = "CREATE TABLE {}t (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1')"
BEFORE = (
    "CREATE DATABASE d2",
    TABLE.format(""),
    "INSERT INTO t VALUES (1, 'a')",
    "CREATE VIEW w AS SELECT v FROM t",
    "ALTER TABLE t ADD more INT",
    "UPDATE t SET v = 'b' WHERE k = 1",
)
AS_PLANNED = (
    "INSERT INTO t (k, nam) VALUES (1, 'a')",
    "INSERT INTO t (k) VALUES ('a', 1)",
    "INSERT INTO t SELECT k, v FROM missing",
    "INSERT INTO missing VALUES (1)",
    "UPDATE t SET nam = 'a' WHERE k = 1",
    "DELETE FROM t WHERE nam = 'a'",
    "CREATE VIEW w2 AS SELECT nam FROM t",
    "CREATE TABLE u (k INT) WITH ('buket' = '1')",
    "CREATE TABLE t (k INT)",
    "ALTER TABLE t ADD v INT",
    "DROP TABLE missing",
    "DROP VIEW missing",
    "TRUNCATE TABLE missing",
    "USE missing",
    "INSERT INTO t (k) SELECT UPER(v) FROM t",
)
OF_A_RUN = (
    "INSERT INTO t (k) SELECT nam FROM t",
    "INSERT INTO t (k, v) SELECT k, v FROM t",
    "SELECT nam FROM t",
    "DESCRIBE missing",
    "SHOW CREATE TABLE missing",
    "EXPLAIN SELECT nam FROM t",
)


class Output(RunOutput):
    """Collects the notices of a script."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def rows(self, reader: pa.RecordBatchReader) -> None:
        reader.read_all()

    def changes(self, batch: pa.RecordBatch) -> None:
        raise AssertionError(batch)


def files(folder: Path) -> set[str]:
    """All files and folders but locks."""
    found = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return {name for name in found if not name.endswith("-lock")}


def run(folder: Path, text: str) -> list[str]:
    output = Output()
    options = ScriptOptions("s.sql", {"warehouse": str(folder)}, until_caught_up=True)
    try:
        ScriptRunner(options, output).run(parse_script(text))
    finally:
        assert not [text for text in output.notices if "no effect" in text]
    return output.notices


@pytest.mark.parametrize(
    ("go", "wrong"),
    [
        *itertools.product((execute, run), AS_PLANNED),
        *itertools.product((run,), OF_A_RUN),
    ],
)
def test_an_error_that_planning_finds_leaves_nothing(
    go: Callable[[Any, str], object], wrong: str, tmp_path: Path
) -> None:
    folder = tmp_path / "warehouse"
    with pytest.raises(StreamhouseError, match="line 7, column"):
        go(str(folder) if go is execute else folder, ";\n".join((*BEFORE, wrong)))
    assert not folder.exists()


def _failing(seed: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Statements that succeed, and one that only a run finds wrong: by its values."""
    chance = random.Random(seed)
    yield (
        BEFORE[: chance.randrange(2, len(BEFORE) + 1)],
        chance.choice(
            [
                "INSERT INTO t (k) VALUES (1 / 0)",
                "INSERT INTO t (k) VALUES (CAST(NULL AS INT))",
                "INSERT INTO t (k) VALUES (1), (CAST('x' AS INT))",
            ]
        ),
    )


@pytest.mark.parametrize("seed", range(4 * CASES))
def test_an_error_of_values_says_what_is_left(seed: int, tmp_path: Path, capfd: Any) -> None:
    for statements, wrong in _failing(seed):
        text = ";\n".join((*statements, wrong))
        output = Output()
        options = ScriptOptions("s.sql", {"warehouse": str(tmp_path / "run")})
        with pytest.raises(StreamhouseError):
            ScriptRunner(options, output).run(parse_script(text))
        with pytest.raises(StreamhouseError):
            execute(str(tmp_path / "execute"), text)
        for notice in (output.notices[-1], capfd.readouterr().err):
            assert "the statements before the error stay done: database d2 created; " in notice
            assert "table t created" in notice
            for part, words in zip(BEFORE[3:], ("view w created", "t altered"), strict=False):
                assert (words in notice) == (part in statements)


def test_what_a_run_alone_knows_is_left_to_it(tmp_path: Path) -> None:
    text = (
        f"{BEFORE[1]}; {BEFORE[2]}; SET 'execution.runtime-mode' = 'batch';"
        "SELECT snapshot_id FROM t$snapshots; SELECT * FROM t VERSION AS OF 1;"
        "SELECT * FROM t /*+ OPTIONS('scan.snapshot-id' = '1') */;"
        "CREATE VIEW w AS SELECT snapshot_id FROM t$snapshots; SELECT * FROM w;"
        "CALL sys.create_tag('default.t', 'one'); SELECT * FROM t VERSION AS OF 'one';"
    )
    run(tmp_path, text)
    again = text[text.index("INSERT") :].replace("VIEW w", "VIEW w2").replace("'one'", "'two'")
    run(tmp_path, again.replace("AS OF 1", "AS OF 2"))


NOTICED = (
    ("v STRING", "v INT", "column 'v' is INT, not STRING"),
    ("v STRING", "v STRING, x INT", "it also has the column 'x'"),
    ("v STRING, x INT", "v STRING", "it has no column 'x'"),
    ("v STRING NOT NULL", "v STRING", "column 'v' is STRING, not STRING NOT NULL"),
    ("PRIMARY KEY (k)", "PRIMARY KEY (k, v)", "column 'v' is STRING NOT NULL, not STRING; PRIMARY"),
    ("'bucket' = '2'", "'bucket' = '1'", "option 'bucket' is '1', not '2'"),
    (
        "'bucket' = '1', 'merge-engine' = 'first-row'",
        "'bucket' = '1'",
        "option 'merge-engine' is not set, not 'first-row'",
    ),
    (
        "'bucket' = '1'",
        "'bucket' = '1', 'sequence.field' = 'v'",
        "option 'sequence.field' is 'v'",
    ),
)
"""What a statement declares, what the table has, and how a notice says it."""


@pytest.mark.parametrize(("declared", "stored", "notice"), NOTICED)
def test_a_declaration_without_effect_is_a_notice(
    declared: str, stored: str, notice: str, tmp_path: Path
) -> None:
    text = TABLE.format("IF NOT EXISTS ")
    part = next(part for part in ("v STRING", "PRIMARY KEY (k)", "'bucket' = '1'")
                if stored.startswith(part.split(" ")[0]))  # fmt: skip
    execute(str(tmp_path), text.replace(part, stored, 1))
    output = Output()
    for one in (stored, declared):
        ScriptRunner(ScriptOptions("s.sql", {"warehouse": str(tmp_path)}), output).run(
            parse_script(text.replace(part, one, 1))
        )
    assert len(output.notices) == 1, "the same declaration is none"
    assert f"no effect: {notice}" in output.notices[0]


def test_the_notice_comes_with_the_error_that_the_declaration_was_to_mend(
    tmp_path: Path, capfd: Any
) -> None:
    execute(str(tmp_path), "CREATE TABLE s (k INT, v INT); CREATE TABLE t (k INT, v INT)")
    text = (
        "CREATE TABLE IF NOT EXISTS t (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ("
        "'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum');"
        "INSERT INTO t SELECT k, SUM(v) FROM s GROUP BY k"
    )
    output = Output()
    with pytest.raises(StreamhouseError, match="line 1"):
        ScriptRunner(ScriptOptions("s.sql", {"warehouse": str(tmp_path)}), output).run(
            parse_script(text)
        )
    assert "no effect: column 'k' is INT, not INT NOT NULL; PRIMARY KEY" in output.notices[0]
    assert "option 'merge-engine' is not set, not 'aggregation'" in output.notices[0]
    with pytest.raises(StreamhouseError, match="no column 'x'"):
        execute(str(tmp_path), text.split(";")[0] + "; INSERT INTO t SELECT x, v FROM s")
    assert "PRIMARY KEY" in capfd.readouterr().err


def test_a_view_of_another_query_is_a_notice(tmp_path: Path, capfd: Any) -> None:
    execute(str(tmp_path), "CREATE TABLE t (k INT); CREATE VIEW w AS SELECT k FROM t")
    execute(str(tmp_path), "CREATE VIEW IF NOT EXISTS w AS SELECT k FROM t")
    assert capfd.readouterr().err == ""
    execute(str(tmp_path), "CREATE VIEW IF NOT EXISTS w AS SELECT k + 1 AS k FROM t")
    assert "The view's own is: SELECT k FROM `default`.`t`" in capfd.readouterr().err


@pytest.mark.parametrize("seed", range(3 * CASES))
def test_a_script_that_runs_is_planned_without_an_error(seed: int, tmp_path: Path) -> None:
    """What planning refuses wrongly, no user could run."""
    chance, made = random.Random(seed), ["CREATE TABLE t0 (k INT, v INT)"]
    tables, columns = ["t0"], {"t0": ["k", "v"]}
    for number in range(1, 12):
        table = chance.choice(tables)
        kind = chance.randrange(6)
        if kind == 0:
            tables.append(f"t{number}")
            columns[tables[-1]] = ["k", "v"]
            made.append(f"CREATE TABLE t{number} (k INT, v INT)")
        elif kind == 1:
            columns[table] = [*columns[table], f"c{number}"]
            made.append(f"ALTER TABLE {table} ADD c{number} INT")
        elif kind == 2 and len(columns[table]) > 2:
            *columns[table], last = columns[table]
            made.append(f"ALTER TABLE {table} DROP {last}")
        elif kind == 3:
            new = f"r{number}"
            tables[tables.index(table)] = new
            columns[new] = columns.pop(table)
            made.append(f"ALTER TABLE {table} RENAME TO {new}")
        elif kind == 4:
            made.append(
                f"CREATE TEMPORARY VIEW v{number} AS SELECT {columns[table][-1]} FROM {table}"
            )
        values = ", ".join("1" for _ in columns[table if table in columns else tables[0]])
        made.append(f"INSERT INTO {table if table in columns else tables[0]} VALUES ({values})")
    run(tmp_path, ";\n".join(made))
