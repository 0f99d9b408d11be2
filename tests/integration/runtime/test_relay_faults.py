"""A pipeline over MySQL: the server restarts, the driver is killed, the binlog is reset."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.integration.conftest import Installed
from tests.integration.runtime.concurrent_steps import ConcurrentSteps
from tests.integration.runtime.conftest import Shop
from tests.integration.runtime.test_one_reader import TABLES, change, equal, logs, script
from tests.mysql_server import Server

from streamhouse.demo.mariadb import MariaDB


class Changes(ConcurrentSteps):
    """Random transactions over all tables, until the `with` ends."""

    def __init__(self, server: MariaDB, seed: int) -> None:
        super().__init__()
        self._server = server
        self._chance = random.Random(seed)

    def step(self) -> None:
        change(self._server, self._chance, 5)


def written(log: Path) -> int:
    """How many bytes have been written into a relay log's files that are still there."""
    sizes = []
    for path in log.glob("*@*"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return sum(sizes)


@pytest.fixture
def server(installed: Installed, tmp_path: Path) -> MariaDB:
    return Server(installed(tmp_path / "own"))


def test_restart_kill_and_reset_under_a_pipeline(shop: Shop, server: MariaDB) -> None:
    with server:
        server.execute("CREATE DATABASE one_reader", "USE one_reader")
        for table in TABLES:
            server.execute(
                f"CREATE TABLE one_reader.{table} (id INT PRIMARY KEY, name VARCHAR(30), v INT)"
            )
        change(server, random.Random(1), 30)
        run = shop.start(script(server), spark=False)
        run.until(lambda: equal(shop, server))
        (log,) = logs(shop)
        server.stop()
        server.start()
        change(server, random.Random(2), 30)
        run.until(lambda: equal(shop, server))
        assert logs(shop) == [log]
        with Changes(server, 3):
            size = written(log)
            run.until(lambda: written(log) > size + 10_000)
            run.kill()
        assert logs(shop) == [log]
        run = shop.start(script(server), spark=False)
        run.until(lambda: equal(shop, server))
        assert len(logs(shop)) == 1 and logs(shop) != [log]
        # Its position is then in a file that a new binlog does not have.
        server.execute("FLUSH BINARY LOGS")
        change(server, random.Random(4), 10)
        run.until(lambda: equal(shop, server))
        server.execute("RESET MASTER")
        ended = run.wait()
        assert (ended.code, len(ended.err.splitlines())) == (1, 1), ended.err
        assert "it was reset" in ended.err and "one_reader.agent" in ended.err
        assert logs(shop) == []
