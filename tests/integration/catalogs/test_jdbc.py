"""A JDBC catalog: names of tables in a database, the same tables for all cores, its lock."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pymysql
import pytest
from tests.java_reads import java_rows
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import CommitConflictError, ConnectError, OptionError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

COLUMNS = [Column("id", "INT", False), Column("name", "STRING")]


def write(warehouse: Warehouse, name: str, ids: list[int]) -> None:
    user = str(uuid.uuid4())
    writer = TableWriter(warehouse.options, name, user)
    writer.write(pa.record_batch({"id": pa.array(ids, pa.int32()), "name": [str(i) for i in ids]}))
    messages = writer.prepare(0)
    writer.close()
    TableCommitter(warehouse.options, name, user).commit(0, messages)


def ids(table: Table) -> list[int]:
    return sorted(value for batch in table.read() for value in batch["id"].to_pylist())


@pytest.fixture(params=["sqlite", "mysql"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """The options of an empty JDBC catalog with its lock."""
    own = {"warehouse": str(tmp_path / "lake"), "metastore": "jdbc", "lock.enabled": "true"}
    if request.param == "sqlite":
        return {**own, "uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}"}
    server: MariaDB = request.getfixturevalue("mariadb")
    database = f"catalog_{uuid.uuid4().hex[:8]}"
    server.execute(
        f"CREATE DATABASE {database} CHARACTER SET utf8mb3",
        "CREATE USER IF NOT EXISTS keeper@'127.0.0.1' IDENTIFIED BY 'kept'",
        f"GRANT ALL ON {database}.* TO keeper@'127.0.0.1'",
    )
    uri = f"jdbc:mysql://127.0.0.1:{server.port}/{database}"
    return {**own, "uri": uri, "jdbc.user": "keeper", "jdbc.password": "kept"}


def test_all_cores_resolve_the_same_table(options: Mapping[str, str]) -> None:
    from pypaimon import CatalogFactory

    warehouse = Warehouse(options)
    warehouse.create_database("shop")
    warehouse.create_table("shop", "t", COLUMNS, ["id"], options={"bucket": "1"})
    write(warehouse, "shop.t", [1, 2])
    with CatalogFactory.create(dict(options)) as official:
        assert official.list_databases() == warehouse.databases() == ["shop"]
        assert official.list_tables("shop") == warehouse.tables("shop") == ["t"]
        table: Any = official.get_table("shop.t")
        assert str(table.table_path) == warehouse.table("shop.t").location
    with Sidecar(options) as java:
        assert java.compact("shop.t", full=True)
        assert sorted(java_rows(java, "shop.t")["id"].to_pylist()) == [1, 2]
    write(warehouse, "shop.t", [3])
    assert ids(warehouse.table("shop.t")) == [1, 2, 3]
    warehouse.rename_table("shop.t", "shop.u")
    assert (warehouse.tables("shop"), ids(warehouse.table("shop.u"))) == (["u"], [1, 2, 3])
    with pytest.raises(TableError, match="there is no table 't'"):
        warehouse.table("shop.t")
    warehouse.drop_table("shop", "u")
    assert warehouse.tables("shop") == []


def test_commits_take_the_lock_of_the_catalog(options: Mapping[str, str]) -> None:
    warehouse = Warehouse(options)
    warehouse.create_database("shop")
    warehouse.create_table("shop", "t", COLUMNS, options={"bucket": "-1"})
    location = warehouse.table("shop.t").location
    from streamhouse.paimon.storage.jdbc_lock import jdbc_lock

    with commit_lock(location), pytest.raises(CommitConflictError, match="'jdbc.shop.t'"):
        # As another machine would, which does not share the local lock.
        with jdbc_lock(options, location, 0.1, "testing"):
            pass
    with jdbc_lock(options, location, 1.0, "testing"):
        with pytest.raises(CommitConflictError, match="'jdbc.shop.t'"):
            with commit_lock(location, 0.1):
                pass
    write(warehouse, "shop.t", [7])
    assert ids(warehouse.table("shop.t")) == [7]


def test_a_lock_that_expired_is_taken_over(tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    options = {
        "warehouse": str(tmp_path / "lake"),
        "metastore": "jdbc",
        "uri": f"jdbc:sqlite:{database}",
        "lock.enabled": "true",
    }
    warehouse = Warehouse(options)
    warehouse.create_database("shop")
    warehouse.create_table("shop", "t", COLUMNS, options={"bucket": "-1"})
    location = warehouse.table("shop.t").location
    with commit_lock(location):
        pass
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "INSERT INTO paimon_distributed_locks VALUES "
            "('jdbc.shop.t', datetime('now', '-100 seconds'), 60)"
        )
    with commit_lock(location, 0.5):
        pass


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The connections to databases that the test opens from here on."""
    connections: list[Any] = []

    def collected(connect: Any) -> Any:
        def collect(*args: Any, **kwargs: Any) -> Any:
            connections.append(connect(*args, **kwargs))
            return connections[-1]

        return collect

    for module in (sqlite3, pymysql):
        monkeypatch.setattr(module, "connect", collected(module.connect))
    return connections


