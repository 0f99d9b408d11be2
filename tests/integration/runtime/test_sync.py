"""`streamhouse sync`: whole MySQL databases as Paimon tables, compared row by row."""

from __future__ import annotations

import contextlib
import datetime
import json
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.runtime.conftest import Run, Shop, failing_at, in_thread

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.procedures.context import Context
from streamhouse.runtime.procedures import sync_mysql_table
from streamhouse.runtime.streaming.query import QueryFailed
from streamhouse.runtime.sync.options import sync_database_options, sync_table_options
from streamhouse.runtime.sync.run import SyncRun, run_sync
from streamhouse.sql.plan import Column

TYPES = {
    "n": "INT", "small": "SMALLINT UNSIGNED", "tiny": "TINYINT", "flag": "TINYINT(1)",
    "big": "BIGINT UNSIGNED", "medium": "MEDIUMINT", "price": "DECIMAL(12, 3)", "ratio": "DOUBLE",
    "code": "CHAR(5)", "name": "VARCHAR(40)", "note": "TEXT", "day": "DATE",
    "at": "DATETIME(6)", "seen": "TIMESTAMP(3) NULL", "made": "YEAR", "kind": "ENUM('a', 'b', 'ü')",
    "tags": "SET('x', 'y', 'z')", "raw": "VARBINARY(16)", "data": "BLOB", "bit1": "BIT(1)",
    "clock": "TIME(3)",
}  # fmt: skip
KEYS = 30
FAILPOINTS = ("table-committed:0", "table-committed:1", "batch-written:2")


def value(chance: random.Random, kind: str) -> Any:
    """A random value of a type; None now and then."""
    if chance.random() < 0.1:
        return None
    word = "".join(chance.choices("abcüß漢 '\"", k=chance.randrange(1, 5))).strip() or "w"
    instant = datetime.datetime(2020, 1, 2) + datetime.timedelta(
        microseconds=chance.randrange(4 * 10**14)
    )
    name = kind.split("(")[0].split(" ")[0]
    values: dict[str, Callable[[], Any]] = {
        "INT": lambda: chance.randrange(-(2**31), 2**31),
        "SMALLINT": lambda: chance.randrange(2**16),
        "MEDIUMINT": lambda: chance.randrange(-(2**23), 2**23),
        "BIGINT": lambda: chance.randrange(2**64),
        "DECIMAL": lambda: Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-3),
        "DOUBLE": lambda: chance.random() * 1e6,
        "CHAR": lambda: word,
        "VARCHAR": lambda: word,
        "TEXT": lambda: word * 3,
        "DATE": instant.date,
        "DATETIME": lambda: instant,
        "TIMESTAMP": lambda: instant.replace(microsecond=instant.microsecond // 1000 * 1000),
        "YEAR": lambda: chance.randrange(1901, 2156),
        "ENUM": lambda: chance.choice("abü"),
        "SET": lambda: ",".join(one for one in "xyz" if chance.random() < 0.5),
        "VARBINARY": lambda: chance.randbytes(9),
        "BLOB": lambda: chance.randbytes(40),
        "BIT": lambda: chance.randrange(2),
        "TIME": lambda: f"{chance.randrange(24):02}:{chance.randrange(60):02}:07.123",
    }
    if name == "TINYINT":
        return chance.randrange(2) if "(1)" in kind else chance.randrange(-128, 128)
    return values[name]()


def plain(kind: str, one: Any) -> Any:
    """A value of PyMySQL as Paimon has it."""
    if one is None:
        return None
    if kind.startswith("SET"):
        return sorted(one) if isinstance(one, set) else sorted(filter(None, one.split(",")))
    if kind.startswith("BIT"):
        return one == b"\x01"
    if kind == "TINYINT(1)":
        return bool(one)
    if kind.startswith("BIGINT UNSIGNED"):
        return Decimal(one)
    if kind.startswith("TIME("):
        return (datetime.datetime.min + one).time()
    return one


