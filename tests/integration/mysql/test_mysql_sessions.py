"""Random sessions with XA, savepoints and restarts: the rows that are read equal the table."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database, apply, catch_up, rows_of

from streamhouse.connectors.mysql_cdc.relay.relay import Relay
from streamhouse.connectors.mysql_cdc.server.position import Position
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.demo.mariadb import MariaDB

_KEYS = 60
_SETTINGS = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET innodb_lock_wait_timeout = 0",
)


class Session:
    """One session: each `step` runs the next statement of a random transaction."""

    def __init__(self, sessions: Sessions, chance: random.Random) -> None:
        self._sessions, self._chance = sessions, chance
        self.connection = sessions.connect()
        self._statements: Iterator[str] = iter(())

    def step(self) -> None:
        statement = next(self._statements, None)
        if statement is None:
            self._statements = self._transaction()
            return
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.err.OperationalError as error:
            # A lock, also of a prepared transaction, or a deadlock.
            assert error.args[0] in (1205, 1213), error
        except pymysql.err.IntegrityError:
            pass

    def _transaction(self) -> Iterator[str]:
        kind = self._chance.random()
        if kind < 0.25:
            yield self._change()
        elif kind < 0.6:
            yield "BEGIN"
            yield from self._changes()
            yield self._chance.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"])
        else:
            yield from self._xa()

    def _xa(self) -> Iterator[str]:
        # A few names, so that they are used again.
        free = [name for name in "abcdefgh" if name not in self._sessions.used]
        if not free:
            return
        name = self._chance.choice(free)
        self._sessions.used.add(name)
        xid = f"'{name}','part',{ord(name)}"
        yield f"XA START {xid}"
        if uses := self._sessions.again(name):
            # Otherwise a prepared transaction without changes could look like one that ended.
            yield f"REPLACE INTO plain VALUES (99, {uses})"
        yield from self._changes()
        yield f"XA END {xid}"
        end = self._chance.random()
        if end < 0.25:
            yield f"XA COMMIT {xid} ONE PHASE" if end < 0.15 else f"XA ROLLBACK {xid}"
        else:
            yield f"XA PREPARE {xid}"
            if end < 0.6:
                self._sessions.prepared[name] = xid
                self._reconnect()
                return
            yield f"XA COMMIT {xid}" if end < 0.85 else f"XA ROLLBACK {xid}"
        self._sessions.used.discard(name)

    def _reconnect(self) -> None:
        self.connection.close()
        self.connection = self._sessions.connect()

    def _changes(self) -> Iterator[str]:
        chance, names = self._chance, list[str]()
        for _ in range(chance.randrange(1, 7)):
            kind = chance.random()
            if kind < 0.2:
                names.append(chance.choice(["one", "Two", "`th``ree`"]))
                yield f"SAVEPOINT {names[-1]}"
            elif kind < 0.4 and names:
                yield f"ROLLBACK TO {chance.choice(names)}"
                names = names[:1]
            elif kind < 0.55:
                yield f"REPLACE INTO plain VALUES ({chance.randrange(9)}, {chance.randrange(99)})"
            elif kind < 0.6:
                yield "DO 0"
            else:
                yield self._change()

    def _change(self) -> str:
        chance = self._chance
        key, kind = chance.randrange(_KEYS), chance.random()
        if kind < 0.5:
            rows = ", ".join(
                f"({chance.randrange(_KEYS)}, {chance.randrange(1000)})"
                for _ in range(chance.choice([1, 1, 3]))
            )
            verb = "INSERT" if chance.random() < 0.3 else "REPLACE"
            return f"{verb} INTO t VALUES {rows}"
        if kind < 0.7:
            return f"UPDATE t SET v = v + 1 WHERE id = {key}"
        if kind < 0.85:
            return f"UPDATE t SET id = {chance.randrange(_KEYS)} WHERE id = {key}"
        return f"DELETE FROM t WHERE id = {key}"


class Sessions:
    """Interleaved sessions of a database, and the XA transactions that nobody decided yet."""

    def __init__(self, database: Database, chance: random.Random) -> None:
        self.database = database
        self.used: set[str] = set()
        self.prepared: dict[str, str] = {}
        self._chance = chance
        self._uses: Counter[str] = Counter()
        self._all = [Session(self, chance) for _ in range(3)]

    def again(self, name: str) -> int:
        """How often a name was used before."""
        self._uses[name] += 1
        return self._uses[name] - 1

    def connect(self) -> pymysql.Connection[Any]:
        connection = self.database.server.connect(self.database.name)
        with connection.cursor() as cursor:
            for setting in _SETTINGS:
                cursor.execute(setting)
        return connection

    def step(self) -> None:
        if self.prepared and self._chance.random() < 0.05:
            self.decide(self._chance.choice(sorted(self.prepared)))
        with contextlib.suppress(StopIteration):
            self._chance.choice(self._all).step()

    def decide(self, name: str) -> None:
        xid = self.prepared.pop(name)
        verb = self._chance.choice(["COMMIT", "COMMIT", "ROLLBACK"])
        deadline = time.monotonic() + 30
        while True:
            try:
                self.database.run(f"XA {verb} {xid}")
                break
            except pymysql.err.OperationalError:
                # The session that prepared it is not quite gone, or it had nothing to prepare.
                if name not in self._listed():
                    break
                assert time.monotonic() < deadline
                time.sleep(0.01)
        self.used.discard(name)

    def restart(self, crash: bool) -> None:
        for session in self._all:
            session.connection.close()
        server = self.database.server
        # A crash undoes an XA ROLLBACK that no later commit has written to InnoDB's log.
        self.database.run("REPLACE INTO durable VALUES (1, RAND())")
        server.kill() if crash else server.stop()
        server.start()
        names = self._listed()
        self.prepared = {name: f"'{name}','part',{ord(name)}" for name in sorted(names)}
        self.used = set(names)
        self._all = [Session(self, self._chance) for _ in range(3)]

    def _listed(self) -> set[str]:
        return {row[3][:1].decode() for row in self.database.server.execute("XA RECOVER")}

    def finish(self) -> None:
        for session in self._all:
            session.connection.close()
        for name in self._listed():
            self.prepared[name] = f"'{name}','part',{ord(name)}"
        for name in sorted(self.prepared):
            self.decide(name)


class Reader:
    """A stream whose source is new now and then, and goes on from the offset's JSON."""

    def __init__(self, database: Database, chance: random.Random, folder: Path | None) -> None:
        self._database, self._chance, self._folder = database, chance, folder
        self._relays = 0
        self._relay: Relay | None = None
        self._relay_folder: Path | None = None
        self._source: MySqlSource | None = None
        self.state: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.offset: dict[str, Any] = {}

    def step(self, most: int | None = None) -> bool:
        """Read one batch; whether there was one."""
        source = self._opened()
        end = source.latest_offset(self.offset, most)
        rows = rows_of(source, self.offset, end, self._chance.choice([1, 2]))
        if self._chance.random() < 0.3:
            again = rows_of(self._new(), self.offset, end)
            assert sorted(map(str, again)) == sorted(map(str, rows)), "a replay gave other rows"
        apply(self.state, rows, ["id"])
        moved = end != self.offset
        self.offset = json.loads(json.dumps(end))
        return moved

    def stop(self) -> None:
        """End the process, as it were; its relay log is gone, too."""
        self._source = None
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def finish(self) -> None:
        self.offset, rows = catch_up(self._opened(), self.offset)
        apply(self.state, rows, ["id"])

    def _opened(self) -> MySqlSource:
        if self._source is None:
            if self._folder is not None:
                self._start_relay(self._folder)
            self._source = self._new()
            self.offset = self.offset or self._source.initial_offset()
        return self._source

    def _new(self) -> MySqlSource:
        options = {"scan.incremental.snapshot.chunk.size": "9"}
        return self._database.source("t", options=options, relay=self._relay_folder)

    def _start_relay(self, folder: Path) -> None:
        self._relays += 1
        self._relay_folder = folder / str(self._relays)
        self._relay_folder.mkdir()
        known = "file" in self.offset and self._chance.random() < 0.7
        resume = [Position(self.offset["file"], self.offset["pos"])] if known else []
        self._relay = self._database.relay(
            self._relay_folder, "t", resume_positions=resume, most_bytes=40_000
        )


