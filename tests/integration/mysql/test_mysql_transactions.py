"""XA transactions, savepoints and rollbacks: only what is committed is delivered."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from tests.integration.mysql.history import Database, catch_up, rows_of
from tests.mysql_server import IS_MYSQL
from tests.waiting import DEADLINE_S, looks

from streamhouse.connectors.mysql_cdc.binlog import binlog_inspector, transaction_buffer
from streamhouse.connectors.mysql_cdc.binlog.format.events import xid_text
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.errors import DataLossError
from streamhouse.source import Offset

CREATE = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"
_XIDS = itertools.count(1)


def xid() -> str:
    return f"'x{next(_XIDS)}','b',7"


def prepare(database: Database, name: str, *statements: str) -> None:
    """Prepare an XA transaction, and end the session that did."""
    database.run(f"XA START {name}", *statements, f"XA END {name}", f"XA PREPARE {name}")


XAER_NOTA = 1397


def finish(database: Database, statement: str) -> None:
    """Commit or roll back a prepared XA transaction, once the server has ended its session."""
    for _ in looks():
        try:
            database.run(statement)
            return
        except pymysql.err.OperationalError as error:
            if error.args[0] != XAER_NOTA:
                raise


@pytest.fixture
def own(own_database: Database) -> Database:
    own_database.run(CREATE)
    return own_database


@pytest.fixture(params=[False, True], ids=["alone", "relayed"])
def source(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path
) -> Callable[[], MySqlSource]:
    """Makes sources over the table, which read the server or a relay log."""
    database.run(CREATE, "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=Aria TRANSACTIONAL=0")
    if request.param:
        database.relay(tmp_path, "t")
    return lambda: database.source("t", relay=tmp_path if request.param else None)


def ids(source: MySqlSource, offset: Offset) -> tuple[Offset, list[int]]:
    offset, rows = catch_up(source, offset)
    return offset, [row["id"] for row in rows]


def test_an_xa_transaction_is_delivered_at_its_commit(
    database: Database, source: Callable[[], MySqlSource]
) -> None:
    first = source()
    offset, _ = ids(first, first.initial_offset())
    kept, dropped = xid(), xid()
    prepare(database, kept, "INSERT INTO t VALUES (1, 1)", "INSERT INTO t VALUES (2, 1)")
    prepare(database, dropped, "INSERT INTO t VALUES (3, 1)")
    database.run("INSERT INTO t VALUES (4, 1)")
    offset, found = ids(first, offset)
    assert found == [4]
    assert len(offset["prepared"]) == 2
    # Another process, which knows just the offset.
    finish(database, f"XA ROLLBACK {dropped}")
    finish(database, f"XA COMMIT {kept}")
    database.run("INSERT INTO t VALUES (5, 1)")
    second = source()
    after, found = ids(second, offset)
    assert found == [1, 2, 5]
    assert "prepared" not in after
    # Without the positions in the offset, the binlog is read back.
    del offset["prepared"]
    assert ids(database.source("t"), offset)[1] == [1, 2, 5]


def test_xa_one_phase_and_an_identifier_that_is_used_again(
    database: Database, source: Callable[[], MySqlSource]
) -> None:
    first, name = source(), xid()
    offset, _ = ids(first, first.initial_offset())
    database.run(
        f"XA START {name}", "INSERT INTO t VALUES (1, 1)", f"XA END {name}",
        f"XA COMMIT {name} ONE PHASE",
    )  # fmt: skip
    prepare(database, name, "INSERT INTO t VALUES (2, 1)")
    offset, found = ids(first, offset)
    assert found == [1]
    finish(database, f"XA ROLLBACK {name}")
    prepare(database, name, "INSERT INTO t VALUES (3, 1)")
    finish(database, f"XA COMMIT {name}")
    prepare(database, name, "INSERT INTO t VALUES (4, 1)")
    offset, found = ids(source(), offset)
    assert found == [3]
    finish(database, f"XA COMMIT {name}")
    assert ids(source(), offset)[1] == [4]


def test_what_was_prepared_before_the_snapshot_arrives(own: Database) -> None:
    committed, lost, name = xid(), xid(), xid()
    own.run("INSERT INTO t VALUES (0, 0)")
    prepare(own, committed, "INSERT INTO t VALUES (1, 1)")
    prepare(own, lost, "INSERT INTO t VALUES (2, 1)")
    own.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (3, 1)")
    prepare(own, name, "INSERT INTO t VALUES (4, 1)")
    source = own.source("t")
    start = source.initial_offset()
    end = source.latest_offset(start)
    assert len(end["prepared"]) == 3
    # A transaction that commits between the offset and the SELECT is not as of the offset.
    own.run(f"XA COMMIT {name}")
    assert [row["id"] for row in rows_of(source, start, end)] == [0, 3]
    offset, found = ids(source, end)
    assert found == [4]
    own.server.stop()
    own.server.start()
    own.run(f"XA COMMIT {committed}", f"XA ROLLBACK {lost}")
    assert ids(own.source("t"), offset)[1] == [1]


@pytest.mark.parametrize("mode", ["initial", "latest-offset"])
def test_a_stream_does_not_begin_if_a_prepared_binlog_is_gone(
    own: Database, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "streamhouse.connectors.mysql_cdc.binlog.binlog_inspector._UNDECIDED_SECONDS"
    monkeypatch.setattr(module, 0.3)
    name = xid()
    prepare(own, name, "INSERT INTO t VALUES (1, 1)")
    own.run("FLUSH BINARY LOGS")
    own.purge()
    source = own.source("t", options={"scan.startup.mode": mode})
    with pytest.raises(DataLossError, match=r"XA transaction X'78\d+',X'62',7 is prepared.*end it"):
        source.latest_offset(source.initial_offset())
    own.run(f"XA COMMIT {name}")
    catch_up(source, source.initial_offset())


def test_a_stream_begins_while_other_transactions_without_changes_are_prepared(
    own: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.run("INSERT INTO t VALUES (1, 1)")
    prepared: list[tuple[str, pymysql.Connection[Any]]] = []
    seconds = itertools.count(0, 20)

    def prepare_another(_: float = 0) -> None:
        name, connection = xid(), own.server.connect()
        with connection.cursor() as cursor:
            for statement in (f"XA START {name}", f"XA END {name}", f"XA PREPARE {name}"):
                cursor.execute(statement)
        prepared.append((name, connection))
        for former, session in prepared[:-1]:
            with session.cursor() as cursor:
                cursor.execute(f"XA COMMIT {former}")
            session.close()
        del prepared[:-1]

    prepare_another()
    clock = SimpleNamespace(monotonic=lambda: next(seconds), sleep=prepare_another)
    monkeypatch.setattr(binlog_inspector, "time", clock)
    source = own.source("t")
    assert ids(source, source.initial_offset())[1] == [1]
    prepared[0][1].close()


def test_a_snapshot_waits_for_no_later_commits(
    own: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy server always lists some transaction whose XA COMMIT is in the binlog already."""
    numbers, committed = itertools.count(1), list[str]()

    def commit() -> set[str]:
        name, number = xid(), next(numbers)
        prepare(own, name, f"INSERT INTO t VALUES ({number}, 1)")
        finish(own, f"XA COMMIT {name}")
        committed.append(xid_text(7, name[1 : name.index("'", 1)].encode(), b"b"))
        return set(committed[-2:-1])

    commit()
    monkeypatch.setattr(binlog_inspector, "prepared_xids", lambda *_: commit())
    monkeypatch.setattr(binlog_inspector, "_VISIBLE_SECONDS", DEADLINE_S)
    source = own.source("t")
    start = source.initial_offset()
    end = source.latest_offset(start)
    monkeypatch.undo()
    found = [row["id"] for row in rows_of(source, start, end)] + ids(source, end)[1]
    assert found == [row[0] for row in own.run("SELECT id FROM t ORDER BY id")]


