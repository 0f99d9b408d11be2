"""A sync whose server is reset, replaced by a replica, or away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import Installed
from tests.integration.runtime.test_sync import Sync, there
from tests.mysql_server import Server

from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import DataLossError


@pytest.fixture
def server(installed: Installed, tmp_path: Path) -> Iterator[MariaDB]:
    with Server(installed(tmp_path / "own")) as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9000))",
            "INSERT INTO shop.t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        )
        yield server


def rows(server: MariaDB) -> list[tuple[object, ...]]:
    return sorted(server.execute("SELECT * FROM shop.t"))


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