def test_errors_of_the_lock_are_reported_and_close_the_connection(
    options: Mapping[str, str], opened: list[Any]
) -> None:
    from streamhouse.paimon.storage.jdbc_lock import jdbc_lock

    def execute(statement: str) -> None:
        with closing(connected(options)) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(statement)
            connection.commit()

    def lock() -> AbstractContextManager[None]:
        return jdbc_lock(options, f"{options['warehouse']}/shop.db/t", 0.1, "testing")

    refused = "the catalog's database refuses the lock 'jdbc.shop.t': "
    with pytest.raises(ConnectError, match=refused):
        with lock():
            execute("DROP TABLE paimon_distributed_locks")
    checked = "lock_id VARCHAR(9), acquired_at INT, expire_time_seconds INT, CHECK (lock_id = 'x')"
    for columns in ("lock_id INT", checked):
        execute(f"CREATE TABLE paimon_distributed_locks ({columns})")
        with pytest.raises(ConnectError, match=refused), lock():
            pass
        execute("DROP TABLE paimon_distributed_locks")
    assert len(opened) >= 3 and all(map(is_closed, opened))


def connected(options: Mapping[str, str]) -> Any:
    """A connection to the catalog's database."""
    if options["uri"].startswith("jdbc:sqlite:"):
        return sqlite3.connect(options["uri"].removeprefix("jdbc:sqlite:"))
    at = urlsplit(options["uri"].removeprefix("jdbc:"))
    return pymysql.connect(
        host=at.hostname, port=at.port or 0, database=at.path.lstrip("/"),
        user=options["jdbc.user"], password=options["jdbc.password"],
    )  # fmt: skip


def is_closed(connection: Any) -> bool:
    try:
        connection.cursor().execute("SELECT 1")
    except (sqlite3.ProgrammingError, pymysql.InterfaceError):
        return True
    return False


def test_a_file_that_is_no_database_is_reported(tmp_path: Path, opened: list[Any]) -> None:
    from streamhouse.paimon.storage.jdbc_lock import jdbc_lock

    (tmp_path / "catalog.db").write_text("no database" * 100)
    options = {"uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}"}
    with pytest.raises(ConnectError, match="refuses the lock 'jdbc.shop.t': file is not a"):
        with jdbc_lock(options, f"{tmp_path}/shop.db/t", 0.1, "testing"):
            pass
    assert len(opened) == 1 and is_closed(opened[0])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"metastore": "jdbc"}, "option 'uri' is missing"),
        ({"metastore": "hive"}, "'metastore' is 'hive', which is not supported"),
        ({"metastore": "jdcb"}, "not one of filesystem, jdbc, rest"),
        ({"uri": "jdbc:sqlite:x"}, "option 'uri' is for 'metastore' = 'jdbc'"),
        ({"metastore": "jdbc", "uri": "x", "jdbc.usr": "y"}, "did you mean 'jdbc.user'?"),
    ],
)
def test_options_are_checked_alike(tmp_path: Path, given: Mapping[str, str], text: str) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    flags = [word for pair in given.items() for word in ("--option", "=".join(pair))]
    command = ["query", "SELECT 1 AS one", "--warehouse", str(lake), *flags]
    ended = CliRunner().invoke(build(command), command)
    assert ended.exit_code == 1 and text in " ".join(ended.stderr.split()), ended.stderr
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    script = tmp_path / "catalog.sql"
    script.write_text(
        f"CREATE CATALOG c WITH ('type' = 'paimon', 'warehouse' = '{lake}', {pairs});"
    )
    command = ["run", str(script)]
    ended = CliRunner().invoke(build(command), command)
    assert ended.exit_code == 1 and text in " ".join(ended.stderr.split()), ended.stderr


def test_a_database_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    options = {
        "warehouse": str(tmp_path),
        "metastore": "jdbc",
        "uri": "jdbc:mysql://127.0.0.1:9/catalog",
        "jdbc.user": "u",
        "jdbc.password": "hushhush",
    }
    with pytest.raises(ConnectError, match="the catalog's database does not answer") as raised:
        Warehouse(options).databases()
    assert "hushhush" not in str(raised.value)
    with pytest.raises(OptionError, match="jdbc:oracle"):
        Warehouse({**options, "uri": "jdbc:oracle:x"}).databases()
