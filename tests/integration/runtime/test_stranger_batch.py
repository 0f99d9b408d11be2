"""Bounded scripts by another author: INSERT OVERWRITE, branches; compared with plain SQL."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from tests.java_reads import java_rows

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

HEAD = """
SET 'execution.runtime-mode' = 'batch';
SET 'sql-client.execution.result-mode' = 'tableau';
SET 'table.dml-sync' = 'true';
CREATE CATALOG cold WITH ('warehouse' = 'file://{path}', 'type' = 'paimon');
USE CATALOG cold;
CREATE DATABASE IF NOT EXISTS dw;
USE cold.dw;
"""
TABLES = """
CREATE TABLE bronze (amount DECIMAL(10, 2), day_ DATE, id BIGINT, who VARCHAR(20),
  at_ TIMESTAMP(3)) WITH ('bucket' = '-1');
CREATE TABLE silver (
  id BIGINT, who STRING, amount DECIMAL(10, 2), at_ TIMESTAMP(3), dt STRING,
  PRIMARY KEY (dt, id) NOT ENFORCED
) PARTITIONED BY (dt) WITH (
  'bucket' = '2', 'file.format' = 'orc', 'deletion-vectors.enabled' = 'true',
  'sequence.field' = 'at_'
);
CREATE TABLE gold (n BIGINT, who STRING, total DECIMAL(20, 2), share DOUBLE, dt STRING,
  PRIMARY KEY (dt, who) NOT ENFORCED) PARTITIONED BY (dt) WITH ('bucket' = '1');
CREATE TABLE firsts (who STRING PRIMARY KEY NOT ENFORCED, id BIGINT)
  WITH ('bucket' = '1', 'merge-engine' = 'first-row');
INSERT INTO bronze VALUES {rows};
INSERT INTO firsts VALUES ('ann', 1), ('ann', 2), ('ben', 3);
INSERT INTO silver
SELECT id, who, amount, at_, CAST(day_ AS STRING) FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY day_, id ORDER BY at_ DESC) AS row_num FROM bronze
) WHERE row_num = 1;
"""
GOLD = """
INSERT OVERWRITE gold PARTITION (dt = '2026-05-02')
WITH per AS (SELECT who, SUM(amount) AS total, COUNT(*) AS n FROM silver
             WHERE dt = '2026-05-02' GROUP BY who HAVING COUNT(*) > 2)
SELECT n, who, total, ROUND(CAST(total AS DOUBLE) / SUM(CAST(total AS DOUBLE)) OVER (), 6) FROM per;
"""
MISTAKE = """
CALL sys.create_tag(`table` => 'dw.silver', tag => 'noon');
INSERT OVERWRITE silver PARTITION (dt = '2026-05-02')
SELECT id, who, amount * 100, at_ FROM bronze WHERE day_ = DATE '2026-05-01';
"""
HOME = """
CALL cold.sys.rollback_to('dw.silver', 'noon');
CALL sys.create_branch('dw.silver', 'fix', 'noon');
INSERT OVERWRITE `silver$branch_fix` PARTITION (dt = '2026-05-02')
SELECT b.id, UPPER(b.who), b.amount, b.at_ FROM bronze AS b
JOIN (SELECT id, MAX(at_) AS at_ FROM bronze WHERE day_ = DATE '2026-05-02' GROUP BY id) AS m
  ON m.id = b.id AND m.at_ = b.at_
WHERE b.day_ = DATE '2026-05-02';
SELECT COUNT(*) AS n FROM (
  SELECT * FROM `silver$branch_fix` EXCEPT SELECT * FROM silver) AS changed;
CALL sys.fast_forward('dw.silver', 'fix');
"""
NEWEST = """
SELECT id, {who} AS who, amount, at_, strftime(day_, '%Y-%m-%d') AS dt FROM bronze
WHERE strftime(day_, '%Y-%m-%d') {days}
QUALIFY row_number() OVER (PARTITION BY day_, id ORDER BY at_ DESC) = 1
"""


class CollectedOutput(RunOutput):
    """What a script said."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.tables: list[list[dict[str, Any]]] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def rows(self, reader: pa.RecordBatchReader) -> None:
        self.tables.append(reader.read_all().to_pylist())

    def changes(self, batch: pa.RecordBatch) -> None:
        raise AssertionError("nothing here is a stream")


