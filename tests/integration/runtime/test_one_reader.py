"""Several MySQL tables share one binlog reader and one connection."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.runtime.conftest import Shop
from tests.waiting import looks

from streamhouse.connectors.mysql_cdc.relay.relay import FOLDER as RELAYS
from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.runtime.monitoring.status import Statuses
from streamhouse.runtime.state.checkpoint import FOLDER as CHECKPOINTS
from streamhouse.source import Lag

TABLES = ("product", "agent", "member_order")
KEYS = 40
_TABLE = """
CREATE TEMPORARY TABLE my_{0} (id INT, name STRING, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{1}', 'username' = '{2}',
  'password' = '{3}', 'database-name' = 'one_reader', 'table-name' = '{0}');
CREATE TABLE IF NOT EXISTS {0} (id INT, name STRING, v INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('bucket' = '1', 'changelog-producer' = 'input');
INSERT INTO {0} SELECT id, name, v FROM my_{0};
"""
SHARDS = ("agent", "product")
_SHARDS = """
CREATE TEMPORARY TABLE my_shards (of STRING METADATA FROM 'table_name', id INT, name STRING, v INT)
WITH ('connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{0}', 'username' = '{1}',
  'password' = '{2}', 'database-name' = 'one_(reader)', 'table-name' = 'agent|prod.*');
CREATE TABLE IF NOT EXISTS shards (of STRING, id INT, name STRING, v INT,
  PRIMARY KEY (of, id) NOT ENFORCED) WITH ('bucket' = '1');
INSERT INTO shards SELECT of, id, name, v FROM my_shards;
"""


def script(server: MariaDB) -> str:
    tables = [_TABLE.format(table, server.port, USER, PASSWORD) for table in TABLES]
    return "".join([*tables, _SHARDS.format(server.port, USER, PASSWORD)])


def change(server: MariaDB, chance: random.Random, transactions: int) -> None:
    """Random transactions over all tables."""
    connection = server.connect("one_reader")
    connection.autocommit(False)
    with connection.cursor() as cursor:
        for _ in range(transactions):
            for _ in range(chance.randrange(1, 4)):
                table, key = chance.choice(TABLES), chance.randrange(KEYS)
                if chance.random() < 0.6:
                    cursor.execute(
                        f"INSERT INTO {table} VALUES (%s, %s, 0) ON DUPLICATE KEY UPDATE v = v + 1",
                        (key, f"{table} {key}"),
                    )
                elif chance.random() < 0.5:
                    cursor.execute(
                        f"UPDATE IGNORE {table} SET id = %s WHERE id = %s",
                        (chance.randrange(KEYS), key),
                    )
                else:
                    cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key,))
            connection.rollback() if chance.random() < 0.1 else connection.commit()
            if chance.random() < 0.02:
                server.execute("FLUSH BINARY LOGS")
    connection.close()


def there(server: MariaDB, table: str) -> list[tuple[Any, ...]]:
    rows = server.execute(f"SELECT id, name, v FROM one_reader.{table}")
    return sorted(tuple(row) for row in rows)


def here(shop: Shop, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in shop.rows(table))


def equal(shop: Shop, server: MariaDB) -> bool:
    made = all(shop.warehouse.exists("default", table) for table in (*TABLES, "shards"))
    if not made or not all(here(shop, table) == there(server, table) for table in TABLES):
        return False
    shards = [(shard, *row) for shard in SHARDS for row in there(server, shard)]
    return here(shop, "shards") == shards


def dumps(server: MariaDB) -> set[int]:
    """The connections that read the binlog; the server notices late that one is dead."""
    rows = server.execute("SHOW PROCESSLIST")
    return {int(row[0]) for row in rows if "Binlog Dump" in str(row[4])}


def logs(shop: Shop) -> list[Path]:
    return list((shop.path / CHECKPOINTS / "shop.sql" / RELAYS).iterdir())


def lags(shop: Shop) -> list[Lag | None]:
    """How far behind each query says that it is."""
    status = Statuses({"warehouse": str(shop.path)}).read("shop.sql")
    return [] if status is None else [query.lag for query in status.queries]


@pytest.mark.parametrize(
    "killed",
    [
        False,
        # Killed while changes come they are in test_relay_faults.
        pytest.param(True, marks=pytest.mark.soak),
    ],
)
def test_tables_and_shards_by_one_connection(shop: Shop, mariadb: MariaDB, killed: bool) -> None:
    chance = random.Random(3)
    mariadb.execute("DROP DATABASE IF EXISTS one_reader", "CREATE DATABASE one_reader")
    for table in TABLES:
        mariadb.execute(
            f"CREATE TABLE one_reader.{table} (id INT PRIMARY KEY, name VARCHAR(30), v INT)"
        )
    change(mariadb, chance, 60)
    if killed:
        dies_among_changes(shop, mariadb, chance)
    before = dumps(mariadb)
    change(mariadb, chance, 40)
    run = shop.start(script(mariadb))
    run.until(lambda: equal(shop, mariadb))
    for _ in range(5):
        change(mariadb, chance, 20)
        assert len(dumps(mariadb) - before) == 1
    run.until(lambda: equal(shop, mariadb))
    assert (len(dumps(mariadb) - before), len(logs(shop))) == (1, 1)
    run.until(lambda: lags(shop) == [Lag(seconds=0.0, bytes=0)] * (len(TABLES) + 1))
    run.signal(signal.SIGTERM)
    assert run.wait().code == 0
    assert all(there(mariadb, table) for table in TABLES)
    assert equal(shop, mariadb)
    assert logs(shop) == []


def dies_among_changes(shop: Shop, server: MariaDB, chance: random.Random) -> None:
    """Run the script until it is killed between two commits, once it has the tables as they are."""
    run = shop.start(script(server), STREAMHOUSE_FAILPOINT="target-committed:2:default.agent")
    for _ in looks(lambda: run.err):
        if run.process.poll() is not None:
            break
        if equal(shop, server):
            change(server, chance, 5)
    assert run.wait().code == -signal.SIGKILL