def test_a_commit_whose_changes_were_purged_is_data_loss(own: Database) -> None:
    name = xid()
    prepare(own, name, "INSERT INTO t VALUES (1, 1)")
    source = own.source("t")
    offset, _ = ids(source, source.initial_offset())
    own.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 1)")
    offset, _ = ids(source, offset)
    source.close()
    own.purge()
    own.run(f"XA COMMIT {name}")
    with pytest.raises(DataLossError, match="no longer has the binlog.*new checkpoint"):
        ids(own.source("t"), offset)


def test_changes_that_were_rolled_back_to_a_savepoint_are_left_out(
    database: Database, source: Callable[[], MySqlSource]
) -> None:
    first = source()
    offset, _ = ids(first, first.initial_offset())
    database.run(
        "BEGIN", "INSERT INTO t VALUES (1, 1)", "SAVEPOINT `a ``b`",
        "INSERT INTO t VALUES (2, 1)", "INSERT INTO plain VALUES (1)", "SAVEPOINT inner_one",
        "INSERT INTO t VALUES (3, 1)", "ROLLBACK TO INNER_ONE", "INSERT INTO t VALUES (4, 1)",
        "ROLLBACK TO SAVEPOINT `A ``B`", "INSERT INTO t VALUES (5, 1)",
        "SAVEPOINT inner_one", "INSERT INTO t VALUES (6, 1)", "SAVEPOINT inner_one",
        "INSERT INTO t VALUES (7, 1)", "INSERT INTO plain VALUES (2)", "ROLLBACK TO inner_one",
        "COMMIT",
    )  # fmt: skip
    offset, found = ids(first, offset)
    assert found == [1, 5, 6]
    name = xid()
    prepare(
        database, name, "INSERT INTO t VALUES (8, 1)", "SAVEPOINT a", "INSERT INTO t VALUES (9, 1)",
        "INSERT INTO plain VALUES (3)", "ROLLBACK TO a", "INSERT INTO t VALUES (10, 1)",
    )  # fmt: skip
    finish(database, f"XA COMMIT {name}")
    assert ids(source(), offset)[1] == [8, 10]


