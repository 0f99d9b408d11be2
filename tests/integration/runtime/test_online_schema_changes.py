"""A sync during gh-ost and pt-online-schema-change, killed in between, in each mode."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from typing import Any

import pymysql
import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.online_schema_changes import OnlineSchemaChanges
from tests.integration.mysql.schema_changes import KEPT, replayed
from tests.integration.runtime.concurrent_steps import ConcurrentSteps
from tests.integration.runtime.conftest import Run, Shop
from tests.integration.runtime.test_sync import mysql_conf
from tests.mysql_server import Server

from streamhouse.demo.mariadb import MariaDB

TABLES = "gpq"
_ERRORS = (pymysql.err.OperationalError, pymysql.err.ProgrammingError, pymysql.err.IntegrityError)


class Writes(ConcurrentSteps):
    """Writes to all tables, whose rows have keys up to 1201."""

    def __init__(self, server: MariaDB, database: str) -> None:
        super().__init__(0.004)
        self._session, self._chance = server.connect(database), random.Random(1)

    def step(self) -> None:
        chance, key = self._chance, self._chance.randrange(600)
        table, number = chance.choice(TABLES), chance.randrange(1000)
        statement = chance.choices(
            [
                f"REPLACE INTO {table} (id, name, v) VALUES ({key}, 'ä{number}', {number})",
                f"UPDATE {table} SET v = v + 1 WHERE id BETWEEN {key} AND {key + 3}",
                f"UPDATE IGNORE {table} SET id = id + 601 WHERE id = {key}",
                f"DELETE FROM {table} WHERE id = {key}",
            ],
            [5, 2, 1, 2],
        )[0]
        # Between two renames there is no table.
        with contextlib.suppress(*_ERRORS), self._session.cursor() as cursor:
            cursor.execute(statement)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["try_evolve", "evolve", "lenient", "ignore", "exception"])
def test_swapped_tables_equal_mysql(shop: Shop, installed: Installed, mode: str) -> None:
    database = f"online_{mode}"
    with Server(installed(shop.folder / "mysql")) as server:
        server.execute(f"CREATE DATABASE {database}")
        for table in TABLES:
            server.execute(
                f"CREATE TABLE {database}.{table} (id INT NOT NULL, name VARCHAR(20), "
                "v INT NOT NULL DEFAULT 3, PRIMARY KEY (id))",
                f"INSERT INTO {database}.{table} SELECT seq, 'a', seq FROM seq_1_to_500",
                database=database,
            )
        command = ["sync", "mysql-database", "--warehouse", str(shop.path), "--database", "ods"]
        command += [f"--mysql-conf={k}={v}" for k, v in mysql_conf(server, database).items()]
        command += [f"--table-conf={key}={value}" for key, value in KEPT.items()]
        command += ["--excluding-tables", "_.+_(gho|ghc|del|new|old)"]
        command += ["--schema-change-behavior", mode]
        with Writes(server, database):
            run = Run(shop.folder, command, {})
            shop.runs.append(run)
            run.until(lambda: all(shop.warehouse.exists("ods", one) for one in TABLES))
            altering = threading.Thread(target=alter, args=(server, database))
            altering.start()
            chance = random.Random(7)
            while altering.is_alive() and run.process.poll() is None:
                time.sleep(chance.uniform(2, 9))
                if run.process.poll() is None:
                    run.kill()
                    run = Run(shop.folder, command, {})
                    shop.runs.append(run)
            altering.join()
            time.sleep(1)
        if run.process.poll() is None:
            run.kill()
        ended = Run(shop.folder, [*command, "--until-caught-up"], {}).wait()
        if mode == "exception":
            assert ended.code != 0 and "--schema-change-behavior is exception" in ended.err
            return
        assert ended.code == 0, ended.err
        for table in TABLES:
            check(shop, server, f"{database}.{table}", f"ods.{table}", mode)


def alter(server: MariaDB, database: str) -> None:
    """Alter all tables, one after the other."""
    changes = OnlineSchemaChanges(server, database)
    changes.gh_ost("g", "add column extra int not null default 5, modify name varchar(40)")
    time.sleep(4)
    changes.pt_osc("p", "ADD COLUMN extra VARCHAR(9) DEFAULT 'e', MODIFY v BIGINT NOT NULL")
    time.sleep(4)
    changes.gh_ost("q", "add index (name), add column a datetime(3) null first", two_step=True)
    time.sleep(4)
    changes.pt_osc("g", "DROP COLUMN extra, ADD COLUMN late INT DEFAULT 9")


def check(shop: Shop, server: MariaDB, mysql: str, paimon: str, mode: str) -> None:
    """The columns that both have are equal; the changes add up to the rows."""
    opened = shop.warehouse.table(paimon)
    mine = [column.name for column in opened.columns]
    theirs = [row[0] for row in server.execute(f"SHOW COLUMNS FROM {mysql}")]
    if mode in ("try_evolve", "evolve"):
        assert mine == theirs
    elif mode == "ignore":
        assert mine == ["id", "name", "v"]
    both = [name for name in mine if name in theirs]
    rows = [row for batch in opened.read() for row in batch.to_pylist()]
    there: Counter[Any] = Counter(server.execute(f"SELECT {', '.join(both)} FROM {mysql}"))
    assert Counter(tuple(row[name] for name in both) for row in rows) == there, mysql
    assert len(replayed(shop.warehouse, paimon)) == len(rows)
