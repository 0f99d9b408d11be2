"""Syncs that start at an earlier position of the binlog."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.integration.runtime.conftest import Run
from tests.integration.runtime.test_mysql_startup_modes import position
from tests.integration.runtime.test_sync import Sync, fresh, mysql_conf, sync, there
from tests.mysql_server import IS_MYSQL

from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import SchemaChangeError
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.runtime.sync.options import sync_database_options
from streamhouse.runtime.sync.run import SyncRun, run_sync
from streamhouse.source import ROW_KIND

__all__ = ["sync"]
_TABLE_CONF = {"bucket": "1", "changelog-producer": "input"}


def _startup(mode: str, **more: Any) -> dict[str, str]:
    options = {f"scan.startup.{key}": str(value) for key, value in more.items()}
    return {"scan.startup.mode": mode, **options}


def _at(file: str, pos: object) -> dict[str, str]:
    more = {"specific-offset.file": file, "specific-offset.pos": pos}
    return _startup("specific-offset", **more)


def _followed(sync: Sync, database: str, target: str, startup: dict[str, str]) -> None:
    conf = mysql_conf(sync.server, database, **startup)
    options = sync_database_options(sync.warehouse.options, target, conf, table_conf=_TABLE_CONF)
    run_sync(SyncRun(options, until_caught_up=True, notice=sync.notices.append))


def _kinds(sync: Sync, table: str) -> list[tuple[Any, ...]]:
    source = PaimonSource(sync.warehouse.options, table, ["id", "v"])
    end = source.latest_offset({"snapshot": 0})
    partitions = source.partitions({"snapshot": 0}, end)
    rows = [
        row
        for partition in partitions
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]
    return [(row[ROW_KIND], row["id"], row["v"]) for row in rows]


def test_each_mode_starts_where_it_says(sync: Sync, mariadb: MariaDB, tmp_path: Path) -> None:
    fresh(mariadb, "sync_past")
    mariadb.execute(
        "RESET MASTER",  # other tests have written as statements
        "CREATE TABLE sync_past.t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO sync_past.t VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
    )
    file, pos = position(mariadb)
    # MySQL has no GTIDs here.
    gtid = "" if IS_MYSQL else mariadb.execute("SELECT @@gtid_binlog_pos")[0][0]
    mariadb.execute("UPDATE sync_past.t SET v = 20 WHERE id = 2")
    time.sleep(1.1)
    (millis,) = mariadb.execute("SELECT ROUND(UNIX_TIMESTAMP(NOW(3)) * 1000)")[0]
    mariadb.execute(
        "DELETE FROM sync_past.t WHERE id = 3",
        "CREATE TABLE sync_past.late (id INT PRIMARY KEY, v INT)",
        "INSERT INTO sync_past.late VALUES (1, 1), (2, 2)",
        "ALTER TABLE sync_past.late ADD COLUMN w INT DEFAULT 7",
        "ALTER TABLE sync_past.t ADD INDEX (v)",
        "UPDATE sync_past.t SET v = 40 WHERE id = 4",
    )
    specific = _at(file, pos)
    modes = {
        "at_position": specific,
        "without_one": specific | {"scan.startup.specific-offset.skip-events": "5"},
        "at_time": _startup("timestamp", **{"timestamp-millis": int(millis)}),
        "earliest": _startup("earliest-offset"),
    }
    if gtid:
        modes["after_gtids"] = _startup("specific-offset", **{"specific-offset.gtid-set": gtid})
    command = ["sync", "mysql-database", "--warehouse", str(sync.folder / "warehouse")]
    command += ["--database", "at_position"]
    for key, value in mysql_conf(mariadb, "sync_past", **specific).items():
        command += [f"--mysql-conf={key}={value}"]
    for key, value in _TABLE_CONF.items():
        command += [f"--table-conf={key}={value}"]
    for point in ("table-created:0:at_position.t", "table-committed:1"):
        killed = Run(tmp_path, command, {"STREAMHOUSE_FAILPOINT": point}, spark=False)
        assert killed.wait().code == -9
    for target, startup in modes.items():
        _followed(sync, "sync_past", target, startup)
        assert there(sync.warehouse, f"{target}.late") == [(1, 1, 7), (2, 2, 7)], target
    since_deleted = [(4, 40)]
    for target in modes.keys() & {"at_position", "after_gtids"}:
        assert there(sync.warehouse, f"{target}.t") == [(2, 20), *since_deleted], target
    for target in ("without_one", "at_time"):
        assert there(sync.warehouse, f"{target}.t") == since_deleted, target
    assert there(sync.warehouse, "earliest.t") == [(1, 1), (2, 20), (4, 40)]
    mariadb.execute("INSERT INTO sync_past.t VALUES (5, 5)", "DELETE FROM sync_past.late")
    _followed(sync, "sync_past", "at_position", specific)
    assert there(sync.warehouse, "at_position.late") == []
    assert there(sync.warehouse, "at_position.t") == [(2, 20), (4, 40), (5, 5)]
    # Each change once, although the driver was killed.
    assert max(Counter(_kinds(sync, "at_position.t")).values()) == 1


def test_a_start_before_the_columns_were_altered(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "sync_unknown")
    mariadb.execute(
        "CREATE TABLE sync_unknown.t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE sync_unknown.u (id INT PRIMARY KEY, v INT)",
        "INSERT INTO sync_unknown.t VALUES (1, 1)",
    )
    file, pos = position(mariadb)
    mariadb.execute(
        "INSERT INTO sync_unknown.t VALUES (2, 2)",
        "ALTER TABLE sync_unknown.t ADD COLUMN IF NOT EXISTS w INT FIRST",
        "INSERT INTO sync_unknown.t VALUES (3, 3, 3)",
        "TRUNCATE TABLE sync_unknown.u",
        "CREATE TABLE IF NOT EXISTS sync_unknown.u (x INT)",
        "INSERT INTO sync_unknown.u VALUES (9, 9)",
    )
    startup = _at(file, pos)
    with pytest.raises(SchemaChangeError, match="columns of 1 tables there are not known") as why:
        _followed(sync, "sync_unknown", "past", startup)
    assert "sync_unknown.t by 'ALTER TABLE sync_unknown.t ADD COLUMN" in str(why.value)
    later = re.search(r"start at (\S+):(\d+) or later", str(why.value))
    assert later is not None
    startup = _at(later[1], later[2])
    _followed(sync, "sync_unknown", "past", startup)
    assert there(sync.warehouse, "past.t") == [(3, 3, 3)]
    assert there(sync.warehouse, "past.u") == [(9, 9)]
