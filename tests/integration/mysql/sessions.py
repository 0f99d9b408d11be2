"""Random sessions with XA, savepoints, rollbacks and restarts of the server."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pymysql
from tests.integration.mysql.history import Database
from tests.waiting import looks

TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE durable (id INT PRIMARY KEY, v DOUBLE)",
    "CREATE TABLE plain (id INT PRIMARY KEY, v INT) ENGINE=Aria TRANSACTIONAL=0",
)
"""What the sessions write: `t` is the table to follow."""
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
        uses = self._sessions.again(name)
        if uses or self._sessions.logs_all:
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
                name = chance.choice(["one", "Two", "`th``ree`"])
                yield f"SAVEPOINT {name}"
                names = [*(other for other in names if other != name), name]
            elif kind < 0.4 and names:
                name = chance.choice(names)
                yield f"ROLLBACK TO {name}"
                names = names[: names.index(name) + 1]
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
            return f"{verb} INTO t (id, v) VALUES {rows}"
        if kind < 0.7:
            return f"UPDATE t SET v = v + 1 WHERE id = {key}"
        if kind < 0.85:
            return f"UPDATE t SET id = {chance.randrange(_KEYS)} WHERE id = {key}"
        return f"DELETE FROM t WHERE id = {key}"


class Sessions:
    """Interleaved sessions of a database, and the XA transactions that nobody decided yet.

    `logs_all`: XA transactions without changes are in the binlog, too, once they are prepared.
    """

    def __init__(self, database: Database, chance: random.Random) -> None:
        self.database = database
        self.used: set[str] = set()
        self.prepared: dict[str, str] = {}
        self.logs_all = False
        self._chance = chance
        self._uses: Counter[str] = Counter()
        self._all: list[Session] = []
        self.begin()

    def begin(self) -> None:
        """Open sessions, also again after `finish`."""
        self._all = [Session(self, self._chance) for _ in range(3)]

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
        for _ in looks():
            try:
                self.database.run(f"XA {verb} {xid}")
                break
            except pymysql.err.OperationalError:
                # The session that prepared it is not quite gone, or it had nothing to prepare.
                if name not in self._listed():
                    break
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
        self.begin()

    def _listed(self) -> set[str]:
        rows = self.database.server.execute("XA RECOVER")
        # MySQL sends text, MariaDB bytes.
        return {row[3][:1] if isinstance(row[3], str) else row[3][:1].decode() for row in rows}

    def finish(self) -> None:
        for session in self._all:
            session.connection.close()
        for name in self._listed():
            self.prepared[name] = f"'{name}','part',{ord(name)}"
        for name in sorted(self.prepared):
            self.decide(name)
