"""A pipeline over MySQL under random transactions, DDL and kills of every process.

A sync gets DDL that alters its tables, too.

`STREAMHOUSE_HOSTILE_SECONDS` (default: 600) and `STREAMHOUSE_HOSTILE_SEED` choose the run.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pymysql
import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database, apply
from tests.integration.mysql.schema_changes import KEPT, Altering, SchemaChanges
from tests.integration.mysql.schema_changes import check as check_altered
from tests.integration.mysql.sessions import TABLES, Sessions
from tests.integration.runtime.concurrent_steps import ConcurrentSteps
from tests.integration.runtime.conftest import Run, Shop
from tests.integration.runtime.test_sync import mysql_conf
from tests.mysql_server import Server

from streamhouse.demo.mariadb import PASSWORD, USER
from streamhouse.paimon.changelog.stream_source import PaimonSource

_WIDE = (
    "CREATE TABLE wide (a INT, b VARCHAR(20) COLLATE utf8mb4_general_ci, body LONGTEXT, "
    "d DECIMAL(8,2), at_ DATETIME(6), e ENUM('x','y','zz'), PRIMARY KEY (a, b))"
)
_IMPATIENT = ("SET lock_wait_timeout = 0", "SET innodb_lock_wait_timeout = 0")
_KEPT = "'snapshot.num-retained.min' = '1000000', 'snapshot.num-retained.max' = '1000000'"
_SCRIPT = """
CREATE TEMPORARY TABLE my_t (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({0}'t');
CREATE TEMPORARY TABLE my_wide (
  a INT, b STRING, body STRING, d DECIMAL(12, 2), at_ TIMESTAMP(6), e STRING,
  PRIMARY KEY (a, b) NOT ENFORCED
) WITH ({0}'wide');
CREATE TABLE IF NOT EXISTS t (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('bucket' = '2', 'changelog-producer' = 'input', {1});
CREATE TABLE IF NOT EXISTS wide (
  a INT, b STRING, body STRING, d DECIMAL(12, 2), at_ TIMESTAMP(6), e STRING,
  PRIMARY KEY (a, b) NOT ENFORCED
) WITH ('bucket' = '1', 'changelog-producer' = 'input', {1});
INSERT INTO t SELECT id, v FROM my_t;
INSERT INTO wide SELECT a, b, body, d, at_, e FROM my_wide;
"""
_KEYS = {"t": ["id"], "wide": ["a", "b"]}
_COLUMNS = {"t": ["id", "v"], "wide": ["a", "b", "body", "d", "at_", "e"]}
_DEFINITIONS = (
    ["CREATE OR REPLACE TABLE copied LIKE wide", "INSERT INTO copied SELECT * FROM wide",
     "ALTER TABLE copied DROP COLUMN d", "TRUNCATE copied"],
    ["CREATE TEMPORARY TABLE t (id INT)", "INSERT INTO t VALUES (1)", "DROP TEMPORARY TABLE t"],
    ["SET SESSION binlog_format = STATEMENT", "CREATE TEMPORARY TABLE wide (a INT)", "BEGIN",
     "INSERT INTO wide VALUES (1)", "DROP TEMPORARY TABLE wide", "ROLLBACK"],
    ["ALTER TABLE wide MODIFY d DECIMAL(12,2)"],
    ["ALTER TABLE wide MODIFY e ENUM('x','y','zz','w') AFTER b"],
    ["ALTER TABLE t MODIFY v INT FIRST"],
    ["ALTER TABLE t MODIFY v INT AFTER id"],
    ["CREATE INDEX by_v ON t (v)"],
    ["DROP INDEX by_v ON t"],
    ["ANALYZE TABLE wide"],
    ["OPTIMIZE TABLE t"],
    ["/* DROP TABLE t */ ALTER TABLE plain ENGINE=Aria"],
)  # fmt: skip
"""Statements that a stream passes; some fail, because of locks or of what is there."""


def script(database: Database) -> str:
    source = (
        f"'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{database.server.port}', "
        f"'username' = '{USER}', 'password' = '{PASSWORD}', 'database-name' = '{database.name}', "
        "'scan.incremental.snapshot.chunk.size' = '50', 'table-name' = "
    )
    return _SCRIPT.format(source, _KEPT)


class Writers:
    """Change both tables and their definitions, and restart the server."""

    def __init__(self, database: Database, chance: random.Random) -> None:
        self._database, self._chance = database, chance
        self._sessions = Sessions(database, chance)
        self._extra: list[str] = []
        self._count = 0
        self.restarts = 0

    def step(self) -> None:
        kind = self._chance.random()
        if kind < 0.75:
            self._sessions.step()
        elif kind < 0.97:
            self._execute(*self._transaction())
        elif kind < 0.985:
            self._define()
        elif kind < 0.995:
            self._execute("FLUSH BINARY LOGS")
        elif kind < 0.9953:
            self.restarts += 1
            self._sessions.restart(crash=self._chance.random() < 0.5)

    def begin(self) -> None:
        """Go on after `finish`."""
        self._sessions.begin()

    def finish(self) -> None:
        """Decide all that is open."""
        self._sessions.finish()

    def _execute(self, *statements: str) -> bool:
        """Whether no lock of another session or of a prepared transaction was in the way."""
        try:
            self._database.run(*_IMPATIENT, *statements)
        except (pymysql.err.OperationalError, pymysql.err.IntegrityError):
            return False
        return True

    def _transaction(self) -> list[str]:
        chance = self._chance
        changes = [self._change() for _ in range(chance.randrange(1, 6))]
        if chance.random() < 0.3:
            at = chance.randrange(len(changes))
            changes[at:at] = ["SAVEPOINT s", self._change(), "REPLACE INTO plain VALUES (1, 1)"]
            changes.append("ROLLBACK TO s")
        return ["BEGIN", *changes, chance.choice(["COMMIT", "COMMIT", "ROLLBACK"])]

    def _change(self) -> str:
        chance = self._chance
        key = f"a = {chance.randrange(8)} AND b = '{chance.choice('uvwxyz')}'"
        kind = chance.random()
        if kind < 0.5:
            size = chance.choice([0, 10, 3_000, 400_000])
            return (
                f"REPLACE INTO wide (a, b, body, d, at_, e) VALUES ({chance.randrange(8)}, "
                f"'{chance.choice('uvwxyz')}', REPEAT('ä', {size}), {chance.randrange(9999)} / 100,"
                f" NOW(6), '{chance.choice(['x', 'y', 'zz'])}')"
            )
        if kind < 0.65:
            # An accent is no other key to the server, but another value.
            new = chance.choice(["u", "v", "ü", "W"])
            return f"UPDATE IGNORE wide SET b = '{new}', a = {chance.randrange(8)} WHERE {key}"
        if kind < 0.85:
            return f"UPDATE wide SET d = d + 0.01, body = RIGHT(body, 100) WHERE {key}"
        return f"DELETE FROM wide WHERE {key}"

    def _define(self) -> None:
        chance = self._chance
        self._count += 1
        new, name = f"x{self._count}", chance.choice(["t", "wide"])
        place = chance.choice(["FIRST", "", "AFTER " + ("id" if name == "t" else "body")])
        extra = [one for one in self._extra if one.startswith(f"{name}.")]
        kind = chance.random()
        if kind < 0.35:
            kinds = ["INT DEFAULT 7", "VARCHAR(9) CHARACTER SET latin1", "DATE", "JSON"]
            added = f"ALTER TABLE {name} ADD COLUMN {new} {chance.choice(kinds)} {place}"
            if self._execute(added):
                self._extra.append(f"{name}.{new}")
        elif kind < 0.55 and extra:
            gone = chance.choice(extra)
            if self._execute(f"ALTER TABLE {name} DROP COLUMN {gone.split('.')[1]}"):
                self._extra.remove(gone)
        elif kind < 0.7 and extra:
            old = chance.choice(extra)
            if self._execute(f"ALTER TABLE {name} RENAME COLUMN {old.split('.')[1]} TO {new}"):
                self._extra.remove(old)
                self._extra.append(f"{name}.{new}")
        else:
            self._execute(*chance.choice(_DEFINITIONS))


class Busy(ConcurrentSteps):
    """The writers, until the `with` ends."""

    def __init__(self, writers: Writers) -> None:
        super().__init__(0.002)
        self._writers = writers

    def step(self) -> None:
        self._writers.step()


def kill(run: Run, chance: random.Random) -> None:
    if chance.random() < 0.5:
        run.kill()
    else:
        run.kill_driver()


def check(shop: Shop, database: Database) -> None:
    """The tables equal MySQL's, and so does what their changes add up to."""
    for name, key in _KEYS.items():
        columns = _COLUMNS[name]
        rows = database.run(f"SELECT {', '.join(columns)} FROM {name}")
        there = {tuple(row[: len(key)]): dict(zip(columns, row, strict=True)) for row in rows}
        here = {tuple(row[one] for one in key): row for row in shop.rows(name)}
        assert here == there
        assert replayed(shop, name, key) == there


def replayed(shop: Shop, name: str, key: list[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """What all changes of a table add up to; each must fit the table before it."""
    options = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
    source = PaimonSource(shop.warehouse.options, f"default.{name}", options=options)
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    offset = source.initial_offset()
    while (end := source.latest_offset(offset)) != offset:
        for partition in source.partitions(offset, end):
            for batch in source.read(partition):
                apply(state, batch.to_pylist(), key)
        offset = end
    source.close()
    return state


@pytest.mark.soak
@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_tables_equal_mysql_after_any_kill(shop: Shop, installed: Installed, metadata: str) -> None:
    seconds = float(os.environ.get("STREAMHOUSE_HOSTILE_SECONDS", "600"))
    seed = int(os.environ.get("STREAMHOUSE_HOSTILE_SEED", str(int(time.time()))))
    print(f"seed {seed}")
    chance = random.Random(seed)
    options = [f"--binlog-row-metadata={metadata}"]
    with Server(installed(shop.folder / "mysql"), server_options=options) as server:
        database = Database(server)
        database.run(*TABLES, _WIDE)
        writers = Writers(database, random.Random(seed))
        for _ in range(300):
            writers.step()
        # Another case may run at the same time.
        end, kills, mark = time.monotonic() + seconds, 0, f"hostile-{metadata}-{seed}"
        while time.monotonic() < end:
            with Busy(writers):
                for _ in range(3):
                    run = shop.start(script(database), mark=mark)
                    time.sleep(chance.uniform(4, 25))
                    assert run.process.poll() is None, run.err
                    kill(run, chance)
                    kills += 1
            writers.finish()
            writers.begin()
            shop.settle(script(database), mark=mark)
            check(shop, database)
            print(f"{kills} kills, {writers.restarts} restarts of the server", flush=True)
        writers.finish()


@pytest.mark.soak
@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_a_sync_follows_schema_changes_after_any_kill(
    shop: Shop, installed: Installed, metadata: str
) -> None:
    seconds = float(os.environ.get("STREAMHOUSE_HOSTILE_SECONDS", "600"))
    seed = int(os.environ.get("STREAMHOUSE_HOSTILE_SEED", str(int(time.time()))))
    print(f"seed {seed}")
    chance = random.Random(seed)
    options = [f"--binlog-row-metadata={metadata}"]
    with Server(installed(shop.folder / "mysql"), server_options=options) as server:
        server.execute("CREATE DATABASE altered")
        changes = SchemaChanges(server, "altered", random.Random(seed))
        command = ["sync", "mysql-database", "--warehouse", str(shop.path), "--database", "ods"]
        conf = {**mysql_conf(server, "altered"), "scan.incremental.snapshot.chunk.size": "5"}
        command += [f"--mysql-conf={key}={value}" for key, value in conf.items()]
        command += [f"--table-conf={key}={value}" for key, value in KEPT.items()]
        command += ["--excluding-tables", "_.*"]
        end, kills, checks = time.monotonic() + seconds, 0, 0
        while time.monotonic() < end:
            with Altering(changes, chance.choice([0.02, 0.2, 0.6, 1.5])):
                for _ in range(3):
                    point = _failpoint(chance)
                    run = Run(shop.folder, command, point, "altered")
                    shop.runs.append(run)
                    until = time.monotonic() + chance.uniform(4, 25)
                    while time.monotonic() < until and run.process.poll() is None:
                        time.sleep(0.2)
                    assert point or run.process.poll() is None, run.err
                    kill(run, chance)
                    kills += 1
            if chance.random() < 0.3:
                server.kill() if chance.random() < 0.5 else server.stop()
                server.start()
            ended = Run(shop.folder, [*command, "--until-caught-up"], {}, "altered").wait()
            assert ended.code == 0, ended.err
            check_altered(shop.warehouse, changes)
            checks += 1
            altered = sum("ALTER" in statement for statement in changes.statements)
            print(f"{kills} kills, {checks} checks, {altered} of ALTER TABLE", flush=True)


def _failpoint(chance: random.Random) -> dict[str, str]:
    """Perhaps a step at which the process kills itself."""
    steps = ["target-altered:0", "batch-written:5", "table-committed:3", "task-written:4"]
    return {"STREAMHOUSE_FAILPOINT": chance.choice(steps)} if chance.random() < 0.3 else {}
