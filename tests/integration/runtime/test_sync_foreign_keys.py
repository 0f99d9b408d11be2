"""A sync follows rows that foreign keys change, which MariaDB has no row events for."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.integration.mysql.schema_changes import KEPT, mysql_rows, paimon_rows, replayed
from tests.integration.runtime.concurrent_steps import ConcurrentSteps
from tests.integration.runtime.conftest import failing_at
from tests.integration.runtime.test_sync import Sync, fresh, mysql_conf
from tests.mysql_server import IS_MYSQL

from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import SchemaChangeError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.sync.options import sync_database_options
from streamhouse.runtime.sync.run import SyncRun, run_sync

pytestmark = pytest.mark.skipif(IS_MYSQL, reason="MySQL is refused, or logs these rows")

TABLES = [
    "region (id INT PRIMARY KEY, code VARCHAR(4) UNIQUE, v INT)",
    "city (id INT PRIMARY KEY, region INT, v INT, FOREIGN KEY (region) REFERENCES region (id)"
    " ON DELETE CASCADE ON UPDATE CASCADE)",
    "shop (id INT PRIMARY KEY, city INT, v INT, double_city INT AS (city * 2) VIRTUAL,"
    " FOREIGN KEY (city) REFERENCES city (id) ON DELETE SET NULL ON UPDATE CASCADE)",
    "member (city INT, id INT, v INT, PRIMARY KEY (city, id),"
    " CONSTRAINT `member's``key` FOREIGN KEY (city) REFERENCES city (id)"
    " ON UPDATE CASCADE ON DELETE CASCADE)",
    "badge (id INT PRIMARY KEY, City INT, no INT, v INT, FOREIGN KEY (City, no)"
    " REFERENCES member (city, id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "place (id INT PRIMARY KEY, code VARCHAR(4), v INT, FOREIGN KEY (code)"
    " REFERENCES region (code) ON DELETE CASCADE ON UPDATE SET NULL)",
    "tree (id INT PRIMARY KEY, up INT, v INT, FOREIGN KEY (up) REFERENCES tree (id)"
    " ON DELETE CASCADE)",
    "plain (id INT PRIMARY KEY, city INT, v INT)",
]
NAMES = [table.split()[0] for table in TABLES]
PARENTS = [
    "region WHERE id IN (SELECT region FROM city)",
    "city WHERE id IN (SELECT city FROM shop UNION SELECT city FROM member)",
]
"""Rows that other rows refer to."""
KEYS = 12
MORE_POINTS = [("batch-written", 0), ("table-committed", 0)]


class History:
    """Random transactions over `TABLES` of a database; a statement may fail."""

    def __init__(self, server: MariaDB, database: str, seed: int) -> None:
        self.server, self.database, self._chance = server, database, random.Random(seed)
        fresh(server, database)
        server.execute(f"USE {database}", *(f"CREATE TABLE {table}" for table in TABLES))
        self.run(
            "INSERT INTO region SELECT seq, CONCAT('r', seq), 0 FROM seq_0_to_11",
            "INSERT INTO city SELECT seq, seq DIV 2, 0 FROM seq_0_to_11",
            "INSERT INTO member SELECT seq DIV 2, seq, 0 FROM seq_0_to_11",
        )
        for _ in range(20):
            self.step()

    def run(self, *statements: str) -> None:
        connection = self.server.connect()
        connection.autocommit(False)
        with connection.cursor() as cursor:
            cursor.execute(f"USE {self.database}")
            for statement in statements:
                try:
                    cursor.execute(statement)
                except pymysql.err.MySQLError:
                    pass
        connection.commit()
        connection.close()

    def step(self) -> None:
        """One transaction."""
        chance = self._chance
        statements = [self._statement() for _ in range(chance.choice([1, 1, 2, 5]))]
        if chance.random() < 0.1:
            statements = ["SET foreign_key_checks = 0", *statements]
        if chance.random() < 0.15:
            at = chance.randrange(len(statements) + 1)
            undone = [self._statement(), self._statement()]
            statements[at:at] = ["SAVEPOINT s", *undone, "ROLLBACK TO s"]
        if chance.random() < 0.1:
            statements.append("ROLLBACK")
        if chance.random() < 0.1:
            return self.beside_a_temporary_table()
        self.run(*statements)

    def beside_a_temporary_table(self) -> None:
        """A transaction with deletes, and a temporary table that has the name of a table."""
        # LIMIT has row events, and the temporary table is logged as a statement.
        deletes = [f"DELETE FROM {rows} LIMIT {self._chance.randrange(1, 4)}" for rows in PARENTS]
        temporary = f"CREATE TEMPORARY TABLE {self._chance.choice(NAMES)} (id INT)"
        self.run("SET SESSION binlog_format = MIXED", *deletes, temporary)

    def _statement(self) -> str:
        chance = self._chance
        table, key, other = chance.choice(NAMES), chance.randrange(KEYS), chance.randrange(KEYS)
        value, seed = chance.randrange(100), chance.randrange(1000)

        def some(column: str, parent: str) -> str:
            return f"(SELECT {column} FROM {parent} AS p ORDER BY RAND({seed}) LIMIT 1)"

        rows = {
            "region": f"{key}, 'r{other}', {value}",
            "shop": f"{key}, {some('id', 'city')}, {value}, NULL",
            "member": f"{some('id', 'city')}, {key}, {value}",
            "badge": f"{key}, {some('city', 'member')}, {some('id', 'member')}, {value}",
            "place": f"{key}, {some('code', 'region')}, {value}",
            "tree": f"{key}, {some('id', 'tree')}, {value}",
            "plain": f"{key}, NULL, {value}",
            "city": f"{key}, {some('id', 'region')}, {value}",
        }
        kind = chance.random()
        if kind < 0.5:
            return f"{chance.choice(['INSERT', 'REPLACE'])} INTO {table} SELECT {rows[table]}"
        if kind < 0.65:
            return f"UPDATE {table} SET v = {value} WHERE id <= {key}"
        if kind < 0.8:
            return f"UPDATE {table} SET id = {other} WHERE id = {key}"
        if kind < 0.85:
            return f"UPDATE region SET code = 'r{other}' WHERE id = {key}"
        return f"DELETE FROM {table} WHERE id = {key}"


class Writing(ConcurrentSteps):
    """The history goes on until the `with` ends."""

    def __init__(self, history: History, pause_s: float = 0.02) -> None:
        super().__init__(pause_s)
        self._history, self.steps = history, 0

    def step(self) -> None:
        self._history.step()
        self.steps += 1


def same(warehouse: Warehouse, history: History, table: str) -> bool:
    there = mysql_rows(history.server, f"{history.database}.{table}")
    return paimon_rows(warehouse, f"ods.{table}") == there


def check(warehouse: Warehouse, history: History) -> None:
    """The tables have MySQL's rows, and so has what their changes add up to."""
    for table in NAMES:
        there = mysql_rows(history.server, f"{history.database}.{table}")
        assert paimon_rows(warehouse, f"ods.{table}") == there, table
        assert replayed(warehouse, f"ods.{table}") == there, table


