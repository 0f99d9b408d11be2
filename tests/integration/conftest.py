"""Servers of the integration tests, started once a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamhouse.demo.mariadb import MariaDB


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """One private MariaDB for all tests; each test makes a database of its own."""
    with MariaDB(tmp_path_factory.mktemp("mariadb")) as server:
        yield server
