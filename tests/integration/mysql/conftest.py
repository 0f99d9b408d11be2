"""Fixtures of the tests of change data capture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database
from tests.mysql_server import Server

from streamhouse.demo.mariadb import MariaDB


@pytest.fixture
def database(mariadb: MariaDB) -> Iterator[Database]:
    """A fresh database on the shared server."""
    database = Database(mariadb)
    yield database
    database.close()


@pytest.fixture
def own_database(installed: Installed, tmp_path: Path) -> Iterator[Database]:
    """A database on a server of the test's own, whose binlog has nothing else."""
    with Server(installed(tmp_path / "own")) as server:
        database = Database(server)
        yield database
        database.close()
