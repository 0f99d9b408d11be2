"""Snapshots of tables without a key: exact as multisets, whatever is written meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.integration.mysql.history import Database, catch_up, rows_of
from tests.waiting import DEADLINE_S, until

from streamhouse.connectors.mysql_cdc.snapshot import keyless_reader
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.demo.mariadb import PASSWORD
from streamhouse.errors import ConnectError, DataLossError, SchemaChangeError, TableError
from streamhouse.mysql.connection import run
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server
from streamhouse.mysql.table_lock import TableLock
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column

_TABLE = (
    "CREATE TABLE t (a INT, b VARCHAR(9), c DOUBLE, d DECIMAL(9,2), e DATETIME(3), f FLOAT, "
    "g TIMESTAMP(6) NULL, h BLOB) ENGINE = {engine}"
)
_VALUES = (
    "1, 'x', 0.0, 1.5, '2024-02-29 01:02:03.456', 0.1, '2024-02-29 01:02:03.456789', 'z'",
    "1, 'x', -0.0, 1.5, '2024-02-29 01:02:03.456', 0.1, '2024-02-29 01:02:03.456789', 'z'",
    "1, 'X', 0.1, -1.5, '1969-12-31 23:59:59.999', 3.4e38, '1970-01-01 00:00:01', 0x00ff",
    "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    "2, '', 1e300, 0, '9999-12-31 00:00:00', -0.0, NULL, ''",
)
_WRITERS = 6


class _Writers:
    """Threads with overlapping transactions, some of which are rolled back or are XA's."""

    def __init__(self, database: Database, seed: int, count: int = _WRITERS) -> None:
        self._database, self._stop = database, threading.Event()
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed} {n}"), n))
            for n in range(count)
        ]

    def __enter__(self) -> _Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        assert not self.errors

    def _run(self, dice: random.Random, number: int) -> None:
        try:
            for turn in range(1_000_000):
                if self._stop.is_set():
                    return
                self._transaction(dice, f"'w{number}x{turn}'")
        except BaseException as error:
            self.errors.append(error)
            raise

    def _transaction(self, dice: random.Random, xid: str) -> None:
        is_xa = dice.random() < 0.3
        statements = [f"XA START {xid}" if is_xa else "BEGIN"]
        for _ in range(dice.randint(1, 4)):
            statements.append(dice.choice((
                f"INSERT INTO t VALUES ({dice.choice(_VALUES)}), ({dice.choice(_VALUES)})",
                f"DELETE FROM t WHERE a <=> {dice.choice((1, 2, 'NULL'))} "
                f"LIMIT {dice.randint(1, 3)}",
                f"UPDATE t SET a = {dice.randint(1, 3)}, c = -c WHERE a = {dice.randint(1, 3)} "
                f"LIMIT {dice.randint(1, 3)}",
            )))  # fmt: skip
            statements.append(f"DO SLEEP({dice.choice((0, 0.003, 0.02))})")
        with self._database.server.connect(self._database.name) as connection:
            if not _all_run(connection, statements):
                _all_run(connection, [f"XA END {xid}", f"XA ROLLBACK {xid}"] if is_xa else [])
                return
            if not is_xa:
                _all_run(connection, [dice.choice(("COMMIT", "COMMIT", "ROLLBACK"))])
                return
            if not _all_run(connection, [f"XA END {xid}", f"XA PREPARE {xid}"]):
                _all_run(connection, [f"XA ROLLBACK {xid}"])
                return
            if dice.random() < 0.5 and _all_run(connection, [f"XA COMMIT {xid}"]):
                return
            session = _ids(connection, "SELECT CONNECTION_ID()").pop()
        # A session that has ended holds no lock of metadata for its prepared transaction.
        time.sleep(dice.random() / 50)
        with self._database.server.connect(self._database.name) as connection:
            decision = dice.choice(("COMMIT", "COMMIT", "ROLLBACK"))
            until(lambda: session not in _ids(connection, "SHOW PROCESSLIST"))
            # One without changes has ended with the session.
            until(
                lambda: (
                    _all_run(connection, [f"XA {decision} {xid}"])
                    or xid.strip("'") not in _prepared(connection)
                )
            )


def _all_run(connection: pymysql.Connection[Any], statements: Sequence[str]) -> bool:
    """Whether all succeeded; False for a deadlock or a timeout."""
    try:
        for statement in statements:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        return True
    except pymysql.err.OperationalError:
        if "XA" not in statements[0]:
            connection.rollback()
        return False


def _prepared(connection: pymysql.Connection[Any]) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("XA RECOVER")
        return {row[3] for row in cursor.fetchall()}


def _ids(connection: pymysql.Connection[Any], statement: str) -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return {row[0] for row in cursor.fetchall()}