@dataclass
class Source:
    """Generated tables of a MariaDB, each with some of `TYPES`."""

    server: MariaDB
    chance: random.Random
    tables: dict[str, dict[str, str]] = field(default_factory=dict)

    def create(self, database: str, name: str) -> None:
        columns = dict(self.chance.sample(sorted(TYPES.items()), 6))
        self.tables[f"{database}.{name}"] = columns
        declared = ", ".join(f"`{column}` {kind}" for column, kind in columns.items())
        self.server.execute(
            f"CREATE TABLE {database}.{name} (id INT, {declared}, PRIMARY KEY (id))"
            " COMMENT 'made by a test'"
        )

    def write(self, transactions: int) -> None:
        """Random transactions over all tables."""
        connection = self.server.connect()
        connection.autocommit(False)
        with connection.cursor() as cursor:
            for _ in range(transactions):
                for _ in range(self.chance.randrange(1, 5)):
                    self._change(cursor)
                if self.chance.random() < 0.1:
                    connection.rollback()
                connection.commit()
                if self.chance.random() < 0.02:
                    self.server.execute("FLUSH BINARY LOGS")
        connection.close()

    def _change(self, cursor: Any) -> None:
        table = self.chance.choice(sorted(self.tables))
        columns, key = self.tables[table], self.chance.randrange(KEYS)
        if self.chance.random() < 0.6:
            values = [value(self.chance, kind) for kind in columns.values()]
            marks = ", ".join(["%s"] * (len(values) + 1))
            cursor.execute(f"REPLACE INTO {table} VALUES ({marks})", [key, *values])
        elif self.chance.random() < 0.5:
            cursor.execute(
                f"UPDATE IGNORE {table} SET id = %s WHERE id = %s",
                (self.chance.randrange(KEYS), key),
            )
        else:
            cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key,))

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        kinds = ["INT", *self.tables[table].values()]
        found = self.server.execute(f"SELECT * FROM {table}")
        rows = [tuple(map(plain, kinds, row)) for row in found]
        return sorted(rows, key=lambda row: int(row[0]))


def there(warehouse: Warehouse, table: str) -> list[tuple[Any, ...]]:
    """The rows of a Paimon table, by its first column."""
    opened = warehouse.table(table)
    if opened.latest_snapshot_id() is None:
        return []
    rows = [row for batch in opened.read() for row in batch.to_pylist()]
    return sorted((tuple(map(_unordered, row.values())) for row in rows), key=lambda row: row[0])


def _unordered(one: Any) -> Any:
    return sorted(one) if isinstance(one, list) else one


def mysql_conf(server: MariaDB, databases: str, **more: str) -> dict[str, str]:
    return {
        "hostname": "127.0.0.1",
        "port": str(server.port),
        "username": USER,
        "password": PASSWORD,
        "database-name": databases,
        "scan.incremental.snapshot.chunk.size": "10",
        **{key.replace("_", "-"): text for key, text in more.items()},
    }


@dataclass
class Sync:
    """Syncs into one warehouse, in this process; `notices` are those of all runs."""

    server: MariaDB
    folder: Path
    notices: list[str] = field(default_factory=list)

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(str(self.folder / "warehouse"))

    def database(self, databases: str, name: str | None = None, **how: Any) -> None:
        """Sync databases until caught up."""
        from_scratch = bool(how.pop("from_scratch", False))
        options = sync_database_options(
            self.warehouse.options, "ods", mysql_conf(self.server, databases), **how
        )
        run = SyncRun(options, name, until_caught_up=True, from_scratch=from_scratch)
        run.notice = self.notices.append
        run_sync(run)

    def table(self, databases: str, tables: str, name: str = "t", **how: Any) -> None:
        """Sync tables into one until caught up."""
        conf = mysql_conf(self.server, databases, table_name=tables)
        options = sync_table_options(self.warehouse.options, "ods", name, conf, **how)
        run_sync(SyncRun(options, until_caught_up=True, notice=self.notices.append))

    @contextlib.contextmanager
    def running(self, databases: str, **how: Any) -> Iterator[Callable[[Callable[[], Any]], None]]:
        """Sync databases in a thread until the `with` ends; gives what waits while it runs."""
        name, from_scratch = how.pop("name", None), bool(how.pop("from_scratch", False))
        options = sync_database_options(
            self.warehouse.options, "ods", mysql_conf(self.server, databases), **how
        )

        def run(stopped: Callable[[], bool]) -> None:
            run = SyncRun(options, name, stopped=stopped, from_scratch=from_scratch)
            run.notice = self.notices.append
            run_sync(run)

        with in_thread(run) as until:
            yield until


