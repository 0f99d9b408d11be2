"""The relay log if its files or the server's are deleted, or the server ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database, catch_up, position, reached, rows_of
from tests.mysql_server import Server
from tests.unit.mysql.reference_decoder import changes as changes_of
from tests.waiting import until

from streamhouse.connectors.mysql_cdc.change_reader import TablePosition, read_tables
from streamhouse.connectors.mysql_cdc.relay import relay as relay_module
from streamhouse.connectors.mysql_cdc.relay.files import drop_old, segments
from streamhouse.connectors.mysql_cdc.relay.relay import Relay
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import ConnectError, DataLossError, StreamhouseError
from streamhouse.mysql import connection
from streamhouse.source import ROW_KIND, Offset

SECONDS = 60.0
CREATE = "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)"


@pytest.fixture(scope="module")
def server(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A server that these tests may restart and reset."""
    with Server(installed(tmp_path_factory.mktemp("own"))) as server:
        yield server


@pytest.fixture
def database(server: MariaDB) -> Iterator[Database]:
    made = Database(server)
    made.run(CREATE)
    yield made
    made.close()


def failed(relay: Relay) -> StreamhouseError:
    """What ended the reader."""
    error = until(lambda: relay.error)
    assert error is not None and len(str(error).splitlines()) == 1
    return error


def ids(source: MySqlSource, start: Offset, end: Offset) -> list[int]:
    return [row["id"] for row in rows_of(source, start, end)]


def test_what_is_dropped_while_it_is_read_comes_from_the_server(
    server: MariaDB, database: Database, tmp_path: Path
) -> None:
    database.relay(tmp_path, "t", most_bytes=400_000)
    source = database.source("t", relay=tmp_path)
    offset, _ = catch_up(source, source.initial_offset())
    for number in range(100):
        if number % 20 == 0:
            # Each of the server's files begins a segment, however much comes at once.
            database.run("FLUSH BINARY LOGS")
        database.run(f"INSERT INTO t VALUES ({number}, REPEAT('x', 2000))")
    end = reached(source, database, offset)
    # The table's columns, as MySQL logs no names of them.
    captured = source._planner.captured_tables()[-1]
    start = TablePosition(position(offset), table=captured.table)
    events = read_tables({captured: start}, position(end))
    changes = (change for _, event in events for change in changes_of(event))
    some = [next(changes) for _ in range(3)]
    assert len(segments(tmp_path)) > 3
    # As the log's writer does when a query is slow and the files take too much.
    drop_old(tmp_path, None, 0)
    assert len(segments(tmp_path)) == 1
    found = [change.after for change in [*some, *changes]]
    assert [after and after[0] for after in found] == list(range(100))
    # A batch that runs again, and the one that follows.
    assert ids(source, offset, end) == list(range(100))
    database.run("INSERT INTO t VALUES (100, NULL)")
    assert ids(source, end, reached(source, database, end)) == [100]


@pytest.mark.parametrize("crash", [False, True], ids=["restart", "crash"])
def test_the_log_continues_after_a_server_outage(
    server: MariaDB, database: Database, tmp_path: Path, crash: bool
) -> None:
    relay = database.relay(tmp_path, "t")
    source = database.source("t", relay=tmp_path)
    offset, _ = catch_up(source, source.initial_offset())
    (log,) = segments(tmp_path)
    database.run("INSERT INTO t VALUES (1, 'a')")
    cut_off = server.connect(database.name)
    with cut_off.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t VALUES (2, 'lost')")
    server.kill() if crash else server.stop()
    cut_off.close()
    server.start()
    database.run("INSERT INTO t VALUES (3, 'c')", "UPDATE t SET v = 'b' WHERE id = 1")
    offset, rows = catch_up(source, offset)
    assert [(row[ROW_KIND], row["id"], row["v"]) for row in rows] == [
        ("+I", 1, "a"), ("+I", 3, "c"), ("-U", 1, "a"), ("+U", 1, "b")
    ]  # fmt: skip
    # It is the same log, which goes on in the file that the server has begun.
    assert relay.error is None
    assert segments(tmp_path)[0] == log and len(segments(tmp_path)) > 1
    database.run("DELETE FROM t WHERE id = 3")
    offset, rows = catch_up(source, offset)
    assert [(row[ROW_KIND], row["id"]) for row in rows] == [("-D", 3)]


def test_a_permanent_server_outage_is_an_error(
    server: MariaDB, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "_RECONNECT_S", 0.5)
    monkeypatch.setattr(connection, "_RESTART_SECONDS", 0.5)
    relay = database.relay(tmp_path, "t")
    server.stop()
    try:
        error = failed(relay)
    finally:
        server.start()
    assert isinstance(error, ConnectError)
    assert "cannot be reached" in str(error) and f"127.0.0.1:{server.port}" in str(error)


def test_what_the_server_purges_is_read_from_the_log(
    server: MariaDB, database: Database, tmp_path: Path
) -> None:
    relay = database.relay(tmp_path, "t")
    source = database.source("t", relay=tmp_path)
    offset, _ = catch_up(source, source.initial_offset())
    for number in range(3):
        database.run(f"INSERT INTO t VALUES ({number}, NULL)", "FLUSH BINARY LOGS")
    end = reached(source, database, offset)
    database.purge()
    assert ids(source, offset, end) == [0, 1, 2]
    relay.close()
    # The next run, whose log begins later.
    again = tmp_path / "again"
    again.mkdir()
    database.relay(again, "t", resume_positions=[position(offset)])
    for late in (database.source("t"), database.source("t", relay=again)):
        message = rf"has removed .*, which {database.name}\.t still needs .*keep binlogs longer"
        with pytest.raises(DataLossError, match=message):
            late.latest_offset(offset)


@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "grown"])
def test_a_binlog_reset_is_an_error(
    server: MariaDB, database: Database, tmp_path: Path, grown: bool
) -> None:
    """Also where the new binlog has the old one's name, and is longer by the time of a look."""
    server.execute("RESET MASTER")
    relay = database.relay(tmp_path, "t")
    source = database.source("t", relay=tmp_path)
    offset, _ = catch_up(source, source.initial_offset())
    database.run("INSERT INTO t VALUES (1, 'a')")
    if not grown:
        database.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 'b')")
    offset, rows = catch_up(source, offset)
    server.execute("RESET MASTER")
    if grown:
        database.run("INSERT INTO t VALUES (3, REPEAT('x', 60000))")
        assert database.end().file == position(offset).file
    error = failed(relay)
    assert isinstance(error, DataLossError)
    assert ("no longer has the binlog" if grown else "it was reset") in str(error)
    assert f"{database.name}.t" in str(error)
    assert "new checkpoint" in str(error)
    others = [database.source("t")]
    if not grown:
        again = tmp_path / "again"
        again.mkdir()
        # The relay of the next run starts at the end of the new binlog.
        database.relay(again, "t", resume_positions=[position(offset)])
        others.append(database.source("t", relay=again))
    for other in others:
        for check in (other.latest_offset, other.caught_up):
            with pytest.raises(DataLossError, match="was reset"):
                check(offset)
