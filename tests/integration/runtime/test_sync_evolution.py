"""Schema changes of MySQL that a sync follows while it runs."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.mysql.history import apply
from tests.integration.mysql.schema_changes import SchemaChanges, changing, rows_of
from tests.integration.runtime.test_sync import Sync, fresh

from streamhouse.demo.mariadb import MariaDB
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource

CONF = {"bucket": "1", "changelog-producer": "input", "snapshot.num-retained.min": "100000",
        "snapshot.num-retained.max": "100000"}  # fmt: skip


@pytest.fixture
def evolving(mariadb: MariaDB, tmp_path: Path, spark_here: None) -> Sync:
    return Sync(mariadb, tmp_path)


def columns(sync: Sync, table: str) -> dict[str, str]:
    return {column.name: column.type for column in sync.warehouse.table(table).columns}


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str([row["id"], sorted(map(str, row.items()))]))


def here(sync: Sync, table: str) -> list[dict[str, Any]]:
    """The rows in MySQL."""
    return ordered(rows_of(sync.server, table))


def there(sync: Sync, table: str) -> list[dict[str, Any]]:
    opened = sync.warehouse.table(table)
    return ordered([row for batch in opened.read() for row in batch.to_pylist()])


def replayed(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    """What all changes of a table add up to; each must fit the table before it."""
    options = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
    source = PaimonSource(warehouse.options, table, options=options)
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    key = list(warehouse.table(table).primary_key)
    offset = source.initial_offset()
    while (end := source.latest_offset(offset)) != offset:
        for piece in source.partitions(offset, end):
            for batch in source.read(piece):
                apply(state, batch.to_pylist(), key)
        offset = end
    source.close()
    return ordered(list(state.values()))


def same(sync: Sync, mysql: str, paimon: str) -> bool:
    return there(sync, paimon) == here(sync, mysql)


ALTERS = [
    "ADD COLUMN extra VARCHAR(10)",
    "ADD COLUMN first_one INT DEFAULT 7 FIRST",
    "ADD COLUMN made DATETIME(3) NOT NULL DEFAULT '2024-01-31 12:00:00' AFTER id",
    "RENAME COLUMN name TO label",
    "CHANGE v amount BIGINT NOT NULL",
    "MODIFY extra VARCHAR(40) AFTER id",
    "MODIFY amount BIGINT FIRST",
    "DROP COLUMN first_one",
    "ADD COLUMN computed INT AS (id * 2) STORED",
    "ADD COLUMN a INT, DROP COLUMN extra, ADD COLUMN b DECIMAL(6,2) DEFAULT 1.5 AFTER label",
    "DROP COLUMN a, ADD COLUMN a INT DEFAULT 3",
    "CONVERT TO CHARACTER SET latin1",
    "RENAME COLUMN a TO c, ADD COLUMN a INT",
    "DROP COLUMN made, CHANGE c made2 INT",
    "ADD COLUMN seen TIMESTAMP DEFAULT CURRENT_TIMESTAMP",
    "DROP COLUMN computed",
    "MODIFY b DECIMAL(8,2) NULL",
]


def test_alters_are_followed_while_it_runs(evolving: Sync, mariadb: MariaDB) -> None:
    sync = evolving
    fresh(mariadb, "evolve_live")
    mariadb.execute(
        "CREATE TABLE evolve_live.t (id INT PRIMARY KEY, name VARCHAR(20), v INT NOT NULL)",
        "INSERT INTO evolve_live.t VALUES (1, 'a', 10), (2, 'b', 20), (3, NULL, 30)",
    )
    with sync.running("evolve_live", table_conf=CONF) as until:
        until(lambda: sync.warehouse.exists("ods", "t"))
        until(lambda: same(sync, "evolve_live.t", "ods.t"))
        for number, alter in enumerate(ALTERS):
            mariadb.execute(f"ALTER TABLE evolve_live.t {alter}")
            v = "amount" if number >= 4 else "v"
            mariadb.execute(
                f"INSERT INTO evolve_live.t (id, {v}) VALUES ({100 + number}, {number})",
                f"UPDATE evolve_live.t SET {v} = {v} + 1 WHERE id = 1",
                f"DELETE FROM evolve_live.t WHERE id = {98 + number}",
            )
            if number % 2:
                until(lambda: same(sync, "evolve_live.t", "ods.t"))
        until(lambda: same(sync, "evolve_live.t", "ods.t"))
    assert [*columns(sync, "ods.t")] == [*here(sync, "evolve_live.t")[0]]
    assert replayed(sync.warehouse, "ods.t") == here(sync, "evolve_live.t")


@pytest.mark.parametrize(("seed", "pause_s"), [(0, 0.3), (1, 0.05)])
def test_random_schema_changes(evolving: Sync, mariadb: MariaDB, seed: int, pause_s: float) -> None:
    sync, name = evolving, f"evolve_random_{seed}"
    fresh(mariadb, name)
    changes = SchemaChanges(mariadb, name, random.Random(seed))
    with sync.running(name, table_conf=CONF, excluding_tables="_.*") as until:
        until(lambda: sync.warehouse.exists("ods", "t2"))
        with changing(changes, pause_s):
            until(lambda: len(changes.statements) > 150)
        for table in changes.tables:
            until(partial(same, sync, f"{name}.{table}", f"ods.{table}"))
    for table in changes.tables:
        assert replayed(sync.warehouse, f"ods.{table}") == here(sync, f"{name}.{table}")
        assert sorted(columns(sync, f"ods.{table}")) == sorted(changes._columns(table))
