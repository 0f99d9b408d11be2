"""`streamhouse check mysql` reports everything that is missing, and its fixes work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database
from tests.mysql_server import IS_MYSQL, Server
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.connectors.mysql_cdc.database.discovery import Discovery, TableFilter
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import parse
from streamhouse.mysql.table import check_server

Found = dict[str, dict[str, Any]]


def _run(server: MariaDB, *arguments: str, user: str = USER) -> tuple[int, str]:
    place = ["--hostname", "127.0.0.1", "--port", str(server.port), "--username", user]
    command = ["check", "mysql", *place, *arguments]
    ended = CliRunner().invoke(build(["check"]), command, env={"CHECK_PASSWORD": PASSWORD})
    assert PASSWORD not in ended.output.replace(f"'{USER}'", "")
    return ended.exit_code, ended.output


def _check(server: MariaDB, *arguments: str, user: str = USER) -> tuple[int, Found]:
    password = ["--password-env", "CHECK_PASSWORD"]
    code, output = _run(server, "--json", *password, *arguments, user=user)
    record = json.loads(output)
    assert record["ok"] is (code == 0)
    return code, {requirement["name"]: requirement for requirement in record["requirements"]}


def _missing(found: Found) -> set[str]:
    return {name for name, one in found.items() if one["status"] == "missing"}


def test_a_server_that_fits(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE a (id INT, b INT, PRIMARY KEY (id, b))")
    code, found = _check(database.server, "--database", database.name)
    assert code == 0 and _missing(found) == set()
    assert found[f"table {database.name}.a"]["value"] == "key: id, b"
    assert {"log_bin", "binlog_format", "REPLICATION SLAVE", "SELECT", "server_id"} <= set(found)
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n")
    arguments = ["--password-file", str(secret), "--database", database.name, "--table", "a"]
    code, output = _run(database.server, *arguments)
    assert code == 0 and "all that mysql-cdc requires is there" in output


def test_tables_that_cannot_be_followed(database: Database) -> None:
    database.run(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT REFERENCES parent (id) ON DELETE CASCADE)",
        "CREATE TABLE keyless (id INT)",
        "CREATE TABLE floating (id FLOAT PRIMARY KEY)",
        "CREATE TABLE prefixed (t TEXT, PRIMARY KEY (t(9)))",
        "CREATE TABLE versioned (id INT NOT NULL) ENGINE = CSV"
        if IS_MYSQL
        else "CREATE TABLE versioned (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
    )
    code, found = _check(database.server, "--database", database.name)
    # MySQL logs what foreign keys change.
    names = ("floating", "prefixed", "versioned") + ("child",) * (not IS_MYSQL)
    assert code == 1
    assert found[f"table {database.name}.keyless"]["value"] == "no key; LOCK TABLES is granted"
    assert _missing(found) == {f"table {database.name}.{name}" for name in names}
    for name in names:
        # What the check says is what the declaration of the table would raise.
        with pytest.raises(TableError) as caught:
            MySqlSource(database.options(name))
        assert found[f"table {database.name}.{name}"]["error"] == str(caught.value)
    code, found = _check(database.server, "--table", f"{database.name}.no_such")
    assert code == 1 and "has no table 'no_such'" in found[f"table {database.name}.no_such"]["fix"]


def test_grants_that_are_missing_are_mended_by_the_fixes(database: Database) -> None:
    database.run("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
    database.server.execute(f"CREATE OR REPLACE USER checked@'%' IDENTIFIED BY '{PASSWORD}'")
    code, found = _check(database.server, user="checked")
    wanted = {"REPLICATION SLAVE", "REPLICATION CLIENT", "SELECT"}
    assert (code, _missing(found)) == (1, wanted)
    with pytest.raises(StreamhouseError) as caught:
        MySqlSource(database.options("a", username="checked"))
    assert found["REPLICATION SLAVE"]["error"] == str(caught.value)
    for name in wanted - {"SELECT"}:
        database.server.execute(found[name]["fix"])
    database.run(f"GRANT SELECT ON {database.name}.a TO checked@'%'")
    code, found = _check(database.server, "--table", f"{database.name}.a", user="checked")
    assert (code, _missing(found)) == (0, set())
    database.run(f"GRANT INSERT ON {database.name}.b TO checked@'%'")
    code, found = _check(database.server, "--database", database.name, user="checked")
    unread = f"table {database.name}.b"
    assert (code, _missing(found)) == (1, {unread})
    database.server.execute(found[unread]["fix"])
    assert _check(database.server, "--database", database.name, user="checked")[0] == 0


@pytest.fixture(scope="module")
def unfit(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    options = ["--binlog-format=MIXED", "--binlog-row-image=MINIMAL", "--log-bin-compress=ON",
               "--binlog-row-metadata=MINIMAL", "--binlog-ignore-db=unlogged",
               "--binlog-expire-logs-seconds=3600", "--default-time-zone=SYSTEM"]  # fmt: skip
    folder = installed(tmp_path_factory.mktemp("unfit"))
    with Server(folder, server_options=options) as server:
        server.execute("CREATE DATABASE unlogged", "CREATE TABLE unlogged.t (id INT PRIMARY KEY)")
        yield server


def test_settings_that_are_missing_are_mended_by_the_fixes(unfit: MariaDB) -> None:
    code, found = _check(unfit, "--database", "unlogged")
    missing = {"binlog_format", "binlog_row_image"}
    assert (code, _missing(found)) == (1, missing)
    assert found["tables"]["status"] == "info"
    for name in ("binlog_row_metadata", "binlog expiry"):
        assert found[name]["status"] == "info" and "SET GLOBAL" in found[name]["fix"]
    for name in missing | {"binlog_row_metadata"}:
        statement = re.match(r"SET GLOBAL \w+ = \w+", found[name]["fix"])
        assert statement is not None
        unfit.execute(statement[0])
    code, found = _check(unfit, "--database", "unlogged")
    assert (code, _missing(found)) == (1, {"table unlogged.t"})
    error = found["table unlogged.t"]["error"]
    assert "binlog-ignore-db = unlogged" in error
    options = {"hostname": "127.0.0.1", "port": str(unfit.port), "username": USER,
               "password": PASSWORD, "database-name": "unlogged", "table-name": "t"}  # fmt: skip
    with pytest.raises(TableError) as caught:
        MySqlSource(options)
    assert str(caught.value) == error
    parsed = parse(options)
    with closing(Session(parsed)) as session:
        server, tables = check_server(session, parsed), TableFilter("unlogged")
        synced = Discovery.of_sync(session, server, parsed, tables).found()
    assert [table.reason for table in synced] == [error]


def test_a_server_that_cannot_be_reached_or_refuses_the_login(database: Database) -> None:
    code, found = _check(database.server, user="nobody")
    assert code == 1 and set(found) == {"connection"}
    assert "refuses the login of user 'nobody'" in found["connection"]["error"]
    if not IS_MYSQL:  # which makes certificates by itself
        code, found = _check(database.server, "--option", "ssl.mode=required")
        assert code == 1 and "offers no TLS" in found["connection"]["error"]
    code, output = _run(database.server, "--table", "t")
    assert code == 1 and "write DATABASE.t" in output
