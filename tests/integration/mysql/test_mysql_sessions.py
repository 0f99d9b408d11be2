"""Random sessions with XA, savepoints and restarts: the rows that are read equal the table.

`STREAMHOUSE_SESSIONS_STEPS` (default: 20000) and `STREAMHOUSE_SESSIONS_SEED` choose the run.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database, apply, catch_up, rows_of
from tests.integration.mysql.sessions import TABLES, Sessions
from tests.mysql_server import Server

from streamhouse.connectors.mysql_cdc.relay.relay import Relay
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.mysql.position import BinlogPosition


class Reader:
    """A stream whose source is new now and then, and goes on from the offset's JSON."""

    def __init__(self, database: Database, chance: random.Random, folder: Path | None) -> None:
        self._database, self._chance, self._folder = database, chance, folder
        self._relays = 0
        self._relay: Relay | None = None
        self._relay_folder: Path | None = None
        self._source: MySqlSource | None = None
        self._sources: list[MySqlSource] = []
        self.state: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.offset: dict[str, Any] = {}

    def step(self, most: int | None = None) -> bool:
        """Read one batch; whether there was one."""
        source = self._opened()
        end = source.latest_offset(self.offset, most)
        rows = rows_of(source, self.offset, end, self._chance.choice([1, 2]))
        if self._chance.random() < 0.3:
            again = rows_of(self._new(), self.offset, end)
            assert sorted(map(str, again)) == sorted(map(str, rows)), "a replay gave other rows"
        apply(self.state, rows, ["id"])
        moved = end != self.offset
        self.offset = json.loads(json.dumps(end))
        return moved

    def stop(self) -> None:
        """End the process, as it were; its relay log is gone, too."""
        for source in self._sources:
            source.close()
        self._source, self._sources = None, []
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def finish(self) -> None:
        self.offset, rows = catch_up(self._opened(), self.offset)
        apply(self.state, rows, ["id"])

    def _opened(self) -> MySqlSource:
        if self._source is None:
            if self._folder is not None:
                self._start_relay(self._folder)
            self._source = self._new()
            self.offset = self.offset or self._source.initial_offset()
        return self._source

    def _new(self) -> MySqlSource:
        options = {"scan.incremental.snapshot.chunk.size": "9"}
        source = self._database.source("t", options=options, relay=self._relay_folder)
        self._sources.append(source)
        return source

    def _start_relay(self, folder: Path) -> None:
        self._relays += 1
        self._relay_folder = folder / str(self._relays)
        self._relay_folder.mkdir()
        known = "file" in self.offset and self._chance.random() < 0.7
        resume = BinlogPosition(self.offset["file"], self.offset["pos"]) if known else None
        self._relay = self._database.relay(
            self._relay_folder, "t", resume_positions=[resume, None], most_bytes=40_000
        )


_COMPRESSED = ("--log-bin-compress=ON", "--log-bin-compress-min-len=10")


@pytest.fixture(params=[False, True], ids=["plain", "compressed"])
def database(
    request: pytest.FixtureRequest, installed: Installed, tmp_path: Path
) -> Iterator[Database]:
    options = _COMPRESSED if request.param else ()
    with Server(installed(tmp_path / "own"), server_options=options) as server:
        made = Database(server)
        made.run(*TABLES)
        yield made
        files = [row[0] for row in made.run("SHOW BINARY LOGS")]
        kinds = {row[2] for file in files for row in made.run(f"SHOW BINLOG EVENTS IN '{file}'")}
        compressed = not kinds.isdisjoint({"Query_compressed", "Transaction_payload"})
        assert compressed == request.param, kinds
        made.close()


def run(database: Database, seed: int, folder: Path | None, steps: int) -> None:
    chance = random.Random(seed)
    sessions = Sessions(database, chance)
    # A stream does not begin while a transaction is prepared that is not in the binlog.
    sessions.logs_all = True
    for _ in range(chance.randrange(200)):
        sessions.step()
    reader = Reader(database, chance, folder)
    reader.step(chance.choice([None, 2, 10]))
    sessions.logs_all = False
    for _ in range(steps):
        kind = chance.random()
        if kind < 0.1:
            reader.step(chance.choice([None, 2, 10]))
        elif kind < 0.12:
            reader.stop()
        elif kind < 0.13:
            database.run("FLUSH BINARY LOGS")
        elif kind < 0.133:
            sessions.restart(crash=chance.random() < 0.5)
        else:
            sessions.step()
    sessions.finish()
    reader.finish()
    expected = {(row[0],): {"id": row[0], "v": row[1]} for row in database.run("SELECT * FROM t")}
    assert expected
    assert reader.state == expected
    assert "prepared" not in reader.offset


@pytest.mark.parametrize("relayed", [False, True], ids=["alone", "relayed"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_the_rows_read_equal_the_table(
    database: Database, tmp_path: Path, seed: int, relayed: bool
) -> None:
    folder = tmp_path / "relays"
    folder.mkdir()
    run(database, seed, folder if relayed else None, 800)


@pytest.mark.soak
@pytest.mark.parametrize("relayed", [False, True], ids=["alone", "relayed"])
def test_the_rows_read_equal_the_table_for_long(
    database: Database, tmp_path: Path, relayed: bool
) -> None:
    folder = tmp_path / "relays"
    folder.mkdir()
    steps = int(os.environ.get("STREAMHOUSE_SESSIONS_STEPS", "20000"))
    seed = int(os.environ.get("STREAMHOUSE_SESSIONS_SEED", str(int(time.time()))))
    print(f"seed {seed}")
    run(database, seed, folder if relayed else None, steps)