def test_a_transaction_that_is_logged_with_its_rollback_is_left_out(
    database: Database, source: Callable[[], MySqlSource]
) -> None:
    first, name = source(), xid()
    offset, _ = ids(first, first.initial_offset())
    database.run(
        "CREATE TEMPORARY TABLE x (i INT)", "BEGIN", "INSERT INTO t VALUES (1, 1)",
        "DROP TEMPORARY TABLE x", "SAVEPOINT a", "INSERT INTO t VALUES (2, 1)", "ROLLBACK",
    )  # fmt: skip
    database.run(
        f"XA START {name}", "INSERT INTO t VALUES (3, 1)", "INSERT INTO plain VALUES (5)",
        f"XA END {name}", f"XA ROLLBACK {name}", "INSERT INTO t VALUES (4, 1)",
    )  # fmt: skip
    assert ids(first, offset)[1] == [4]


def test_a_large_transaction_is_kept_on_the_disk(
    database: Database, source: Callable[[], MySqlSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_buffer, "MOST_BYTES", 100_000)
    first, name = source(), xid()
    offset, _ = ids(first, first.initial_offset())
    connection = database.server.connect(database.name)
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for number in range(400):
            if number == 300:
                cursor.execute("SAVEPOINT a")
            if number == 350:
                cursor.execute("INSERT INTO plain VALUES (9)")
            rows = ", ".join(f"({100 * number + i}, 0)" for i in range(100))
            cursor.execute(f"INSERT INTO t VALUES {rows}")
        cursor.execute("ROLLBACK TO a")
        cursor.execute("INSERT INTO t VALUES (50000, 0)")
        cursor.execute("COMMIT")
    connection.close()
    offset, found = ids(first, offset)
    assert found == [*range(30_000), 50_000]
    many = ", ".join(f"({number}, 0)" for number in range(60_000, 90_000))
    prepare(database, name, f"INSERT INTO t VALUES {many}")
    finish(database, f"XA COMMIT {name}")
    assert ids(first, offset)[1] == [*range(60_000, 90_000)]


def test_a_batch_does_not_end_at_a_savepoint(own: Database) -> None:
    own.run("CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=Aria TRANSACTIONAL=0")
    source = own.source("t")
    offset, _ = ids(source, source.initial_offset())
    own.run(
        "BEGIN", "INSERT INTO t VALUES (1, 1)", "SAVEPOINT a", "INSERT INTO plain VALUES (1)",
        "INSERT INTO t VALUES (2, 1)", "ROLLBACK TO a", "INSERT INTO t VALUES (3, 1)", "COMMIT",
    )  # fmt: skip
    own.run("INSERT INTO t VALUES (4, 1)")
    found = []
    while (end := source.latest_offset(offset, 1)) != offset:
        found += [row["id"] for row in rows_of(source, offset, end)]
        offset = end
    assert found == [1, 3, 4]


def test_a_start_inside_a_transaction_is_an_error(own: Database) -> None:
    own.run("BEGIN", "INSERT INTO t VALUES (1, 1)", "INSERT INTO t VALUES (2, 1)", "COMMIT")
    events = own.run("SHOW BINLOG EVENTS")
    places = [(row[2], row[1]) for row in events if row[2].startswith(("Table_map", "Write_rows"))]
    for _, pos in places:
        options = {
            "scan.startup.mode": "specific-offset",
            "scan.startup.specific-offset.file": "binlog.000001",
            "scan.startup.specific-offset.pos": str(pos),
        }
        source = own.source("t", options=options)
        with pytest.raises(DataLossError, match="is inside a transaction"):
            ids(source, source.initial_offset())
        source.close()
    assert len(places) == 4


@pytest.mark.skipif(IS_MYSQL, reason="MySQL forgets transactions without changes in a crash")
def test_an_unlogged_prepare_without_changes_is_harmless(own: Database) -> None:
    """After a crash, the server logs an XA COMMIT without the PREPARE, which it did not log."""
    name = xid()
    own.run("INSERT INTO t VALUES (1, 1)")
    prepare(own, name, "INSERT INTO t VALUES (2, 1)")
    own.run(f"XA COMMIT {name}")
    source = own.source("t")
    offset, _ = ids(source, source.initial_offset())
    with closing(own.server.connect(own.name)) as connection, connection.cursor() as cursor:
        cursor.execute(f"XA START {name}")
        with pytest.raises(pymysql.err.IntegrityError):
            cursor.execute("INSERT INTO t VALUES (3, 1), (1, 1)")
        cursor.execute(f"XA END {name}")
        cursor.execute(f"XA PREPARE {name}")
        own.server.kill()
    own.server.start()
    own.run(f"XA COMMIT {name}", "INSERT INTO t VALUES (4, 1)")
    assert ids(own.source("t"), offset)[1] == [4]
    later = {"scan.startup.mode": "earliest-offset"}
    assert ids(own.source("t", options=later), {"start": "earliest-offset"})[1] == [1, 2, 4]


@pytest.mark.skipif(IS_MYSQL, reason="a rollback of MySQL survives a crash")
def test_a_rollback_that_the_server_lost_is_data_loss(own: Database) -> None:
    source = own.source("t")
    offset, _ = ids(source, source.initial_offset())
    for _ in range(10):
        # InnoDB writes a rollback with the next commit, or by chance shortly after it.
        name = xid()
        prepare(own, name, "INSERT INTO t VALUES (1, 1)")
        finish(own, f"XA ROLLBACK {name}")
        own.server.kill()
        own.server.start()
        if own.run("XA RECOVER"):
            break
    else:
        pytest.skip("the server wrote each of ten rollbacks before it was killed")
    own.run(f"XA COMMIT {name}")
    with pytest.raises(DataLossError, match="twice, with XA COMMIT and XA ROLLBACK.*in a crash"):
        ids(own.source("t"), offset)


def _undone(way: str, *statements: str) -> list[str]:
    """A transaction that is rolled back."""
    if way == "rollback":
        return ["BEGIN", *statements, "ROLLBACK"]
    if way == "savepoint":
        return ["BEGIN", "SAVEPOINT a", *statements, "ROLLBACK TO a", "COMMIT"]
    name = xid()
    end = [f"XA END {name}", f"XA PREPARE {name}", f"XA ROLLBACK {name}"]
    return [f"XA START {name}", *statements, *end]


@pytest.mark.parametrize("way", ["rollback", "savepoint", "xa"])
def test_temporary_tables_outlive_a_rollback(
    database: Database, source: Callable[[], MySqlSource], way: str
) -> None:
    if IS_MYSQL and way == "xa":
        pytest.skip("MySQL has no temporary tables in XA transactions")
    first = source()
    offset, _ = ids(first, first.initial_offset())
    database.run(
        "SET SESSION binlog_format = STATEMENT",
        *_undone(way, "CREATE TEMPORARY TABLE t (id INT)", "INSERT INTO t VALUES (1)"),
        "INSERT INTO t VALUES (2)", "DROP TEMPORARY TABLE t",
        "SET SESSION binlog_format = ROW", "INSERT INTO t VALUES (3, 1)",
    )  # fmt: skip
    offset, found = ids(first, offset)
    assert found == [3]
    database.run(
        "SET SESSION binlog_format = STATEMENT", "CREATE TEMPORARY TABLE t (id INT)",
        *_undone(way, "INSERT INTO t VALUES (4)", "DROP TEMPORARY TABLE t"),
        "INSERT INTO t VALUES (5, 1)",
    )  # fmt: skip
    with pytest.raises(DataLossError, match=r"'INSERT INTO t VALUES.* and changes it"):
        ids(first, offset)
