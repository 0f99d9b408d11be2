"""Catching up with a long binlog: several tasks divide it, and the relay log waits for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.mysql.history import (
    Database,
    apply,
    catch_up,
    position,
    reached,
    rows_of,
)
from tests.waiting import looks

from streamhouse.connectors.mysql_cdc.change_reader import log_view
from streamhouse.connectors.mysql_cdc.database import part_reader
from streamhouse.connectors.mysql_cdc.relay import relay as relay_module
from streamhouse.connectors.mysql_cdc.relay.files import held_bytes
from streamhouse.demo.mariadb import MariaDB

CREATE = "CREATE TABLE t (id INT, part VARCHAR(5), n INT, note TEXT, PRIMARY KEY (id, part))"
MOST_BYTES = 1_000_000


@pytest.fixture
def database(mariadb: MariaDB) -> Iterator[Database]:
    made = Database(mariadb)
    made.run(CREATE)
    yield made
    made.close()


def change(database: Database, seed: int, statements: int) -> None:
    """Random changes of few keys: of many rows and of one, also of the key."""
    draw = random.Random(seed)
    texts = []
    for n in range(statements):
        key = f"id = {draw.randrange(30)} AND part = '{draw.choice('abc')}'"
        texts.append(
            draw.choice(
                [
                    f"INSERT IGNORE INTO t SELECT seq, '{draw.choice('abc')}', {n}, "
                    f"REPEAT('x', {draw.randrange(300)}) FROM seq_0_to_29",
                    f"UPDATE t SET n = {n} WHERE {key}",
                    f"UPDATE t SET n = {n}, note = NULL WHERE id < {draw.randrange(30)}",
                    f"UPDATE IGNORE t SET part = '{draw.choice('abc')}', n = {n} WHERE {key}",
                    f"DELETE FROM t WHERE {key}",
                ]
            )
        )
    database.run(*texts)


def table(database: Database) -> list[tuple[Any, ...]]:
    return sorted(database.run("SELECT * FROM t"))


@pytest.mark.parametrize("relayed", [False, True])
def test_each_key_is_in_one_key_group_and_in_order(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relayed: bool
) -> None:
    if relayed:
        database.relay(tmp_path, "t")
    source = database.source("t", relay=tmp_path if relayed else None)
    offset, _ = catch_up(source, source.initial_offset())
    change(database, 5, 400)
    end = reached(source, database, offset)
    monkeypatch.setattr(part_reader, "DIVIDED_BYTES", 1)
    parts = source.partitions(offset, end, 3)
    assert len(parts) == 3
    groups = [[row for batch in source.read(part) for row in batch.to_pylist()] for part in parts]
    found = []
    for rows in groups:
        state: dict[tuple[Any, ...], dict[str, Any]] = {}
        # Each change must fit the rows before it.
        apply(state, rows, ["id", "part"])
        assert state
        found += [tuple(row.values()) for row in state.values()]
    assert sorted(found) == table(database)
    assert sum(map(len, groups)) == len(rows_of(source, offset, end))


def test_a_short_range_is_one_part(database: Database) -> None:
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    change(database, 6, 20)
    end = source.latest_offset(offset)
    assert len(source.partitions(offset, end, 4)) == 1


def test_the_relay_log_waits_for_queries_that_are_all_behind(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "_FULL_S", 0.001)
    before = database.source("t")
    offset, _ = catch_up(before, before.initial_offset())
    start = position(offset)
    for number in range(20):
        database.run(
            f"INSERT INTO t SELECT seq, 'a', {number}, REPEAT('x', 2000) FROM seq_1_to_200 "
            f"ON DUPLICATE KEY UPDATE n = {number}, note = REPEAT('y', 2000)"
        )
        change(database, number, 5)
    relay = database.relay(tmp_path, "t", resume_positions=[start], most_bytes=MOST_BYTES)
    source = database.source("t", relay=tmp_path)
    view = log_view(tmp_path)
    assert view is not None and view.begin() == start
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    batches, from_log, most = 0, 0, 0
    for _ in looks():
        if source.caught_up(offset):
            break
        assert relay.error is None
        end = source.latest_offset(offset)
        if end == offset:
            continue
        # While the relay waits, all that is read is in the log. Later it drops what is too much.
        begin = view.begin()
        if relay._waits_until:
            from_log += 1
            assert begin is not None and begin <= position(offset)
        apply(state, rows_of(source, offset, end), ["id", "part"])
        offset = end
        batches += 1
        most = max(most, held_bytes(tmp_path))
        relay.needed_from(position(offset))
    assert sorted(tuple(row.values()) for row in state.values()) == table(database)
    # It waited, but for a network block and a transaction; the binlog has ten times as much.
    assert batches >= from_log > 3 and most < 3 * MOST_BYTES
