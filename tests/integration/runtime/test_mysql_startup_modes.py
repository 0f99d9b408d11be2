"""Each start-up mode of mysql-cdc in one script, killed within the snapshot and started again."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from tests.integration.runtime.conftest import Dying, Shop

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.source import ROW_KIND

pytestmark = pytest.mark.usefixtures("in_threads")

_TABLE = """
CREATE TEMPORARY TABLE from_{name} (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '{password}', 'database-name' = 'modes', 'table-name' = 't', {options});
CREATE TABLE IF NOT EXISTS {name} (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('bucket' = '2', 'changelog-producer' = 'input');
INSERT INTO {name} SELECT * FROM from_{name};
"""
ROWS = 30_000
CHUNKS = "'scan.incremental.snapshot.chunk.size' = '50'"
"""So that the snapshot has several batches."""


def script(server: MariaDB, modes: dict[str, str]) -> str:
    login = {"port": server.port, "user": USER, "password": PASSWORD}
    return "".join(
        _TABLE.format(name=name, options=f"{options}, {CHUNKS}", **login)
        for name, options in modes.items()
    )


def position(server: MariaDB) -> tuple[str, int]:
    file, pos, *_ = server.execute("SHOW MASTER STATUS")[0]
    return str(file), int(pos)


def startup(mode: str, **more: object) -> str:
    options = [f"'scan.startup.mode' = '{mode}'"]
    options += [f"'scan.startup.{key}' = '{value}'" for key, value in more.items()]
    return ", ".join(options)


def changed(server: MariaDB, *statements: str) -> None:
    server.execute(*statements, database="modes")


@pytest.fixture
def server(mariadb: MariaDB) -> MariaDB:
    # No DROP DATABASE: what reads the binlog from its start would have to stop there.
    # Nor may there be what other tests have written as statements.
    mariadb.execute("RESET MASTER", "CREATE DATABASE modes")
    return mariadb


def values(shop: Shop, name: str) -> dict[int, int]:
    return {row["id"]: row["v"] for row in shop.rows(name)}


def kinds(shop: Shop, name: str) -> Sequence[str]:
    """The kinds of all changes of a table, sorted."""
    source = PaimonSource({"warehouse": str(shop.path)}, f"default.{name}", ["id"])
    end = source.latest_offset({"snapshot": 0})
    return sorted(
        row[ROW_KIND]
        for partition in source.partitions({"snapshot": 0}, end)
        for batch in source.read(partition)
        for row in batch.to_pylist()
    )


def test_each_mode_starts_at_its_position_and_resumes_after_a_kill(
    shop: Shop, dying: Dying, server: MariaDB
) -> None:
    changed(
        server,
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t SELECT seq, 0 FROM seq_1_to_{ROWS}",
    )
    file, pos = position(server)
    changed(server, "UPDATE t SET v = 1 WHERE id = 1")
    time.sleep(1.1)
    (millis,) = server.execute("SELECT ROUND(UNIX_TIMESTAMP(NOW(3)) * 1000)")[0]
    changed(server, "UPDATE t SET v = 2 WHERE id = 2")
    text = script(
        server,
        {
            "initial": startup("initial"),
            "snapshot": startup("snapshot"),
            "earliest": startup("earliest-offset"),
            "latest": startup("latest-offset"),
            "specific": startup(
                "specific-offset", **{"specific-offset.file": file, "specific-offset.pos": pos}
            ),
            "timestamp": startup("timestamp", **{"timestamp-millis": int(millis)}),
        },
    )
    with dying(text, "target-committed:2:default.initial"):
        pass
    before = len(shop.rows("initial"))
    assert 6_000 <= before < ROWS
    changed(server, "UPDATE t SET v = 3 WHERE id IN (3, 29000)", "DELETE FROM t WHERE id = 4")
    shop.settle_here(text)
    table = {row[0]: row[1] for row in server.execute("SELECT * FROM modes.t")}
    assert values(shop, "initial") == table
    assert values(shop, "earliest") == table
    # Each row once, although the driver died: it resumed at the chunk.
    late = kinds(shop, "initial")
    assert late.count("+I") == ROWS or late.count("+I") == ROWS - 1
    assert late.count("-U") == late.count("+U") <= 2
    assert values(shop, "specific") == {1: 1, 2: 2, 3: 3, 29000: 3}
    assert values(shop, "timestamp") == {2: 2, 3: 3, 29000: 3}
    assert set(values(shop, "latest")) <= {3, 29000}
    assert len(values(shop, "snapshot")) in (ROWS, ROWS - 1)