@pytest.fixture
def sync(mariadb: MariaDB, tmp_path: Path, in_threads: None) -> Sync:
    return Sync(mariadb, tmp_path)


def fresh(server: MariaDB, *databases: str) -> None:
    for name in databases:
        server.execute(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")


def test_a_database_of_many_types(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "sync_types")
    source = Source(mariadb, random.Random(1))
    for number in range(8):
        source.create("sync_types", f"t{number}")
    source.write(150)
    sync.database("sync_types", table_prefix="my_", table_conf={"bucket": "1"})
    for run in range(2):
        for table in source.tables:
            name = f"ods.my_{table.partition('.')[2]}"
            assert there(sync.warehouse, name) == source.rows(table), (run, table)
        source.write(100)
        sync.database("sync_types", table_prefix="my_", table_conf={"bucket": "1"})
    assert sync.warehouse.table("ods.my_t0").primary_key == ("id",)
    assert sync.notices == []


def test_tables_that_come_while_it_runs(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "sync_new")
    source = Source(mariadb, random.Random(2))
    source.create("sync_new", "first")
    source.write(20)
    with sync.running("sync_new", excluding_tables="hidden.*") as until:
        until(lambda: sync.warehouse.exists("ods", "first"))
        source.create("sync_new", "second")
        source.write(60)
        mariadb.execute("CREATE TABLE sync_new.hidden_1 (id INT PRIMARY KEY)")
        until(lambda: sync.warehouse.exists("ods", "second"))
        source.write(60)
        for table in source.tables:
            until(partial(same, sync.warehouse, source, table))
    assert any("sync_new.second" in notice for notice in sync.notices)
    assert not sync.warehouse.exists("ods", "hidden_1")
    source.write(20)
    sync.database("sync_new", excluding_tables="hidden.*")
    for table in source.tables:
        assert there(sync.warehouse, f"ods.{table.partition('.')[2]}") == source.rows(table)


def test_shards_are_merged(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "sync_shard_1", "sync_shard_2", "sync_other")
    mariadb.execute(
        "CREATE TABLE sync_shard_1.orders (id INT PRIMARY KEY, total SMALLINT NOT NULL)",
        "CREATE TABLE sync_shard_2.orders (id INT PRIMARY KEY, total BIGINT NOT NULL, note TEXT)",
        "CREATE TABLE sync_other.orders (id INT PRIMARY KEY)",
        "INSERT INTO sync_shard_1.orders VALUES (1, 10), (2, 20)",
        "INSERT INTO sync_shard_2.orders VALUES (3, 3000000000, 'x')",
    )
    sync.database(r"sync_shard_\d", metadata_column=["database_name", "table_name"])
    mariadb.execute(
        "UPDATE sync_shard_1.orders SET total = 11 WHERE id = 1",
        "DELETE FROM sync_shard_2.orders WHERE id = 3",
        # A row that moves to the shard whose name is first.
        "INSERT INTO sync_shard_1.orders VALUES (3, 30)",
        "INSERT INTO sync_shard_2.orders VALUES (4, 4, NULL)",
    )
    sync.database(r"sync_shard_\d", metadata_column=["database_name", "table_name"])
    rows = there(sync.warehouse, "ods.orders")
    assert rows == [
        (1, 11, None, "sync_shard_1", "orders"),
        (2, 20, None, "sync_shard_1", "orders"),
        (3, 30, None, "sync_shard_1", "orders"),
        (4, 4, None, "sync_shard_2", "orders"),
    ]
    columns = {column.name: column for column in sync.warehouse.table("ods.orders").columns}
    assert columns["total"] == Column("total", "BIGINT", nullable=False)
    assert columns["note"].nullable

    apart = Sync(mariadb, sync.folder / "apart")
    apart.database(
        r"sync_shard_\d",
        merge_shards=False,
        table_mapping={"sync_shard_2_orders": "second"},
        metadata_column=["table_name"],
        metadata_column_prefix="my_",
    )
    assert there(apart.warehouse, "ods.sync_shard_1_orders") == [
        (1, 11, "orders"),
        (2, 20, "orders"),
        (3, 30, "orders"),
    ]
    assert there(apart.warehouse, "ods.second") == [(4, 4, None, "orders")]


def test_one_table_with_other_keys_and_computed_columns(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "sync_one")
    mariadb.execute(
        "CREATE TABLE sync_one.events (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL,"
        " made DATETIME(3) NOT NULL) COMMENT 'what happened'",
        "INSERT INTO sync_one.events VALUES (1, ' Ann ', '2024-01-31 23:59:59.5'),"
        " (2, 'bob', '2024-02-01 00:00:00')",
    )

    def follow() -> None:
        sync.table(
            "sync_one",
            "events",
            partition_keys=["day"],
            primary_keys=["day", "id"],
            computed_column=[
                "day=date_format(made, yyyyMMdd)",
                "who=upper(tidy)",
                "tidy=trim(name)",
            ],
            metadata_column=["op_ts"],
            type_mapping=["char-to-string"],
            table_conf={"bucket": "1", "changelog-producer": "input"},
        )

    follow()
    opened = sync.warehouse.table("ods.t")
    assert (opened.primary_key, opened.partition_keys) == (("day", "id"), ("day",))
    mariadb.execute("UPDATE sync_one.events SET made = '2024-03-05 01:00:00' WHERE id = 1")
    follow()
    rows = there(sync.warehouse, "ods.t")
    assert [(row[0], row[1], *row[3:6]) for row in rows] == [
        (1, " Ann ", "20240305", "Ann", "ANN"),
        (2, "bob", "20240201", "bob", "BOB"),
    ]
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert rows[1][6] == epoch and rows[0][6] > epoch


def test_what_cannot_be_followed_is_refused(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "sync_bad")
    mariadb.execute(
        "CREATE TABLE sync_bad.good (id INT PRIMARY KEY)",
        "INSERT INTO sync_bad.good VALUES (1)",
        "CREATE TABLE sync_bad.keyless (id INT)",
        "CREATE VIEW sync_bad.seen AS SELECT * FROM sync_bad.good",
        "CREATE TABLE sync_bad.floating (id FLOAT PRIMARY KEY)",
    )
    with pytest.raises(TableError, match="1 of the selected tables cannot be followed") as raised:
        sync.database("sync_bad")
    assert "key column 'id' has the type float" in str(raised.value)
    with pytest.raises(TableError, match="keyless has no primary key"):
        sync.table("sync_bad", "keyless")
    sync.database("sync_bad", skip_unsupported=True)
    assert sum("not followed" in notice for notice in sync.notices) == 3
    assert there(sync.warehouse, "ods.good") == [(1,)]
    # As Paimon's action does, it leaves out tables without a key, and views.
    mariadb.execute("DROP TABLE sync_bad.floating", "INSERT INTO sync_bad.good VALUES (2)")
    sync.notices.clear()
    sync.database("sync_bad")
    assert sorted(notice[:36] for notice in sync.notices) == [
        "not followed: MySQL table sync_bad.k", "not followed: MySQL table sync_bad.s",
    ]  # fmt: skip
    assert there(sync.warehouse, "ods.good") == [(1,), (2,)]
    with pytest.raises(TableError, match="none of the 1 selected tables .* can be followed"):
        sync.database("sync_bad", including_tables="keyless", name="none")
    with pytest.raises(TableError, match="has no table .* in the database"):
        sync.database("sync_bad", including_tables="goood")
    with pytest.raises(OptionError, match="--including-tables"):
        sync_database_options({}, "ods", mysql_conf(mariadb, "sync_bad", table_name="good"))


def test_a_table_that_a_killed_run_created_gets_the_columns_that_mysql_has_now(
    sync: Sync, mariadb: MariaDB, tmp_path: Path
) -> None:
    fresh(mariadb, "sync_created")
    mariadb.execute(
        "CREATE TABLE sync_created.t (id INT PRIMARY KEY, a INT, b INT)",
        "INSERT INTO sync_created.t VALUES (1, 2, 3)",
    )
    command = ["sync", "mysql-database", "--warehouse", str(sync.folder / "warehouse")]
    command += ["--database", "ods"]
    for key, value in mysql_conf(mariadb, "sync_created").items():
        command += [f"--mysql-conf={key}={value}"]
    killed = Run(
        tmp_path, command, {"STREAMHOUSE_FAILPOINT": "table-created:0:ods.t"}, spark=False
    ).wait()
    assert killed.code == -9, killed.err
    assert sync.warehouse.table("ods.t").arrow_schema.names == ["id", "a", "b"]
    mariadb.execute(
        "ALTER TABLE sync_created.t DROP COLUMN a, MODIFY b VARCHAR(9), ADD COLUMN c INT FIRST",
        "UPDATE sync_created.t SET b = 'x', c = 4",
        "CREATE TABLE sync_created.users (id INT PRIMARY KEY, v INT)",
    )
    # A table of the user's stays, even if it has never been written.
    columns = [Column("id", "INT", nullable=False), Column("v", "INT"), Column("own", "INT")]
    sync.warehouse.create_table("ods", "users", columns, ["id"])
    sync.database("sync_created")
    assert sync.warehouse.table("ods.t").arrow_schema.names == ["c", "id", "b"]
    assert there(sync.warehouse, "ods.t") == [(4, 1, "x")]
    assert sync.warehouse.table("ods.users").arrow_schema.names == ["id", "v", "own"]


def test_an_existing_table_must_hold_the_values(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "sync_fit")
    mariadb.execute(
        "CREATE TABLE sync_fit.wide (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE sync_fit.narrow (id INT PRIMARY KEY, v BIGINT)",
        "INSERT INTO sync_fit.wide VALUES (1, 2)",
        "INSERT INTO sync_fit.narrow VALUES (1, 2)",
    )
    sync.warehouse.create_database("ods")
    for name in ("wide", "narrow"):
        columns = [Column("id", "INT", nullable=False), Column("v", "BIGINT"), Column("x", "INT")]
        columns[1] = Column("v", "BIGINT" if name == "wide" else "INT")
        sync.warehouse.create_table("ods", name, columns, ["id"])
    with pytest.raises(TableError, match="column 'v' is INT, which cannot hold the BIGINT"):
        sync.database("sync_fit")
    sync.database("sync_fit", ignore_incompatible=True, table_conf={"bucket": "2"})
    assert there(sync.warehouse, "ods.wide") == [(1, 2, None)]
    assert there(sync.warehouse, "ods.narrow") == []
    assert any("sync_fit.narrow: not followed" in notice for notice in sync.notices)
    assert any("keeps its option 'bucket'" in notice for notice in sync.notices)


def test_an_alter_ends_it_and_the_other_tables_go_on(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "sync_alter")
    mariadb.execute(
        "CREATE TABLE sync_alter.a (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE sync_alter.b (id INT PRIMARY KEY, v INT)",
        "INSERT INTO sync_alter.a VALUES (1, 1)",
    )
    sync.database("sync_alter")
    mariadb.execute(
        "ALTER TABLE sync_alter.b ADD COLUMN more INT",
        "INSERT INTO sync_alter.b VALUES (9, 9, 9)",
    )
    sync.database("sync_alter")
    assert there(sync.warehouse, "ods.b") == [(9, 9, 9)]
    assert any("sync_alter.b: ALTER TABLE sync_alter.b ADD" in notice for notice in sync.notices)
    mariadb.execute(
        "DELETE FROM sync_alter.b",
        "INSERT INTO sync_alter.b VALUES (1, 1, NULL)",
        "INSERT INTO sync_alter.a VALUES (2, 2)",
        "ALTER TABLE sync_alter.a DROP PRIMARY KEY, ADD PRIMARY KEY (v)",
        "INSERT INTO sync_alter.a VALUES (3, 3)",
        "INSERT INTO sync_alter.b VALUES (2, 2, NULL)",
    )
    for _ in range(2):
        with pytest.raises(QueryFailed, match=r"ods.a cannot follow 'ALTER TABLE .*primary key"):
            sync.database("sync_alter")
    assert there(sync.warehouse, "ods.a") == [(1, 1), (2, 2)]
    sync.database("sync_alter", excluding_tables="a")
    assert there(sync.warehouse, "ods.b") == [(1, 1, None), (2, 2, None)]
    assert any("sync_alter.a is not followed any more" in notice for notice in sync.notices)


def test_a_table_is_excluded_while_the_server_is_idle(sync: Sync, mariadb: MariaDB) -> None:
    """A batch that could not be read, and no change after it: nothing is left to wait for."""
    fresh(mariadb, "sync_idle")
    mariadb.execute(
        "CREATE TABLE sync_idle.a (id INT PRIMARY KEY, v TIME)",
        "INSERT INTO sync_idle.a VALUES (1, '100:00:00')",
        "CREATE TABLE sync_idle.b (id INT PRIMARY KEY, v INT)",
        "INSERT INTO sync_idle.b VALUES (1, 1)",
    )
    with pytest.raises(QueryFailed, match="is not a time of day"):
        sync.database("sync_idle")
    sync.database("sync_idle", excluding_tables="a")
    assert there(sync.warehouse, "ods.b") == [(1, 1)]


@pytest.mark.parametrize(
    "killed",
    [FAILPOINTS[1:2], pytest.param(FAILPOINTS, marks=pytest.mark.soak)],
    ids=["some", "each"],
)
def test_kills_lose_and_repeat_nothing(
    sync: Sync, mariadb: MariaDB, tmp_path: Path, killed: Sequence[str]
) -> None:
    """The driver is killed; at the other failpoints the query fails."""
    fresh(mariadb, "sync_kills")
    source = Source(mariadb, random.Random(3))
    for number in range(5):
        source.create("sync_kills", f"t{number}")
    source.write(60)
    warehouse = sync.warehouse
    conf = [f"--mysql_conf={k}={v}" for k, v in mysql_conf(mariadb, "sync_kills").items()]
    command = ["sync", "mysql-database", "--warehouse", warehouse.path, "--database", "ods"]
    command += [*conf, "--table_conf", "changelog-producer=input", "--json"]
    for point in FAILPOINTS:
        with writing(source):
            if point in killed:
                ended = Run(tmp_path, command, {"STREAMHOUSE_FAILPOINT": point}, spark=False).wait()
                assert ended.code == -signal.SIGKILL, ended.err
                continue
            table_conf = {"changelog-producer": "input"}
            with failing_at(point), sync.running("sync_kills", table_conf=table_conf) as until:
                until(lambda: False)
    run = Run(tmp_path, command, {"STREAMHOUSE_FAILPOINT": "task-written:3"}, spark=False)
    with writing(source):
        run.until(lambda: _changes(run) or run.process.poll() is not None)
        run.kill()  # at any time, unless its third batch came first
    run = Run(tmp_path, command, {}, spark=False)
    source.create("sync_kills", "late")
    source.write(40)
    run.until(lambda: equal(source, warehouse))
    run.kill()
    source.write(20)
    ended = Run(tmp_path, [*command, "--until-caught-up"], {}, spark=False).wait()
    assert ended.code == 0, ended.err
    assert equal(source, warehouse)
    last = json.loads(ended.out.splitlines()[-1])
    assert (last["tables"], last["followed"]) == (6, 6)
    for table in source.tables:
        check_commits(warehouse, f"ods.{table.partition('.')[2]}")


def same(warehouse: Warehouse, source: Source, table: str) -> bool:
    return there(warehouse, f"ods.{table.partition('.')[2]}") == source.rows(table)


def equal(source: Source, warehouse: Warehouse) -> bool:
    names = {table: f"ods.{table.partition('.')[2]}" for table in source.tables}
    made = all(warehouse.exists(*name.split(".")) for name in names.values())
    return made and all(
        there(warehouse, name) == source.rows(table) for table, name in names.items()
    )


@contextlib.contextmanager
def writing(source: Source) -> Iterator[None]:
    """Random transactions, a few at a time, until the `with` ends."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.3):
            source.write(5)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _changes(run: Run) -> bool:
    """Whether the last complete report of the run counts changes."""
    lines = run.out.split("\n")[:-1]
    return bool(lines) and bool(json.loads(lines[-1])["changes"])


def check_commits(warehouse: Warehouse, name: str) -> None:
    """Each batch was committed once, and the changelog leads to the rows."""
    table = warehouse.table(name)
    batches: Counter[int] = Counter()
    for number in range(table.earliest_snapshot_id() or 1, (table.latest_snapshot_id() or 0) + 1):
        snapshot = table.snapshot(number)
        if snapshot.commit_kind == "APPEND":
            batches[snapshot.commit_identifier] += 1
    assert batches and set(batches.values()) == {1}


@pytest.mark.usefixtures("in_threads")
def test_a_script_syncs_and_joins(shop: Shop, mariadb: MariaDB) -> None:
    fresh(mariadb, "sync_script")
    mariadb.execute(
        "CREATE TABLE sync_script.people (id INT PRIMARY KEY, country VARCHAR(9))",
        "INSERT INTO sync_script.people VALUES (1, 'Peru'), (2, 'Mali')",
    )
    conf = ",".join(f"{k}={v}" for k, v in mysql_conf(mariadb, "sync_script").items())
    script = f"""
        CREATE DATABASE IF NOT EXISTS ods;
        USE ods;
        CALL sys.sync_mysql_database(database => 'ods', mysql_conf => '{conf}',
          table_conf => 'bucket=1,changelog-producer=input', including_tables => 'peop.*');
        CREATE TABLE IF NOT EXISTS copy (id INT PRIMARY KEY NOT ENFORCED, country STRING)
          WITH ('bucket' = '1');
        INSERT INTO copy SELECT id, UPPER(country) FROM people;
    """
    shop.settle_here(script)
    mariadb.execute("UPDATE sync_script.people SET country = 'Oman' WHERE id = 1")
    shop.settle_here(script)
    assert there(shop.warehouse, "ods.people") == [(1, "Oman"), (2, "Mali")]
    assert there(shop.warehouse, "ods.copy") == [(1, "OMAN"), (2, "MALI")]
    table = sync_mysql_table(
        Context(shop.warehouse), "ods.alone", f"{conf},table-name=people", table_conf="bucket=1"
    )
    assert table.to_pylist() == [
        {
            "table": "sync_script.people", "target": "ods.alone", "complete": True,
            "snapshot_rows": 2, "changes": 0,
        }
    ]  # fmt: skip
    assert there(shop.warehouse, "ods.alone") == [(1, "Oman"), (2, "Mali")]


def test_it_continues_after_a_kill_of_the_jvm(mariadb: MariaDB, tmp_path: Path) -> None:
    fresh(mariadb, "sync_jvm")
    source = Source(mariadb, random.Random(5))
    source.create("sync_jvm", "t")
    source.write(10)
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    conf = [f"--mysql-conf={k}={v}" for k, v in mysql_conf(mariadb, "sync_jvm").items()]
    command = ["sync", "mysql-database", "--warehouse", warehouse.path, "--database", "ods", *conf]
    run = Run(tmp_path, command, {})
    run.until(lambda: equal(source, warehouse))
    for pid in run.tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.name() == "java":
                process.kill()
    source.write(10)
    run.until(lambda: equal(source, warehouse))
    assert "Spark's JVM has died" in run.err
    run.signal(signal.SIGTERM)
    assert run.wait().code == 0
