"""A target of a sync is changed by others while the sync is stopped: its rows end as MySQL's."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.schema_changes import mysql_rows, paimon_rows
from tests.integration.runtime.test_sync import Sync, fresh, mysql_conf
from tests.mysql_server import IS_MYSQL, Server

from streamhouse import execute
from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import TableError
from streamhouse.runtime.sync.options import sync_database_options
from streamhouse.runtime.sync.run import SyncRun, run_sync

SWAP = "RENAME v TO x; ALTER TABLE ods.{} RENAME w TO v; ALTER TABLE ods.{} RENAME x TO w"
AGAIN = "CREATE TABLE ods.{} (id INT PRIMARY KEY NOT ENFORCED, v INT, w INT) WITH ('bucket' = '1')"
CHANGES = {
    "swapped": "ALTER TABLE ods.{} " + SWAP,
    "replaced": "ALTER TABLE ods.{} DROP v; ALTER TABLE ods.{} ADD v INT",
    "created": "DROP TABLE ods.{}; " + AGAIN,
    "named": "ALTER TABLE ods.{} RENAME v TO x; ALTER TABLE ods.{} ADD v INT",
    "more": "ALTER TABLE ods.{} ADD another INT",
}


@pytest.fixture
def sync(mariadb: MariaDB, tmp_path: Path, without_jvm: None) -> Sync:
    return Sync(mariadb, tmp_path)


def test_targets_that_others_changed_between_two_runs(sync: Sync, mariadb: MariaDB) -> None:
    name = "sync_targets"
    fresh(mariadb, name)
    for table in CHANGES:
        mariadb.execute(
            f"CREATE TABLE {name}.{table} (id INT PRIMARY KEY, v INT, w INT)",
            f"INSERT INTO {name}.{table} VALUES (1, 10, 11), (2, 20, 21)",
        )
    sync.database(name, table_conf={"bucket": "1"})
    for table, change in CHANGES.items():
        execute(sync.warehouse, change.replace("{}", table))
        mariadb.execute(f"UPDATE {name}.{table} SET v = 22 WHERE id = 2")
    sync.database(name, table_conf={"bucket": "1"})
    for table in CHANGES:
        rows = paimon_rows(sync.warehouse, f"ods.{table}")
        kept = [{key: row[key] for key in ("id", "v", "w")} for row in rows]
        assert kept == mysql_rows(mariadb, f"{name}.{table}"), table
    compared = [text for text in sync.notices if "was compared with MySQL" in text]
    assert len(compared) == len(CHANGES) - 1 and not any("ods.more" in text for text in compared)
    before = len(sync.notices)
    sync.database(name, table_conf={"bucket": "1"})
    assert sync.notices[before:] == []
    # While nothing changes in MySQL, too.
    execute(
        sync.warehouse, "TRUNCATE TABLE ods.more; " + CHANGES["created"].replace("{}", "created")
    )
    sync.database(name, table_conf={"bucket": "1"})
    for table in ("created", "more"):
        assert len(paimon_rows(sync.warehouse, f"ods.{table}")) == 2, table


def test_equally_named_tables_of_two_servers(sync: Sync, mariadb: MariaDB) -> None:
    """The second sync would delete the rows of the first; another name of the host will do."""
    name = "sync_two_servers"
    fresh(mariadb, name)
    mariadb.execute(
        f"CREATE TABLE {name}.t (id INT PRIMARY KEY)", f"INSERT INTO {name}.t VALUES (1)"
    )
    sync.database(name)
    mariadb.execute(f"DELETE FROM {name}.t", f"INSERT INTO {name}.t VALUES (2)")
    conf = mysql_conf(mariadb, name) | {"hostname": "localhost"}
    options = sync_database_options(sync.warehouse.options, "ods", conf)
    both = rf"rows of MySQL at 127.0.0.1:{mariadb.port} .* of MySQL at localhost:{mariadb.port}"
    with pytest.raises(TableError, match=both):
        run_sync(SyncRun(options, "second", until_caught_up=True))
    assert paimon_rows(sync.warehouse, "ods.t") == [{"id": 1}]
    run_sync(SyncRun(options, "second", until_caught_up=True, from_scratch=True))
    assert paimon_rows(sync.warehouse, "ods.t") == [{"id": 2}]
    run_sync(SyncRun(options, "second", until_caught_up=True))


@pytest.mark.skipif(IS_MYSQL, reason="the setting is the same, and is read in the same way")
def test_a_server_that_does_not_log_a_database_any_more(
    installed: Installed, tmp_path: Path, without_jvm: None
) -> None:
    with Server(installed(tmp_path / "mariadb")) as server:
        sync = Sync(server, tmp_path)
        fresh(server, "unlogged")
        server.execute("CREATE TABLE unlogged.t (id INT PRIMARY KEY)")
        sync.database("unlogged")
        server.stop()
        server.server_options = ("--binlog-ignore-db=unlogged",)
        server.start()
        server.execute("INSERT INTO unlogged.t VALUES (1)")
        with pytest.raises(TableError, match="does not log changes of database 'unlogged'"):
            sync.database("unlogged")
