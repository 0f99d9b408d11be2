"""A sync whose server is reset, replaced by a replica, or away."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Installed
from tests.integration.replication import MySqlPositions, MySqlReplication, Replication
from tests.integration.runtime.conftest import failing_at
from tests.integration.runtime.test_sync import Sync, there
from tests.mysql_server import IS_MYSQL, MySql, Server
from tests.unit.runtime.local_pipeline import LocalPipeline
from tests.waiting import until

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
    """Random rows, of which each key is in one of the two shards; some with tagged GTIDs."""
    for _ in range(12):
        key = chance.randrange(40)
        table = "shop.t" if key % 2 else "shop_2.t"
        change = f"DELETE FROM {table} WHERE id = {key}"
        if chance.random() < 0.6:
            change = f"REPLACE INTO {table} VALUES ({key}, 'v{chance.randrange(99)}')"
        tag = chance.choice(["", ":blue", ":green"])
        tagged = [f"SET gtid_next = 'AUTOMATIC{tag}'"] if tag and has_tags(server) else []
        server.execute(*tagged, change)


def has_tags(server: MariaDB) -> bool:
    return isinstance(server, MySql) and server.execute("SELECT @@gtid_mode") == [("ON",)]


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


NOT_MYSQL = pytest.mark.skipif(IS_MYSQL, reason="MariaDB's replication")
KINDS = [
    pytest.param(Replication, marks=NOT_MYSQL),
    pytest.param(MySqlReplication, marks=pytest.mark.soak),
]


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path, spark_here: None) -> Iterator[Replication]:
    """A server with two tables, and its replica, of the kind that is the parameter."""
    kind, *options = request.param if isinstance(request.param, tuple) else (request.param,)
    name = "installed" if kind is Replication else "installed_mysql"
    with kind.running(request.getfixturevalue(name), tmp_path, *options) as pair:
        pair.server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9000))",
            "INSERT INTO shop.t VALUES (1, 'a'), (3, 'c')",
            "CREATE DATABASE shop_2",
            "CREATE TABLE shop_2.t LIKE shop.t",
        )
        pair.start()
        yield pair


MORE: dict[str, Any] = {"table_conf": {"changelog-producer": "input", "bucket": "1"}}


@pytest.mark.parametrize("pair", KINDS, indirect=True)
def test_it_goes_on_at_a_replica(pair: Replication, tmp_path: Path) -> None:
    """With changes before, between and after."""
    chance, sync = random.Random(3), Sync(pair.server, tmp_path)
    kept = Kept(sync.warehouse)
    for _ in range(2):
        changes(pair.server, chance)
        sync.database("shop.*", **MORE)
        kept.check(rows(pair.server))
    changes(pair.server, chance)
    pair.replica.execute("FLUSH BINARY LOGS")
    changes(pair.server, chance)
    pair.wait()
    sync.server = pair.promote()
    for _ in range(2):
        sync.database("shop.*", **MORE)
        kept.check(rows(pair.replica))
        changes(pair.replica, chance)
        pair.replica.execute("FLUSH BINARY LOGS")
        changes(pair.replica, chance)
    sync.database("shop.*", **MORE)
    kept.check(rows(pair.replica))
    assert sum("of another server, after" in notice for notice in sync.notices) == 1


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pair", KINDS, indirect=True)
def test_it_goes_on_after_a_stop_under_load(pair: Replication, tmp_path: Path, seed: int) -> None:
    """The last offset has its GTIDs also if the server never rests."""
    chance, sync = random.Random(seed), Sync(pair.server, tmp_path)
    kept, enough = Kept(sync.warehouse), threading.Event()
    changes(pair.server, chance)
    sync.database("shop.*", **MORE)

    def write() -> None:
        while not enough.is_set():
            changes(pair.server, chance)

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write)
        last = sync.warehouse.table("ods.t").latest_snapshot_id() or 0
        try:
            with sync.running("shop.*", **MORE) as until:
                until(lambda: (sync.warehouse.table("ods.t").latest_snapshot_id() or 0) > last + 3)
        finally:
            enough.set()
        written.result()
    pair.wait()
    sync.server = pair.promote()
    sync.database("shop.*", **MORE)
    kept.check(rows(pair.replica))


def behind(pair: Replication, sync: Sync, chance: random.Random) -> None:
    """The replica lacks a transaction that was read, and gives its number to another one."""
    pair.replica.execute(pair.pause)
    changes(pair.server, chance)
    sync.database("shop.*")
    pair.promote()
    for _ in range(3):
        changes(pair.replica, chance)


def purged(pair: Replication, sync: Sync, chance: random.Random) -> None:
    """The replica has removed the binlog with transactions that were not read yet."""
    changes(pair.server, chance)
    pair.wait()
    replica = pair.promote()
    file = replica.execute("FLUSH BINARY LOGS", "SHOW MASTER STATUS")[0][0]
    # MariaDB keeps a file until its storage engines have flushed it.
    purge = f"PURGE BINARY LOGS TO '{file}'"
    until(lambda: len(replica.execute(purge, "SHOW BINARY LOGS")) == 1)


def unlogged(pair: Replication, sync: Sync, chance: random.Random) -> None:
    """The replica has transactions that were not read yet, and its binlog never had them."""
    changes(pair.server, chance)
    pair.wait()
    pair.promote()
    changes(pair.replica, chance)


def restored(pair: Replication, sync: Sync, chance: random.Random) -> None:
    """The other server is a backup with transactions that were not read yet."""
    changes(pair.server, chance)
    pair.wait()
    pair.restore()
    pair.promote()
    changes(pair.replica, chance)


LOSSES = [
    pytest.param(Replication, behind, marks=NOT_MYSQL, id="behind"),
    *(
        pytest.param(
            (kind, *options),
            way,
            marks=[pytest.mark.soak, *marks],
            id=f"{way.__name__}-{kind.__name__}",
        )
        for kind, marks, unlogs in (
            (Replication, [NOT_MYSQL], "--skip-log-slave-updates"),
            (MySqlReplication, [], "--skip-log-replica-updates"),
            (MySqlPositions, [], "--skip-log-replica-updates"),
        )
        for way, *options in ((behind,), (purged,), (restored,), (unlogged, unlogs))
        if (kind, way) != (Replication, behind)
    ),
]


@pytest.mark.parametrize(("pair", "way"), LOSSES, indirect=["pair"])
def test_changes_that_another_server_lacks_are_data_loss(
    pair: Replication, way: Callable[[Replication, Sync, random.Random], None], tmp_path: Path
) -> None:
    """Also on the second attempt; nothing is written."""
    chance, sync = random.Random(5), Sync(pair.server, tmp_path)
    changes(pair.server, chance)
    sync.database("shop.*")
    way(pair, sync, chance)
    sync.server, before = pair.replica, there(sync.warehouse, "ods.t")
    for _ in range(2):
        with pytest.raises(DataLossError):
            sync.database("shop.*")
    assert there(sync.warehouse, "ods.t") == before


class Copies:
    """A script with two declared tables, which share one reader of the binlog."""

    def __init__(self, folder: Path) -> None:
        self.lake = LocalPipeline(folder)

    def run(self, server: MariaDB) -> None:
        columns, script = "(id INT PRIMARY KEY NOT ENFORCED, v STRING)", ""
        for name in ("shop", "shop_2"):
            script += f"""CREATE TABLE IF NOT EXISTS copy_{name} {columns} WITH ('bucket' = '1');
              CREATE TEMPORARY TABLE {name} {columns} WITH ('connector' = 'mysql-cdc',
                'hostname' = '127.0.0.1', 'port' = '{server.port}', 'username' = '{USER}',
                'password' = '{PASSWORD}', 'database-name' = '{name}', 'table-name' = 't');
              INSERT INTO copy_{name} SELECT id, v FROM {name};"""
        self.lake.run(script)

    def check(self, server: MariaDB) -> None:
        self.run(server)
        for name in ("shop", "shop_2"):
            there = sorted((row["id"], row["v"]) for row in self.lake.rows(f"copy_{name}"))
            assert there == sorted(server.execute(f"SELECT * FROM {name}.t")), name


@pytest.mark.parametrize("pair", KINDS, indirect=True)
def test_a_script_goes_on_at_a_replica(pair: Replication, tmp_path: Path) -> None:
    chance, copies = random.Random(4), Copies(tmp_path)
    copies.check(pair.server)
    for _ in range(2):
        changes(pair.server, chance)
    copies.check(pair.server)
    changes(pair.server, chance)
    pair.wait()
    replica = pair.promote()
    for _ in range(3):
        changes(replica, chance)
        copies.check(replica)


@pytest.mark.parametrize(
    "pair", [pytest.param(MySqlPositions, marks=pytest.mark.soak)], indirect=True
)
def test_a_script_without_gtids_does_not_go_on_at_a_replica(
    pair: Replication, tmp_path: Path
) -> None:
    chance, copies = random.Random(4), Copies(tmp_path)
    copies.check(pair.server)
    changes(pair.server, chance)
    copies.check(pair.server)
    changes(pair.server, chance)
    pair.wait()
    replica = pair.promote()
    for _ in range(2):
        changes(replica, chance)
        with pytest.raises(DataLossError):
            copies.run(replica)
