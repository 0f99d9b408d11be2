"""Servers of the integration tests, started once a session."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamhouse.demo.mariadb import MariaDB

Installed = Callable[[Path], Path]
"""Makes a folder, which a server that is started on it need not fill first; gives it back."""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The first data of a private MariaDB, made once and copied: making them takes seconds."""
    first = tmp_path_factory.mktemp("installed")
    MariaDB(first)._install()

    def copied(folder: Path) -> Path:
        shutil.copytree(first, folder, dirs_exist_ok=True)
        return folder

    return copied


@pytest.fixture(scope="session")
def mariadb(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """One private MariaDB for all tests; each test makes a database of its own."""
    with MariaDB(installed(tmp_path_factory.mktemp("mariadb"))) as server:
        yield server