@pytest.fixture
def cascading(mariadb: MariaDB, tmp_path: Path, without_jvm: None) -> Sync:
    return Sync(mariadb, tmp_path)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 9))]
)
def test_generated_histories(cascading: Sync, mariadb: MariaDB, seed: int) -> None:
    """Beside a running sync, that is stopped, killed between two steps of a batch, and resumed."""
    sync, name = cascading, f"cascades_{seed}"
    history = History(mariadb, name, seed)
    with sync.running(name, table_conf=KEPT) as until:
        until(lambda: all(sync.warehouse.exists("ods", table) for table in NAMES))
        until(partial(same, sync.warehouse, history, "region"))
        with Writing(history) as writing:
            until(lambda: writing.steps > 80)
        for table in NAMES:
            until(partial(same, sync.warehouse, history, table))
    check(sync.warehouse, history)
    for point, later in [("batch-written", 1), *([] if seed == 0 else MORE_POINTS)]:
        for _ in range(30):
            history.step()
        # A batch has the delete, and the next one the comparison.
        history.run("INSERT INTO city VALUES (50, NULL, 1)", "INSERT INTO member VALUES (50, 1, 1)")
        history.run(
            "DELETE FROM city WHERE id = 50",
            "DELETE FROM plain",
            "INSERT INTO plain VALUES (1, 1, 1)",
        )
        with failing_at(f"{point}:{next_batch(sync) + later}"):
            sync.database(name, table_conf=KEPT)
        for _ in range(5):
            history.step()
        sync.database(name, table_conf=KEPT)
        check(sync.warehouse, history)
        # Nothing is to be compared from here on.
        history.beside_a_temporary_table()
        sync.database(name, table_conf=KEPT)
        check(sync.warehouse, history)


def next_batch(sync: Sync) -> int:
    (offsets,) = (sync.folder / "warehouse").rglob("offsets")
    return 1 + max(int(path.name) for path in offsets.iterdir() if path.name.isdigit())