class Cold:
    """The warehouse, and the same raw rows in DuckDB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pick = random.Random(7)
        instants = pick.sample(range(100_000), 120)
        self.raw = [
            (
                Decimal(pick.randrange(1, 99_999)).scaleb(-2),
                datetime.date(2026, 5, pick.randrange(1, 4)),
                pick.randrange(1, 30),
                pick.choice(("ann", "ben", "cleo", "O'Hara")),
                datetime.datetime(2026, 5, 1) + datetime.timedelta(milliseconds=instant),
            )
            for instant in instants
        ]
        self.truth = duckdb.connect(":memory:")
        self.truth.execute(
            "CREATE TABLE bronze (amount DECIMAL(10, 2), day_ DATE, id BIGINT, who VARCHAR, "
            "at_ TIMESTAMP_MS)"
        )
        self.truth.executemany("INSERT INTO bronze VALUES (?, ?, ?, ?, ?)", self.raw)

    def run(self, text: str) -> CollectedOutput:
        kept = CollectedOutput()
        listed = ", ".join(
            "({}, DATE '{}', {}, '{}', TIMESTAMP '{}')".format(
                amount, day, key, who.replace("'", "''"), at
            )
            for amount, day, key, who, at in self.raw
        )
        whole = (HEAD + text).replace("{path}", str(self.folder)).replace("{rows}", listed)
        ScriptRunner(ScriptOptions("cold.sql"), kept).run(parse_script(whole))
        return kept

    def check(self, table: str, sql: str, java: Sidecar | None = None) -> None:
        """Both cores read exactly what the plain SQL gives."""
        opened = Warehouse(str(self.folder)).table(f"dw.{table}")
        ours = pa.Table.from_batches(list(opened.read()), opened.arrow_schema)
        for found in (ours,) if java is None else (ours, java_rows(java, f"dw.{table}")):
            self.truth.register("found", found)
            left = self.truth.execute(
                f"(({sql}) EXCEPT ALL FROM found) UNION ALL (FROM found EXCEPT ALL ({sql}))"
            ).fetchall()
            assert (left, found.num_rows > 0) == ([], True)


def gold(who: str) -> str:
    day = NEWEST.format(who=who, days="= '2026-05-02'")
    share = "CAST(sum(amount) AS DOUBLE) / sum(CAST(sum(amount) AS DOUBLE)) OVER ()"
    return (
        f"SELECT count(*) AS n, who, sum(amount) AS total, round({share}, 6) AS share, dt "
        f"FROM ({day}) GROUP BY who, dt HAVING count(*) > 2"
    )


def test_a_day_is_overwritten_and_a_branch_is_brought_home(tmp_path: Path) -> None:
    cold = Cold(tmp_path / "cold")
    kept = cold.run(TABLES + GOLD)
    assert any("'table.dml-sync' has no effect" in text for text in kept.notices)
    cold.check("silver", NEWEST.format(who="who", days="<> ''"))
    cold.check("gold", gold("who"))
    cold.check("firsts", "FROM (VALUES ('ann', 1), ('ben', 3)) AS v (who, id)")
    cold.run(MISTAKE)
    wrong = """
      SELECT id, who, amount * 100, at_, '2026-05-02' FROM bronze
      WHERE day_ = DATE '2026-05-01'
      QUALIFY row_number() OVER (PARTITION BY id ORDER BY at_ DESC) = 1"""
    others = NEWEST.format(who="who", days="<> '2026-05-02'")
    cold.check("silver", f"({wrong}) UNION ALL ({others})")
    kept = cold.run(HOME + GOLD)
    fixed = NEWEST.format(who="upper(who)", days="= '2026-05-02'")
    (count,) = cold.truth.execute(f"SELECT count(*) FROM ({fixed})").fetchall()[0]
    assert [{"n": count}] in kept.tables
    with Sidecar({"warehouse": str(cold.folder)}) as java:
        cold.check("silver", f"({fixed}) UNION ALL ({others})", java)
        cold.check("gold", gold("upper(who)"), java)