def _multiset(rows: Sequence[dict[str, Any]]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(repr(value) for name, value in row.items() if name != ROW_KIND) for row in rows
    )


def _apply(state: Counter[tuple[str, ...]], rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        (one,) = _multiset([row])
        if row[ROW_KIND] in ("-U", "-D"):
            assert state[one] > 0, f"{row} is not there"
            state[one] -= 1
        else:
            state[one] += 1


@pytest.mark.parametrize("engine", ["InnoDB", "MyISAM"])
def test_the_rows_under_writes_that_never_stop(
    database: Database, tmp_path: Path, engine: str
) -> None:
    database.run(
        _TABLE.format(engine=engine), f"INSERT INTO t VALUES {', '.join(f'({v})' for v in _VALUES)}"
    )
    database.run(*["INSERT INTO t SELECT * FROM t"] * 6)
    relay = database.relay(tmp_path, "t")
    source = database.source("t", relay=tmp_path)
    writers = _Writers(database, 5, _WRITERS if engine == "InnoDB" else 0)
    states = []
    with writers:
        for turn in range(2):
            start = source.initial_offset()
            end = source.latest_offset(start)
            time.sleep(0.3 * turn)
            found = _multiset(rows_of(source, start, end, 3))
            # A micro-batch that runs again has the same rows, also without the relay log.
            assert _multiset(rows_of(database.source("t"), start, end)) == found
            if engine == "MyISAM":
                database.run(f"INSERT INTO t VALUES ({_VALUES[turn]})", "DELETE FROM t LIMIT 1")
            states.append((end, found))
    assert relay.error is None
    expected = _multiset(_current(database))
    for end, found in states:
        _apply(found, catch_up(source, end)[1])
        assert +found == expected


def _current(database: Database) -> list[dict[str, Any]]:
    """The rows by the exact reader of a table that nobody writes to, with a key of its own."""
    database.run(
        "CREATE TABLE keyed LIKE t",
        "ALTER TABLE keyed ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY",
        "INSERT INTO keyed SELECT *, NULL FROM t",
    )
    rows = catch_up(source := database.source("keyed"), source.initial_offset())[1]
    return [{name: value for name, value in row.items() if name != "id"} for row in rows]


def test_many_rows_and_many_changes_after_the_position(database: Database) -> None:
    database.run(
        "CREATE TABLE t (a INT, b VARCHAR(40))",
        "INSERT INTO t SELECT seq % 7, REPEAT('ä', seq % 40) FROM seq_1_to_30000",
    )
    source = database.source("t")
    start = source.initial_offset()
    end = source.latest_offset(start)
    before = Counter({(n % 7, "ä" * (n % 40)): 0 for n in range(30_000)})
    before.update((n % 7, "ä" * (n % 40)) for n in range(1, 30_001))
    database.run(
        "INSERT INTO t SELECT seq % 9, REPEAT('ä', seq % 41) FROM seq_1_to_20000",
        "UPDATE t SET a = a + 1 WHERE b <> '' LIMIT 15000",
        "DELETE FROM t WHERE a = 3 LIMIT 4000",
    )
    rows = rows_of(source, start, end)
    assert Counter((row["a"], row["b"]) for row in rows) == before
    assert {row[ROW_KIND] for row in rows} == {"+I"}


def test_declared_columns_are_a_multiset_of_their_own(database: Database) -> None:
    database.run("CREATE TABLE t (a INT, b INT)", "INSERT INTO t VALUES (1, 1), (1, 2), (2, 3)")
    source = database.source("t", [Column("a", "BIGINT")])
    start = source.initial_offset()
    end = source.latest_offset(start)
    database.run("DELETE FROM t WHERE b = 2", "UPDATE t SET b = 9", "INSERT INTO t VALUES (1, 7)")
    assert sorted(row["a"] for row in rows_of(source, start, end)) == [1, 1, 2]
    _, changes = catch_up(source, end)
    assert len(changes) == 6
    whole = [
        row for part in source.whole_table() for b in source.read(part) for row in b.to_pylist()
    ]
    assert sorted(row["a"] for row in whole) == [1, 1, 2]


def test_shards_without_a_key(database: Database) -> None:
    database.run(
        "CREATE TABLE s1 (a INT, b INT)", "CREATE TABLE s2 (a INT, b INT)",
        "INSERT INTO s1 VALUES (1, 1), (1, 1)", "INSERT INTO s2 VALUES (1, 1), (2, NULL)",
    )  # fmt: skip
    source = MySqlSource(database.options("s[12]"), None)
    try:
        start = source.initial_offset()
        end = source.latest_offset(start)
        database.run("DELETE FROM s2 WHERE a = 1", "INSERT INTO s1 VALUES (3, 3)")
        rows = rows_of(source, start, end, 2)
        found = Counter((row["a"], row["b"]) for row in rows)
        assert found == {(1, 1): 3, (2, None): 1}
        changes = [(row["a"], row[ROW_KIND]) for row in catch_up(source, end)[1]]
        assert sorted(changes) == [(1, "-D"), (3, "+I")]
    finally:
        source.close()


@contextmanager
def _open_transaction(database: Database) -> Iterator[None]:
    with database.server.connect(database.name) as connection:
        _all_run(connection, ["BEGIN", "INSERT INTO t VALUES (1)"])
        yield


def test_a_lock_that_is_not_granted(database: Database, capfd: pytest.CaptureFixture[str]) -> None:
    database.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (7)")
    source = database.source("t", options={"debezium.snapshot.lock.timeout.ms": "3500"})
    start = source.initial_offset()
    with _open_transaction(database):
        end = source.latest_offset(start)
        with pytest.raises(ConnectError, match=r"could not within \d s: a transaction .* open"):
            rows_of(source, start, end)
    assert "waits for a lock" in capfd.readouterr().err
    assert [row["a"] for row in rows_of(source, start, end)] == [7]


def test_a_user_who_may_not_lock(database: Database) -> None:
    database.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (7)")
    database.server.execute(
        f"CREATE OR REPLACE USER reader@'%' IDENTIFIED BY '{PASSWORD}'",
        "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO reader@'%'",
    )
    source = database.source("t", options={"username": "reader"})
    with pytest.raises(TableError, match="run GRANT LOCK TABLES ON .*INVISIBLE PRIMARY KEY") as why:
        source.latest_offset(source.initial_offset())
    database.server.execute(str(why.value).split("run ")[1].split(", or")[0])
    assert [row["a"] for row in catch_up(source, source.initial_offset())[1]] == [7]


def test_what_the_binlog_does_not_have(database: Database) -> None:
    database.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (7)")
    source = database.source("t")
    start = source.initial_offset()
    end = source.latest_offset(start)
    database.run("INSERT INTO t VALUES (8)", "SET sql_log_bin = 0", "DELETE FROM t WHERE a = 8")
    with pytest.raises(DataLossError, match="lacks 1 of the rows that its binlog has"):
        rows_of(source, start, end)


def test_a_statement_between_the_plan_and_the_rows(database: Database) -> None:
    database.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (7)")
    source = database.source("t")
    start = source.initial_offset()
    end = source.latest_offset(start)
    database.run("ALTER TABLE t ADD COLUMN b INT DEFAULT 4 FIRST", "UPDATE t SET a = 8")
    assert [row["a"] for row in rows_of(source, start, end)] == [7]
    database.run("TRUNCATE t")
    with pytest.raises(SchemaChangeError):
        rows_of(source, start, end)


def test_a_statement_between_the_lock_and_the_rows(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (7)")
    source = database.source("t")
    start = source.initial_offset()
    end = source.latest_offset(start)
    release = TableLock.release

    def released(lock: TableLock) -> None:
        release(lock)
        database.run("TRUNCATE t")

    monkeypatch.setattr(TableLock, "release", released)
    with pytest.raises(SchemaChangeError):
        rows_of(source, start, end)


def test_a_lock_that_is_lost_begins_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (7), (8)")
    source = database.source("t")
    start = source.initial_offset()
    end = source.latest_offset(start)
    position, killed = TableLock.position, 0

    def lost(lock: TableLock, server: Server) -> BinlogPosition:
        nonlocal killed
        killed += 1
        if killed == 1:
            # What is deleted now is before the end of the binlog, but not in the snapshot.
            (number,) = run(lock.connection, "SELECT CONNECTION_ID()")[0]
            database.run(f"KILL {number}", "DELETE FROM t WHERE a = 7")
        return position(lock, server)

    monkeypatch.setattr(TableLock, "position", lost)
    assert sorted(row["a"] for row in rows_of(source, start, end)) == [7, 8]
    assert killed == 2
    assert [row["a"] for row in catch_up(source, end)[1]] == [7]


def test_a_lost_connection_begins_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE t (a INT, b TEXT)")
    database.run("INSERT INTO t SELECT seq, REPEAT('x', 100) FROM seq_1_to_100000")
    source = database.source("t")
    start = source.initial_offset()
    end = source.latest_offset(start)
    write, calls = keyless_reader._write, 0

    def killing(writer: Any, batch: Any) -> None:
        nonlocal calls
        calls += 1
        write(writer, batch)
        if calls == 2:
            raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server")

    monkeypatch.setattr(keyless_reader, "_write", killing)
    assert sorted(row["a"] for row in rows_of(source, start, end)) == list(range(1, 100_001))
    assert calls > 4
