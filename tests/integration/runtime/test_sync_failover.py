"""A sync whose server is reset, replaced by a replica, or away."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Installed
from tests.integration.runtime.conftest import failing_at
from tests.integration.runtime.test_sync import Sync, there
from tests.mysql_server import IS_MYSQL, Server
from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.errors import DataLossError
from streamhouse.paimon.catalog.warehouse import Warehouse


@pytest.fixture
def server(installed: Installed, tmp_path: Path) -> Iterator[MariaDB]:
    with Server(installed(tmp_path / "own")) as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9000))",
            "INSERT INTO shop.t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        )
        yield server


def rows(server: MariaDB) -> list[tuple[Any, ...]]:
    found = server.execute("SELECT * FROM shop.t")
    if server.execute("SHOW DATABASES LIKE 'shop_2'"):
        found += server.execute("SELECT * FROM shop_2.t")
    return sorted(found)


@pytest.fixture
def sync(server: MariaDB, tmp_path: Path, spark_here: None) -> Sync:
    return Sync(server, tmp_path)


def test_a_reset_binlog_is_data_loss(sync: Sync, server: MariaDB) -> None:
    """A shorter binlog of the same name, and one that has grown past the old position."""
    sync.database("shop")
    server.execute("RESET MASTER", "DELETE FROM shop.t WHERE id = 2")
    with pytest.raises(DataLossError, match=r"ends at \S+, before \S+: it was reset"):
        sync.database("shop")
    server.execute("REPLACE INTO shop.t VALUES (4, REPEAT('x', 9000))")
    with pytest.raises(DataLossError, match="is another one than was read before"):
        sync.database("shop")
    assert there(sync.warehouse, "ods.t") == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(
    ("seed", "count"),
    [(1, 2), *(pytest.param(seed, 4, marks=pytest.mark.soak) for seed in range(2, 10))],
)
def test_a_table_that_is_read_whole_again_ends_as_mysqls(
    sync: Sync, server: MariaDB, seed: int, count: int
) -> None:
    """With another checkpoint, from scratch, and after an exclusion; also across failures."""
    chance = random.Random(seed)
    more: dict[str, Any] = {"table_conf": {"changelog-producer": "input", "bucket": "1"}}
    server.execute("CREATE DATABASE shop_2", "CREATE TABLE shop_2.t LIKE shop.t")
    ways = ["name", "scratch", "table", "shard"]
    chance.shuffle(ways)
    server.execute("DELETE FROM shop.t WHERE id = 2")  # Even keys are in the other shard.
    sync.database("shop.*", **more)
    name, kept = None, Kept(sync.warehouse)
    for number, way in enumerate(ways[:count]):
        changes(server, chance)
        again: dict[str, Any] = {}
        if way == "name":
            name = f"other-{number}"
        elif way == "scratch":
            again = {"from_scratch": True}
        else:
            # Without the table, while MySQL changes it.
            out = {"excluding_tables": "t"} if way == "table" else {"excluding_dbs": "shop_2"}
            server.execute("CREATE TABLE IF NOT EXISTS shop.other (id INT PRIMARY KEY)")
            sync.database("shop.*", name, **out, **more)
            changes(server, chance)
        if way in ("name", "scratch") and chance.random() < 0.5:
            server.execute("RESET MASTER")
        if number == 0:
            point = chance.choice(["batch-written:1", "table-committed:1", "batch-written:0"])
            with failing_at(point), sync.running("shop.*", name=name, **again, **more) as until:
                until(lambda: False)
            again = {}
        sync.database("shop.*", name, **again, **more)
        model = rows(server)
        assert there(sync.warehouse, "ods.t") == model, way
        kept.check(model)
    changes(server, chance)
    sync.database("shop.*", name, **more)
    assert there(sync.warehouse, "ods.t") == rows(server)


def changes(server: MariaDB, chance: random.Random) -> None:
    """Random rows, of which each key is in one of the two shards."""
    for _ in range(12):
        key = chance.randrange(40)
        table = "shop.t" if key % 2 else "shop_2.t"
        if chance.random() < 0.6:
            server.execute(f"REPLACE INTO {table} VALUES ({key}, 'v{chance.randrange(99)}')")
        else:
            server.execute(f"DELETE FROM {table} WHERE id = {key}")


@dataclass
class Kept:
    """The rows of `ods.t` that a reader of its changes has, who saw none of them twice."""

    warehouse: Warehouse
    rows: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    last: int = 0

    def check(self, model: list[tuple[Any, ...]]) -> None:
        table = self.warehouse.table("ods.t")
        latest = table.latest_snapshot_id() or 0
        for number in range(self.last, latest):
            splits = table.changes(number, number + 1, "changelog")
            for batch in table.read(splits=splits, row_kind=True):
                for change in batch.to_pylist():
                    kind, row = change.pop("rowkind"), tuple(change.values())
                    if kind in ("-U", "-D"):
                        assert self.rows.pop(row[0]) == row
                    else:
                        assert row[0] not in self.rows
                        self.rows[row[0]] = row
        self.last = latest
        assert sorted(self.rows.values()) == model


@pytest.fixture
def replica(server: MariaDB, installed: Installed, tmp_path: Path) -> Iterator[MariaDB]:
    """A server that has replicated all of `server` from its first transaction on."""
    options = ["--server-id=2", "--log-slave-updates", "--binlog-checksum=NONE"]
    with Server(installed(tmp_path / "replica"), server_options=options) as replica:
        replica.execute(
            "RESET MASTER",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {server.port},"
            f" master_user = '{USER}', master_password = '{PASSWORD}',"
            " master_use_gtid = slave_pos",
            "SET GLOBAL gtid_slave_pos = ''",
            "START SLAVE",
        )
        replicated(server, replica)
        yield replica


def replicated(server: MariaDB, replica: MariaDB) -> None:
    position = server.execute("SELECT @@gtid_binlog_pos")[0][0]
    waited = replica.execute(f"SELECT MASTER_GTID_WAIT('{position}', 60)")
    assert waited == [(0,)], replica.execute("SHOW SLAVE STATUS")


def promoted(server: MariaDB, replica: MariaDB) -> None:
    """Let the replica take the place of the server, which is away."""
    replica.execute("STOP SLAVE", "RESET SLAVE ALL")
    server.stop()


@pytest.mark.skipif(IS_MYSQL, reason="MariaDB's replication")
@pytest.mark.parametrize("behind", [False, True])
def test_it_goes_on_at_a_replica(
    sync: Sync, server: MariaDB, replica: MariaDB, behind: bool
) -> None:
    """With changes before, between and after; but not if a change that was read is lost."""
    chance, kept = random.Random(3), Kept(sync.warehouse)
    more: dict[str, Any] = {"table_conf": {"changelog-producer": "input", "bucket": "1"}}
    server.execute("CREATE DATABASE shop_2", "CREATE TABLE shop_2.t LIKE shop.t")
    server.execute("DELETE FROM shop.t WHERE id = 2")
    changes(server, chance)
    sync.database("shop.*", **more)
    if behind:
        replicated(server, replica)
        replica.execute("STOP SLAVE")
    changes(server, chance)
    sync.database("shop.*", **more)
    kept.check(rows(server))
    if behind:
        promoted(server, replica)
        # The new server gives the same numbers to other transactions.
        for _ in range(3):
            changes(replica, chance)
        sync.server = replica
        with pytest.raises(DataLossError, match="another server than before, and .* cannot go on"):
            sync.database("shop.*", **more)
        return
    changes(server, chance)
    replica.execute("FLUSH BINARY LOGS")
    changes(server, chance)
    replicated(server, replica)
    promoted(server, replica)
    sync.server = replica
    sync.database("shop.*", **more)
    kept.check(rows(replica))
    changes(replica, chance)
    replica.execute("FLUSH BINARY LOGS")
    changes(replica, chance)
    sync.database("shop.*", **more)
    kept.check(rows(replica))
    assert sum("of another server, after" in notice for notice in sync.notices) == 1


@pytest.mark.skipif(IS_MYSQL, reason="MariaDB's replication")
def test_a_script_goes_on_at_a_replica(server: MariaDB, replica: MariaDB, tmp_path: Path) -> None:
    """Two declared tables, which share one reader of the binlog."""
    chance, lake = random.Random(4), LocalPipeline(tmp_path)
    server.execute("CREATE DATABASE shop_2", "CREATE TABLE shop_2.t LIKE shop.t")
    columns = "(id INT PRIMARY KEY NOT ENFORCED, v STRING)"

    def copied(server: MariaDB) -> None:
        script = ""
        for name in ("shop", "shop_2"):
            script += f"""CREATE TABLE IF NOT EXISTS copy_{name} {columns} WITH ('bucket' = '1');
              CREATE TEMPORARY TABLE {name} {columns} WITH ('connector' = 'mysql-cdc',
                'hostname' = '127.0.0.1', 'port' = '{server.port}', 'username' = '{USER}',
                'password' = '{PASSWORD}', 'database-name' = '{name}', 'table-name' = 't');
              INSERT INTO copy_{name} SELECT id, v FROM {name};"""
        lake.run(script)
        for name in ("shop", "shop_2"):
            there = sorted((row["id"], row["v"]) for row in lake.rows(f"copy_{name}"))
            assert there == sorted(server.execute(f"SELECT * FROM {name}.t")), name

    copied(server)
    for _ in range(2):
        changes(server, chance)
    copied(server)
    changes(server, chance)
    replicated(server, replica)
    promoted(server, replica)
    for _ in range(3):
        changes(replica, chance)
        copied(replica)
