"""METADATA columns of rows from the snapshot and from the binlog, with and without a relay log."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from tests.integration.mysql.history import Database, catch_up

from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column

COLUMNS = (
    Column("kind", "STRING", metadata="row_kind"),
    Column("id", "INT"),
    Column("at_", "TIMESTAMP_LTZ(3)", metadata="op_ts"),
    Column("origin", "STRING", metadata="database_name"),
    Column("v", "STRING"),
    Column("of", "STRING", metadata="table_name"),
)


@pytest.mark.parametrize("relayed", [False, True])
def test_each_row_has_them(database: Database, tmp_path: Path, relayed: bool) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))")
    database.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    if relayed:
        database.relay(tmp_path, "t")
    source = database.source("t", COLUMNS, relay=tmp_path if relayed else None)
    assert source.schema.names == ["kind", "id", "at_", "origin", "v", "of"]
    offset, rows = catch_up(source, source.initial_offset())
    assert [(row["kind"], row["id"], row["at_"].timestamp()) for row in rows] == [
        ("+I", 1, 0.0),
        ("+I", 2, 0.0),
    ]
    database.run("SET TIMESTAMP = 1700000000", "UPDATE t SET v = 'c' WHERE id = 2")
    database.run("SET TIMESTAMP = DEFAULT", "DELETE FROM t WHERE id = 1")
    before = datetime.datetime.now(datetime.UTC)
    _, rows = catch_up(source, offset)
    assert [(row["kind"], row["id"], row["v"]) for row in rows] == [
        ("-U", 2, "b"),
        ("+U", 2, "c"),
        ("-D", 1, "a"),
    ]
    assert all(row["kind"] == row[ROW_KIND] for row in rows)
    assert {(row["origin"], row["of"]) for row in rows} == {(database.name, "t")}
    assert [row["at_"].timestamp() for row in rows[:2]] == [1700000000.0] * 2
    assert abs((rows[2]["at_"] - before).total_seconds()) < 60
