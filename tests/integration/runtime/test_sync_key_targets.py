"""Syncs of tables whose keys the server's time zone could make equal."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.runtime.test_sync import Sync, fresh, mysql_conf, there

from streamhouse.demo.mariadb import MariaDB
from streamhouse.runtime.streaming.query import QueryFailed
from streamhouse.runtime.sync.options import sync_database_options
from streamhouse.runtime.sync.run import SyncRun, run_sync

UTC = "SET time_zone = '+00:00'"
MATCH = (
    r"MySQL table {database}\.ts: column 'k' \(timestamp\) of the key has the value 2024-10-27 "
    r"01:30:00 UTC, whose local time 2024-10-27 02:30:00 in the zone Europe/Berlin"
)


@pytest.fixture
def sync(mariadb: MariaDB, tmp_path: Any, in_threads: None) -> Sync:
    return Sync(mariadb, tmp_path)


def run(sync: Sync, database: str, zone: str, name: str, **how: Any) -> None:
    conf = mysql_conf(sync.server, database) | {"server-time-zone": zone}
    options = sync_database_options(
        sync.warehouse.options, "ods", conf, table_prefix=f"{name}_", **how
    )
    run_sync(SyncRun(options, name, until_caught_up=True, notice=sync.notices.append))


@pytest.mark.parametrize("modes", [[], ["to-string"]], ids=["timestamps", "texts"])
def test_the_repeated_hour(sync: Sync, mariadb: MariaDB, modes: list[str]) -> None:
    database = "hour_texts" if modes else "hour"
    fresh(mariadb, database)
    mariadb.execute(
        UTC,
        f"CREATE TABLE {database}.ts (k TIMESTAMP NOT NULL PRIMARY KEY, z TIMESTAMP NULL)",
        f"INSERT INTO {database}.ts VALUES ('2024-10-27 00:30:00', NULL)",
    )
    run(sync, database, "Europe/Berlin", "berlin", type_mapping=modes)
    # A column that is not in the key has the repeated hour, too.
    mariadb.execute(
        UTC, f"INSERT INTO {database}.ts VALUES ('2024-10-27 02:30:00', '2024-10-27 01:30:00')"
    )
    run(sync, database, "Europe/Berlin", "berlin", type_mapping=modes)
    assert len(there(sync.warehouse, "ods.berlin_ts")) == 2
    mariadb.execute(UTC, f"INSERT INTO {database}.ts VALUES ('2024-10-27 01:30:00', NULL)")
    for name in ("berlin", "fresh"):
        with pytest.raises(QueryFailed, match=MATCH.format(database=database)):
            run(sync, database, "Europe/Berlin", name, type_mapping=modes)
    for name, zone in (("offset", "+01:00"), ("utc", "UTC")):
        run(sync, database, zone, name, type_mapping=modes)
        assert len(there(sync.warehouse, f"ods.{name}_ts")) == 3
        mariadb.execute(
            UTC, f"UPDATE {database}.ts SET z = '2024-10-27 00:30:00' WHERE z IS NOT NULL"
        )
        run(sync, database, zone, name, type_mapping=modes)
        found = sorted(str(key) for key, _ in there(sync.warehouse, f"ods.{name}_ts"))
        hours = (1, 2, 3) if zone == "+01:00" else (0, 1, 2)
        assert [text[:16] for text in found] == [f"2024-10-27 0{hour}:30" for hour in hours]
