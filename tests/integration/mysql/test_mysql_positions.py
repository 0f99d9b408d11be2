"""Where a stream begins in the binlog, and whether the binlog is still the same one."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database, catch_up, rows_of
from tests.mysql_server import IS_MYSQL, Server
from tests.waiting import DEADLINE_S

from streamhouse.connectors.mysql_cdc import source as source_module
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.demo.mariadb import PASSWORD, USER
from streamhouse.errors import DataLossError, OptionError
from streamhouse.mysql import connection
from streamhouse.mysql.gtids import parse_gtids

CREATE = "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)"
MODE = "scan.startup.mode"
OFFSET = "scan.startup.specific-offset"


@pytest.fixture
def database(own_database: Database) -> Database:
    own_database.run(CREATE)
    return own_database


def insert(database: Database, *numbers: int) -> None:
    for number in numbers:
        database.run(f"INSERT INTO t VALUES ({number}, 'x')")


def read(database: Database, mode: str, **options: str) -> list[int]:
    """All ids from the start on, by two sources that share only the offset."""
    options = {MODE: mode} | {key.replace("_", "-"): value for key, value in options.items()}
    source = database.source("t", options=options)
    start = source.initial_offset()
    first = source.latest_offset(start)
    found = rows_of(source, start, first) if "file" in start else []
    _, rows = catch_up(database.source("t", options=options), first)
    return [row["id"] for row in [*found, *rows]]


def specific(**options: str) -> dict[str, str]:
    return {f"{OFFSET}.{key.replace('_', '-')}": value for key, value in options.items()}


def gtid(database: Database) -> str:
    return str(database.run("SELECT @@gtid_binlog_pos")[0][0])


def reset(database: Database, larger: bool) -> None:
    """A new binlog with the name of the old one, in which it has a transaction at each place."""

    def size() -> int:
        return int(database.run("SHOW BINARY LOGS")[0][1])

    before = size()
    database.run("RESET MASTER")
    while larger and size() < before + 2000:
        database.run("REPLACE INTO t VALUES (1000, CONCAT(REPEAT('x', 900), RAND()))")


@pytest.mark.parametrize("phase", ["snapshot", "binlog"])
@pytest.mark.parametrize("where", ["driver", "task", "same source"])
def test_a_binlog_that_was_reset_is_data_loss(database: Database, where: str, phase: str) -> None:
    insert(database, *range(20))
    options = {"scan.incremental.snapshot.chunk.size": "5"}
    source = database.source("t", options=options)
    offset = source.latest_offset(source.initial_offset(), 5)
    rows_of(source, source.initial_offset(), offset)
    if phase == "binlog":
        offset, _ = catch_up(source, offset)
    assert offset["binlog"][1] == 1 and ("snapshot" in offset) == (phase == "snapshot")
    insert(database, 20)
    end = source.latest_offset(offset, 5)
    reset(database, larger=True)
    other = source if where == "same source" else database.source("t", options=options)
    with pytest.raises(DataLossError, match="new checkpoint") as caught:
        if where == "driver":
            other.latest_offset(offset)
        elif where == "task":
            rows_of(other, offset, end)
        else:
            # The driver notices at the next file or connection at the latest, a task at once.
            catch_up(other, offset)
    if where == "driver":
        assert re.search(r"another one .*created .*RESET MASTER", str(caught.value))


def test_another_server_is_data_loss(
    database: Database, installed: Installed, tmp_path: Path
) -> None:
    insert(database, 1)
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    other = ["--server-id=2"]
    with Server(installed(tmp_path / "other"), server_options=other) as server:
        server.execute(f"CREATE DATABASE {database.name}")
        server.execute(CREATE, database=database.name)
        while int(server.execute("SHOW MASTER STATUS")[0][1]) < offset["pos"] + 500:
            server.execute("REPLACE INTO t VALUES (7, RAND())", database=database.name)
        moved = MySqlSource(database.options("t", port=str(server.port)))
        with pytest.raises(DataLossError, match="is another server"):
            moved.latest_offset(offset)
        moved.close()


@pytest.mark.skipif(IS_MYSQL, reason="MariaDB's replication")
def test_a_stream_goes_on_at_a_replica(
    database: Database, installed: Installed, tmp_path: Path
) -> None:
    """At each of its offsets, and after an interrupted batch not."""
    insert(database, 1)
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    assert parse_gtids(offset["gtids"]).mariadb
    before = database.run("SELECT @@gtid_binlog_pos")[0][0]
    options = ["--server-id=2", "--log-slave-updates", "--binlog-checksum=NONE"]
    with Server(installed(tmp_path / "other"), server_options=options) as other:
        other.execute(
            f"CREATE DATABASE {database.name}",
            f"USE {database.name}",
            CREATE,
            "INSERT INTO t (id) VALUES (1)",
            "RESET MASTER",
            f"SET GLOBAL gtid_slave_pos = '{before}'",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {database.server.port},"
            f" master_user = '{USER}', master_password = '{PASSWORD}', master_use_gtid = slave_pos",
            "START SLAVE",
        )
        insert(database, 2, 3)
        middle, rows = catch_up(source, offset)
        assert [row["id"] for row in rows] == [2, 3]
        insert(database, 4)
        later = source.latest_offset(middle)
        last = database.run("SELECT @@gtid_binlog_pos")[0][0]
        assert other.execute(f"SELECT MASTER_GTID_WAIT('{last}', 60)")[0][0] == 0
        other.execute("STOP SLAVE", f"INSERT INTO {database.name}.t (id) VALUES (5)")
        moved = MySqlSource(database.options("t", port=str(other.port)))
        place = moved.latest_offset(middle)
        assert place["moved"] and moved.partitions(middle, place) == []
        end, rows = catch_up(moved, place)
        assert [row["id"] for row in rows] == [4, 5] and "moved" not in end
        with pytest.raises(DataLossError, match="interrupted batch"):
            moved.partitions(middle, later)
        moved.close()


def test_a_restart_of_the_server_keeps_the_binlog(database: Database) -> None:
    insert(database, 1)
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    database.server.stop()
    database.server.start()
    insert(database, 2)
    assert [row["id"] for row in catch_up(source, offset)[1]] == [2]


def test_a_start_after_gtids(database: Database) -> None:
    insert(database, 1)
    first = gtid(database)
    insert(database, 2)
    second = gtid(database)
    database.run("FLUSH BINARY LOGS")
    insert(database, 3)
    assert read(database, "specific-offset", **specific(gtid_set=first)) == [2, 3]
    assert read(database, "specific-offset", **specific(gtid_set=second)) == [3]
    last = gtid(database)
    assert read(database, "specific-offset", **specific(gtid_set=last)) == []


def test_a_start_after_gtids_of_two_domains(database: Database) -> None:
    insert(database, 1)
    first = gtid(database)
    insert(database, 2)
    database.run("SET gtid_domain_id = 5", "INSERT INTO t VALUES (11, '')")
    mixed = f"{first},5-1-1"
    insert(database, 3)
    database.run("SET gtid_domain_id = 5", "INSERT INTO t VALUES (12, '')")
    assert read(database, "specific-offset", **specific(gtid_set=mixed)) == [2, 3, 12]
    # A domain that is not in the set is read from its start.
    assert read(database, "specific-offset", **specific(gtid_set=first)) == [2, 11, 3, 12]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("0-1-999", "not a GTID set" if IS_MYSQL else "has not logged all of '0-1-999'"),
        ("0-1-2,9-1-1", "not a GTID set" if IS_MYSQL else "has not logged all of"),
        (
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9-10",
            "has not logged all of" if IS_MYSQL else "not a GTID set of this server",
        ),
    ],
)  # fmt: skip
def test_gtids_that_the_server_does_not_have(database: Database, wanted: str, message: str) -> None:
    insert(database, 1)
    with pytest.raises(OptionError, match=message):
        read(database, "specific-offset", **specific(gtid_set=wanted))


def test_a_start_in_a_purged_binlog_is_data_loss(database: Database) -> None:
    insert(database, 1)
    before = gtid(database)
    instant = str(int(time.time() * 1000) - 60_000)
    insert(database, 2)
    database.run("FLUSH BINARY LOGS")
    database.purge()
    insert(database, 3)
    with pytest.raises(DataLossError, match="removed the binlog with transactions.*'initial'"):
        read(database, "specific-offset", **specific(gtid_set=before))
    with pytest.raises(DataLossError, match="is younger; the changes before it are lost"):
        read(database, "timestamp", **{"scan.startup.timestamp-millis": instant})
    place = specific(file="binlog.000001", pos="4")
    with pytest.raises(DataLossError, match="has removed|no longer has"):
        read(database, "specific-offset", **place)
    assert read(database, "earliest-offset") == [3]


def test_a_start_at_a_time(database: Database) -> None:
    def now() -> str:
        return str(database.run("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS INT)")[0][0])

    insert(database, 1)
    time.sleep(1.1)
    second = now()
    insert(database, 2)
    database.run("FLUSH BINARY LOGS")
    time.sleep(1.1)
    third = now()
    insert(database, 3)
    key = "scan.startup.timestamp-millis"
    assert read(database, "timestamp", **{key: "0"}) == [1, 2, 3]
    assert read(database, "timestamp", **{key: second}) == [2, 3]
    assert read(database, "timestamp", **{key: third}) == [3]
    time.sleep(1.1)
    assert read(database, "timestamp", **{key: now()}) == []
    future = str(int(now()) + 3_600_000)
    with pytest.raises(OptionError, match="is in the future of the server"):
        database.source("t", options={MODE: "timestamp", key: future})


def test_a_start_that_leaves_out_events_and_rows(database: Database) -> None:
    start: Any = database.run("SHOW MASTER STATUS")[0]
    database.run("INSERT INTO t VALUES (1, ''), (2, ''), (3, '')")
    insert(database, 4)
    kinds = [
        row[2]
        for row in database.run(f"SHOW BINLOG EVENTS FROM {start[1]}")
        if row[2] != "Annotate_rows"
    ]
    # MySQL logs BEGIN as an event.
    begin = ["Anonymous_Gtid", "Query"] if IS_MYSQL else ["Gtid"]
    write = "Write_rows" if IS_MYSQL else "Write_rows_v1"
    assert kinds[: len(begin) + 3] == [*begin, "Table_map", write, "Xid"]
    events = 3 + len(begin)
    place = specific(file=start[0], pos=str(start[1]))

    def after(events: int, rows: int) -> list[int]:
        skipped = specific(skip_events=str(events), skip_rows=str(rows))
        return read(database, "specific-offset", **place, **skipped)

    assert after(0, 0) == [1, 2, 3, 4]
    assert after(0, 2) == after(2, 2) == [3, 4]
    assert after(events - 1, 0) == after(events, 0) == [4]
    assert after(events, 1) == []
    with pytest.raises(OptionError, match=f"has only {2 * events} events"):
        after(2 * events + 1, 0)
    if IS_MYSQL:
        return
    name = specific(gtid_set=gtid(database), skip_events="0")
    assert read(database, "specific-offset", **name) == []


def test_a_new_source_waits_for_a_server_that_restarts(
    database: Database, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_QUIET_SECONDS", 0.2)
    monkeypatch.setattr(source_module, "FIRST_START_SECONDS", DEADLINE_S)
    insert(database, 1)
    database.server.stop()
    options = database.options("t")
    del options["connect.max-retries"]
    back = threading.Timer(1.0, database.server.start)
    back.start()
    source = MySqlSource(options)
    back.join(DEADLINE_S)
    assert [row["id"] for row in catch_up(source, source.initial_offset())[1]] == [1]
    source.close()
    error = capfd.readouterr().err
    assert re.search(
        r"MySQL at 127.0.0.1:\d+ cannot be reached .*trying again for up to 240 s", error
    )
