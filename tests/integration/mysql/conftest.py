"""Fixtures of the change data capture tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.mysql.history import Database

from streamhouse.demo.mariadb import MariaDB


@pytest.fixture
def database(mariadb: MariaDB) -> Iterator[Database]:
    """A fresh database on the shared server."""
    database = Database(mariadb)
    yield database
    database.close()