def database(sync: Sync, name: str, user: str | None = None, **how: Any) -> None:
    """Sync as another user, until caught up."""
    conf = mysql_conf(sync.server, name) | ({"username": user, "password": "x"} if user else {})
    options = sync_database_options(sync.warehouse.options, "ods", conf, **how)
    run_sync(SyncRun(options, until_caught_up=True, notice=sync.notices.append))


def regions_and_cities(server: MariaDB, name: str) -> None:
    """Create a database of a few rows, with the tables that refer to each other up to shops."""
    fresh(server, name)
    server.execute(
        *(f"CREATE TABLE {name}.{table}" for table in TABLES[:3]),
        f"INSERT INTO {name}.region VALUES (1, 'a', 1), (2, 'b', 2)",
        f"INSERT INTO {name}.city VALUES (1, 1, 1), (2, 2, 2)",
    )


def test_what_such_a_table_needs(cascading: Sync, mariadb: MariaDB) -> None:
    """A user who may only SELECT sees no rules of foreign keys in information_schema."""
    sync, name = cascading, "cascades_needs"
    regions_and_cities(mariadb, name)
    mariadb.execute(
        f"INSERT INTO {name}.shop (id, city, v) VALUES (1, 1, 1), (2, 2, 2)",
        "CREATE OR REPLACE USER only_reads@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT ON {name}.* TO only_reads@'%'",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO only_reads@'%'",
    )
    with pytest.raises(TableError, match=r"shop: its foreign key .* follows cascades_needs.city, "):
        database(sync, name, "only_reads", including_tables="shop")
    with pytest.raises(TableError, match="it has no primary key"):
        database(
            sync, name, "only_reads", sync_primary_keys_from_source_schema=False, table_suffix="_k"
        )
    database(sync, name, "only_reads", including_tables="region|plain")
    database(sync, name, "only_reads", skip_unsupported=True, excluding_tables="city")
    assert not sync.warehouse.exists("ods", "shop")
    database(sync, name, "only_reads")
    mariadb.execute(f"DELETE FROM {name}.region WHERE id = 1")
    mariadb.execute(f"UPDATE {name}.city SET id = 7 WHERE id = 2")
    database(sync, name, "only_reads")
    assert paimon_rows(sync.warehouse, "ods.city") == [{"id": 7, "region": 2, "v": 2}]
    shops = [(row["id"], row["city"]) for row in paimon_rows(sync.warehouse, "ods.shop")]
    assert shops == [(1, None), (2, 7)]
    with pytest.raises(SchemaChangeError, match="select that, or exclude cascades_needs.shop"):
        database(sync, name, "only_reads", excluding_tables="city")
    # A foreign key that comes later, and one whose parent gets other names.
    mariadb.execute(
        f"CREATE TABLE {name}.late (id INT PRIMARY KEY, shop INT)",
        f"INSERT INTO {name}.late VALUES (1, 1), (2, 2)",
    )
    database(sync, name, "only_reads")
    mariadb.execute(
        f"ALTER TABLE {name}.late ADD FOREIGN KEY (shop) REFERENCES {name}.shop (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE",
        f"UPDATE {name}.shop SET id = 11 WHERE id = 1",
        f"ALTER TABLE {name}.shop RENAME COLUMN id TO number",
        f"UPDATE {name}.shop SET number = 12 WHERE number = 11",
        f"RENAME TABLE {name}.shop TO {name}.store",
        f"UPDATE {name}.store SET number = 13 WHERE number = 12",
    )
    database(sync, name, "only_reads")
    mariadb.execute(f"UPDATE {name}.store SET number = 14 WHERE number = 13")
    database(sync, name, "only_reads")
    late = [(row["id"], row["shop"]) for row in paimon_rows(sync.warehouse, "ods.late")]
    assert late == [(1, 14), (2, 2)]


def test_a_transaction_that_creates_a_temporary_table(cascading: Sync, mariadb: MariaDB) -> None:
    """It is a batch of its own if the temporary table has the name of a followed one."""
    sync, name = cascading, "cascades_temporary"
    regions_and_cities(mariadb, name)
    sync.database(name, table_conf=KEPT)
    connection = mariadb.connect(name)
    connection.autocommit(False)
    with connection.cursor() as cursor:
        # LIMIT has row events, and the temporary table is logged as a statement.
        cursor.execute("SET SESSION binlog_format = MIXED")
        cursor.execute("DELETE FROM region WHERE id = 1 LIMIT 1")
        cursor.execute("CREATE TEMPORARY TABLE shop (id INT)")
    connection.commit()
    connection.close()
    sync.database(name, table_conf=KEPT)
    for table in ("region", "city", "shop"):
        own = f"{name}.{table}"
        assert paimon_rows(sync.warehouse, f"ods.{table}") == mysql_rows(mariadb, own), table