@pytest.fixture
def database(installed: Installed, tmp_path: Path) -> Iterator[Database]:
    with MariaDB(installed(tmp_path / "own")) as server:
        made = Database(server)
        made.run(
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "CREATE TABLE durable (id INT PRIMARY KEY, v DOUBLE)",
            "CREATE TABLE plain (id INT PRIMARY KEY, v INT) ENGINE=Aria TRANSACTIONAL=0",
        )
        yield made
        made.close()


def run(database: Database, seed: int, folder: Path | None, steps: int) -> None:
    chance = random.Random(seed)
    sessions = Sessions(database, chance)
    for _ in range(chance.randrange(200)):
        sessions.step()
    reader = Reader(database, chance, folder)
    for _ in range(steps):
        kind = chance.random()
        if kind < 0.1:
            reader.step(chance.choice([None, 2, 10]))
        elif kind < 0.12:
            reader.stop()
        elif kind < 0.13:
            database.run("FLUSH BINARY LOGS")
        elif kind < 0.133:
            sessions.restart(crash=chance.random() < 0.5)
        else:
            sessions.step()
    sessions.finish()
    reader.finish()
    expected = {(row[0],): {"id": row[0], "v": row[1]} for row in database.run("SELECT * FROM t")}
    assert expected
    assert reader.state == expected
    assert "prepared" not in reader.offset


@pytest.mark.parametrize("relayed", [False, True], ids=["alone", "relayed"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_rows_read_equal_the_table(
    database: Database, tmp_path: Path, seed: int, relayed: bool
) -> None:
    folder = tmp_path / "relays"
    folder.mkdir()
    run(database, seed, folder if relayed else None, 800)


@pytest.mark.soak
@pytest.mark.parametrize("relayed", [False, True], ids=["alone", "relayed"])
def test_the_rows_read_equal_the_table_for_long(
    database: Database, tmp_path: Path, relayed: bool
) -> None:
    folder = tmp_path / "relays"
    folder.mkdir()
    run(database, int(time.time()), folder if relayed else None, 20_000)
