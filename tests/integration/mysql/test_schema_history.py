"""Columns by position of the binlog, on servers that log no names of columns, and on others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database, catch_up
from tests.mysql_server import Server

from streamhouse.connectors.mysql_cdc.database.declared_tables import DeclaredTablePlanner
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress, described_table
from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import SchemaChangeError
from streamhouse.mysql.position import BinlogPosition
from streamhouse.source import Offset
from streamhouse.sql.plan import Column

CREATE = "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9), b VARCHAR(9), e ENUM('x','y'))"
COLUMNS = [Column("id", "INT"), Column("a", "STRING"), Column("b", "STRING"), Column("e", "STRING")]
LOOSE = "SET sql_mode = ''"


@pytest.fixture(scope="module", params=["NO_LOG", "MINIMAL"])
def server(
    installed: Installed, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[MariaDB]:
    options = [f"--binlog-row-metadata={request.param}"]
    with Server(installed(tmp_path_factory.mktemp("own")), server_options=options) as server:
        yield server


@pytest.fixture
def bare(server: MariaDB) -> Iterator[Database]:
    database = Database(server)
    database.run(CREATE, "INSERT INTO t VALUES (1, 'a1', 'b1', 'x')")
    yield database
    database.close()


STATEMENTS = (
    "INSERT INTO t (id, a, b, e) VALUES (2, 'a2', 'b2', 'y')",
    "ALTER TABLE t MODIFY b VARCHAR(9) FIRST",
    "INSERT INTO t (id, a, b, e) VALUES (3, 'a3', 'b3', 'x')",
    "ALTER TABLE t ADD n INT UNSIGNED AFTER id, MODIFY e ENUM('z','y','x')",
    "INSERT INTO t (id, a, b, e) VALUES (4, 'a4', 'b4', 'z')",
    "ALTER TABLE t DROP n",
    "ALTER TABLE t ADD n INT FIRST, MODIFY b VARCHAR(9) AFTER a",
    "ALTER TABLE t ADD n VARCHAR(9) FIRST, RENAME COLUMN n TO m",
    "UPDATE t SET b = 'b5' WHERE id = 4",
)
EXPECTED = [(2, "a2", "b2", "y"), (3, "a3", "b3", "x"), (4, "a4", "b4", "z"), (4, "a4", "b4", "z"),
            (4, "a4", "b5", "z")]  # fmt: skip


@pytest.mark.parametrize("relayed", [False, True], ids=["alone", "relayed"])
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_values_stay_in_their_columns(
    bare: Database, tmp_path: Path, relayed: bool, stopped: bool
) -> None:
    relay = tmp_path if relayed else None
    if relayed:
        bare.relay(tmp_path, "t")
    source = bare.source("t", COLUMNS, relay=relay)
    offset, _ = catch_up(source, source.initial_offset())
    rows = []
    if stopped:
        source.close()
        bare.run(*STATEMENTS)
        source = bare.source("t", COLUMNS, relay=relay)
    for statement in () if stopped else STATEMENTS:
        bare.run(statement)
        offset, some = catch_up(source, offset)
        rows += some
    offset, some = catch_up(source, offset)
    rows += some
    assert [(row["id"], row["a"], row["b"], row["e"]) for row in rows] == EXPECTED


@pytest.mark.parametrize(
    ("alter", "text"),
    [
        ("ADD z VARCHAR(9), DEFAULT CHARSET = cp1251", "жя"),
        ("DEFAULT CHARSET = cp1251, ADD z VARCHAR(9)", "жя"),
        ("ADD z VARCHAR(9), COLLATE cp1251_bin", "жя"),
        ("ADD z VARCHAR(9) CHARACTER SET greek, DEFAULT CHARSET = cp1251", "αω"),
        ("ADD z VARCHAR(9) CHARACTER SET greek, CONVERT TO CHARACTER SET utf8mb4", "αжé"),
        ("ADD z VARCHAR(9), CONVERT TO CHARACTER SET utf8mb4", "αжé"),
        ("CONVERT TO CHARACTER SET utf8mb4, ADD z VARCHAR(9) FIRST", "αжé"),
        ("MODIFY a VARCHAR(9), ADD z VARCHAR(9), CHARSET = utf8mb4", "αжé"),
    ],
)
def test_the_character_set_of_a_table_wherever_the_statement_has_it(
    bare: Database, alter: str, text: str
) -> None:
    bare.run("CREATE TABLE u (id INT PRIMARY KEY, a VARCHAR(9)) CHARACTER SET latin1")
    columns = [Column("id", "INT"), Column("a", "STRING")]
    source = bare.source("u", columns)
    offset, _ = catch_up(source, source.initial_offset())
    bare.run(f"ALTER TABLE u {alter}")
    offset, _ = catch_up(source, offset)
    a = text if "utf8mb4" in alter else "é"
    bare.run(f"INSERT INTO u (id, a, z) VALUES (1, '{a}', '{text}')")
    _, rows = catch_up(bare.source("u", [*columns, Column("z", "STRING")]), offset)
    assert [(row["a"], row["z"]) for row in rows] == [(a, text)]


@pytest.mark.parametrize(
    "kind",
    [
        "ENUM('w ', 'x  ', ' y')", "SET('w', 'x  ')", "ENUM('w', 0x78)", "ENUM(x'77', 'x')",
        "LONG", "LONG VARCHAR NULL", "NATIONAL VARCHAR(9)", "NCHAR(9)", "VARCHAR(9) BINARY",
        "CHAR(9) UNICODE", "TEXT(99)", "CHARACTER VARYING(9) ASCII",
    ],
)  # fmt: skip
def test_a_column_of_a_type_in_another_form(bare: Database, kind: str) -> None:
    columns = [Column("id", "INT"), Column("a", "STRING")]
    source = bare.source("t", columns)
    offset, _ = catch_up(source, source.initial_offset())
    bare.run(f"ALTER TABLE t ADD z {kind} AFTER id")
    offset, _ = catch_up(source, offset)
    bare.run("INSERT INTO t (id, a, z) VALUES (2, 'a2', 'x')")
    _, rows = catch_up(bare.source("t", [*columns, Column("z", "STRING")]), offset)
    assert [(row["a"], row["z"]) for row in rows] == [("a2", "x")]


@pytest.mark.parametrize("mode", ["initial", "latest-offset"])
def test_a_stream_begins_while_the_table_is_altered(
    bare: Database, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    now = DeclaredTablePlanner._current_if_unaltered
    alters = [f"ALTER TABLE t ADD x{number} INT FIRST" for number in range(3)]

    def altered(planner: DeclaredTablePlanner, tables: Any, position: BinlogPosition) -> Any:
        if alters:
            bare.run(alters.pop(), "INSERT INTO t (id, a) VALUES (5, 'a5')", "DELETE FROM t")
        return now(planner, tables, position)

    source = bare.source("t", COLUMNS, {"scan.startup.mode": mode})
    monkeypatch.setattr(DeclaredTablePlanner, "_current_if_unaltered", altered)
    start = source.latest_offset(source.initial_offset())
    bare.run("ALTER TABLE t ADD y INT FIRST", "INSERT INTO t (id, a) VALUES (6, 'a6')")
    source.close()
    offset, rows = catch_up(bare.source("t", COLUMNS), start)
    assert [(row["id"], row["a"]) for row in rows] == [(6, "a6")]
    assert not alters


def test_a_temporary_table_of_the_same_name(bare: Database) -> None:
    source = bare.source("t", COLUMNS)
    offset, _ = catch_up(source, source.initial_offset())
    session = bare.server.connect(bare.name)
    with session, session.cursor() as cursor:
        cursor.execute("SET binlog_format = STATEMENT")
        cursor.execute(CREATE.replace("TABLE", "TEMPORARY TABLE"))
        offset, rows = catch_up(source, offset)
        cursor.execute("ALTER TABLE t MODIFY b VARCHAR(9) FIRST")
        bare.run("INSERT INTO t VALUES (2, 'a2', 'b2', 'y')")
        offset, more = catch_up(source, offset)
    assert [(row["a"], row["b"]) for row in rows + more] == [("a2", "b2")]


def _old(offset: Offset) -> Offset:
    """The offset as that of a stream that began before a statement about the table."""
    progress = DatabaseProgress.from_offset(offset)
    assert progress is not None
    versions = {id: described_table(table, None) for id, table in progress.versions.items()}
    return replace(progress, versions=versions).to_offset()


def test_an_offset_without_columns_needs_their_names(bare: Database) -> None:
    source = bare.source("t", COLUMNS)
    offset, _ = catch_up(source, source.initial_offset())
    bare.run("ALTER TABLE t MODIFY b VARCHAR(9) FIRST")
    bare.run("INSERT INTO t (id, a, b, e) VALUES (2, 'a2', 'b2', 'y')")
    _, rows = catch_up(bare.source("t", COLUMNS), offset)
    assert [row["b"] for row in rows] == ["b2"]
    with pytest.raises(SchemaChangeError, match="altered.*set binlog_row_metadata = FULL"):
        catch_up(bare.source("t", COLUMNS), _old(offset))


def test_a_type_that_is_narrowed_while_the_stream_is_stopped(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 70000)")
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    source.close()
    database.run(LOOSE, "ALTER TABLE t MODIFY v SMALLINT")
    with pytest.raises(SchemaChangeError, match=r"column 'v' is int\S*, and it makes it small"):
        catch_up(database.source("t"), offset)


@pytest.mark.parametrize("relayed", [False, True], ids=["alone", "relayed"])
def test_a_type_that_is_widened_and_narrowed_again(
    database: Database, tmp_path: Path, relayed: bool
) -> None:
    if relayed:
        database.relay(tmp_path, "t")
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v SMALLINT)")
    columns = [Column("id", "INT"), Column("v", "BIGINT")]
    source = database.source("t", columns, relay=tmp_path if relayed else None)
    offset, _ = catch_up(source, source.initial_offset())
    database.run("ALTER TABLE t MODIFY v BIGINT", "INSERT INTO t VALUES (1, 5000000000)")
    offset, rows = catch_up(source, offset)
    assert [row["v"] for row in rows] == [5_000_000_000]
    database.run(LOOSE, "ALTER TABLE t MODIFY v SMALLINT", "INSERT INTO t VALUES (2, 2)")
    with pytest.raises(SchemaChangeError, match="column 'v' is bigint"):
        catch_up(source, offset)
