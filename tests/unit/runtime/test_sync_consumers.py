"""The consumers of a sync: one at each target, which move forward one after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.runtime.test_retention_holds import World

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.query_description import QueryProgress
from streamhouse.runtime.state import retention_holds
from streamhouse.runtime.sync import query as module
from streamhouse.runtime.sync.query import SyncQuery


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(retention_holds, "EVERY_S", 0.0)
    monkeypatch.setattr(module, "_REFRESH_S", 0.0)
    made = World(tmp_path)
    yield made
    made.checkpoint.release()


def sync(world: World) -> Any:
    """The part of a sync's query that has to do with consumers."""
    query: Any = SyncQuery.__new__(SyncQuery)
    query._options = SimpleNamespace(address=lambda name: TableAddress(world.options, name))
    query._query_id, query.checkpoint = world.query_id, world.checkpoint
    query.progress = QueryProgress({}, replayed=True)
    query._holds, query._refreshed, query._refresh_at = {}, 0, 0.0
    return query


def table(target: str) -> Any:
    return SimpleNamespace(target=target)


def test_each_target_is_held_before_the_commits_of_a_batch(world: World) -> None:
    query = sync(world)
    world.write("src")
    query._hold([table("d.src"), table("d.out"), table("d.out")], recognised=True)
    assert (world.at("src"), world.at("out"), world.at("dim")) == (1, 1, None)
    for number in range(1, 4):
        world.log("offsets", number, {"batch": number})
        query._before_commit(["d.out"])
        world.write("out")
        query._refresh_consumer()
        query._refresh_consumer()
        assert (world.at("src"), world.at("out")) == (1, max(1, number - 1))
        world.log("commits", number)
    query._refresh_consumer()
    query._refresh_consumer()
    assert (world.at("src"), world.at("out")) == (1, 3)


def test_a_target_that_joins_later_is_held_from_then_on(world: World) -> None:
    query = sync(world)
    query._hold([table("d.src")], recognised=True)
    for _ in range(3):
        world.write("out", world.query_id)
    query.progress.replayed = False
    query._hold([table("d.out")], recognised=False)
    assert world.at("out") == 3
