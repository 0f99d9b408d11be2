"""Errors at set-up take one line that says what to change, without the password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database, catch_up
from tests.mysql_server import Server

from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.demo.mariadb import MariaDB, free_port
from streamhouse.errors import ConnectError, OptionError, StreamhouseError, TableError
from streamhouse.sql.plan import Column

SECRET = "s3cret-word"


@pytest.fixture
def table(database: Database) -> Database:
    database.run("CREATE TABLE customers (id INT PRIMARY KEY, country INT)")
    return database


def _message(options: dict[str, str], kind: type[StreamhouseError]) -> str:
    with pytest.raises(kind) as caught:
        MySqlSource(options)
    text = str(caught.value)
    assert type(caught.value) is kind
    assert len(text.splitlines()) == 1 and SECRET not in text and SECRET not in repr(caught.value)
    assert (
        caught.value.__cause__ is None
        and caught.value.__suppress_context__
        or not (caught.value.__context__)
    )
    return text


def test_an_unreachable_server(table: Database) -> None:
    options = table.options("customers", port=str(free_port()), password=SECRET)
    assert "cannot be reached" in _message(options, ConnectError)
    options = table.options("customers", hostname="no-such-host.invalid", password=SECRET)
    assert "'hostname' and 'port'" in _message(options, ConnectError)


def test_a_wrong_password(table: Database) -> None:
    text = _message(table.options("customers", password=SECRET), ConnectError)
    assert "refuses the login of user 'streamhouse'" in text


def test_a_missing_database_or_table_names_the_nearest(table: Database) -> None:
    wrong = {"database-name": table.name + "x"}
    assert "did you mean 'cdc_" in _message(table.options("customers", **wrong), TableError)
    text = _message(table.options("custmers"), TableError)
    assert "no table 'custmers'" in text and "did you mean 'customers'?" in text


def test_a_misspelt_column_names_the_nearest(table: Database) -> None:
    with pytest.raises(
        TableError, match=r"'contry'; did you mean 'country'\?.*columns: id, country"
    ):
        table.source("customers", [Column("contry", "INT")])


def test_a_key_of_a_type_that_is_not_exact(table: Database) -> None:
    table.run("CREATE TABLE named (id DOUBLE PRIMARY KEY)")
    assert "has the type double" in _message(table.options("named"), TableError)


def test_missing_grants_say_what_to_grant(table: Database) -> None:
    table.server.execute(
        "CREATE OR REPLACE USER poor@'%' IDENTIFIED BY 's3cret-word'",
        f"GRANT SELECT ON {table.name}.* TO poor@'%'",
    )
    options = table.options("customers", username="poor", password=SECRET)
    text = _message(options, ConnectError)
    assert "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'poor'" in text
    table.server.execute("GRANT BINLOG MONITOR ON *.* TO poor@'%'")
    assert "REPLICATION SLAVE is not granted" in _message(options, ConnectError)
    table.server.execute("GRANT REPLICATION SLAVE ON *.* TO poor@'%'")
    source = MySqlSource(options)
    assert SECRET not in repr(source) and SECRET not in repr(source._options)
    catch_up(source, source.initial_offset())
    assert SECRET not in repr(source._planner.captured_tables())
    source.close()


@pytest.fixture
def server_with(
    installed: Installed, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[MariaDB]:
    with Server(installed(tmp_path / "own"), server_options=[request.param]) as server:
        yield server


@pytest.mark.parametrize(
    ("server_with", "message"),
    [
        ("--skip-log-bin", "log_bin is OFF; change data capture needs log-bin = ON"),
        ("--binlog-format=MIXED", "binlog_format is MIXED; .* needs binlog-format = ROW"),
        ("--binlog-row-image=MINIMAL", "binlog_row_image is MINIMAL; .* binlog-row-image = FULL"),
    ],
    indirect=["server_with"],
)
def test_a_server_set_up_otherwise(server_with: MariaDB, message: str) -> None:
    database = Database(server_with)
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    with pytest.raises(ConnectError, match=message):
        database.source("t")
    database.close()


def test_small_row_images_of_a_session_are_an_error(table: Database) -> None:
    table.run("INSERT INTO customers VALUES (1, 1)")
    source = table.source("customers")
    offset, _ = catch_up(source, source.initial_offset())
    table.run("SET binlog_row_image = MINIMAL", "UPDATE customers SET country = 2")
    with pytest.raises(ConnectError, match="incomplete rows.*set binlog_row_image = FULL"):
        catch_up(source, offset)


def test_a_server_without_full_metadata_is_followed_by_place(
    installed: Installed, tmp_path: Path
) -> None:
    options = ["--binlog-row-metadata=NO_LOG"]
    with Server(installed(tmp_path / "own"), server_options=options) as server:
        database = Database(server)
        database.run("CREATE TABLE t (a ENUM('x','y'), id INT UNSIGNED PRIMARY KEY, b CHAR(3))")
        source = database.source("t", [Column("id", "BIGINT"), Column("a", "STRING")])
        offset, _ = catch_up(source, source.initial_offset())
        database.run("INSERT INTO t VALUES ('y', 4294967295, 'é')")
        offset, rows = catch_up(source, offset)
        assert rows == [{"id": 4294967295, "a": "y", "rowkind": "+I"}]
        database.close()


def test_an_option_that_is_unknown() -> None:
    with pytest.raises(OptionError, match="did you mean 'hostname'"):
        MySqlSource({"hostnam": "x"})
