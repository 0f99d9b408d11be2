"""Consumers of a query hold the snapshots that a replayed batch needs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.runtime.test_batch_planner import ID, QUERY

from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import DataLossError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumers import Consumers
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.query_description import QueryProgress
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state import retention_holds
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.state.retention_holds import HeldTables, RetentionHolds
from streamhouse.sql.plan import LookupJoin, TableInfo


class World:
    """A query over real tables, and the checkpoint that Spark would keep of it."""

    def __init__(self, folder: Path) -> None:
        self.options = {"warehouse": str(folder / "lake")}
        warehouse = Warehouse(self.options)
        warehouse.create_database("d")
        for name in ("src", "dim", "out"):
            warehouse.create_table("d", name, ID, options={"bucket": "-1"})
        self.checkpoint = Checkpoint(folder / "checkpoints", "p", "d.out")
        self.checkpoint.acquire()
        self.query_id = self.checkpoint.query_id()
        self.commits = 0
        info = TableInfo(("c", "d", "dim"), ID)
        lookup = LookupJoin(info, "dim_0", ("id",), ("id",), False)
        query = replace(QUERY, lookups=(lookup,))
        source = SourceSpec("paimon", {}, ID, self.address("src"))
        spec = QuerySpec(query, source, (self.address("dim"),), self.address("out"), "", 1)
        self.spec = replace(spec, query_id=self.query_id)

    def address(self, name: str) -> TableAddress:
        return TableAddress(self.options, f"d.{name}")

    def write(self, name: str, user: str = "somebody", identifier: int | None = None) -> int:
        """Commit a row; the snapshot."""
        self.commits += 1
        number = self.commits if identifier is None else identifier
        table = self.address(name).open()
        writer = TableWriter(self.options, table.identifier, user)
        writer.write(_row())
        messages = writer.prepare(number)
        writer.close()
        assert TableCommitter(self.options, table.identifier, user).commit(number, messages)
        return table.latest_snapshot_id() or 0

    def offset(self, batch: int, source: int, dim: int) -> dict[str, Any]:
        return {
            "batch": batch,
            "now": 0,
            "source": {"snapshot": source},
            "dims": {"dim_0": dim},
            "pending": 0,
        }

    def log(self, folder: str, number: int, offset: dict[str, Any] | None = None) -> None:
        path = self.checkpoint.path / folder
        path.mkdir(exist_ok=True)
        (path / str(number)).write_text("v1\n{}\n" + json.dumps(offset))

    def holds(self) -> RetentionHolds:
        logs = self.checkpoint.logs
        self.progress = QueryProgress({}, logs.last_logged() <= logs.last_committed())
        source = self.spec.source.open()
        tables = HeldTables.of(self.spec, source)
        return RetentionHolds(self.query_id, tables, self.checkpoint, self.progress)

    def at(self, name: str) -> int | None:
        one = Consumers(self.address(name).open()).get(f"streamhouse-{self.query_id}")
        return None if one is None else one.next_snapshot


def _row() -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([{"id": 1}], schema=pa.schema([("id", pa.int32())]))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(retention_holds, "EVERY_S", 0.0)
    made = World(tmp_path)
    yield made
    made.checkpoint.release()


def test_a_new_query_holds_what_is_there_now(world: World) -> None:
    for name in ("src", "src", "dim", "dim", "dim"):
        world.write(name)
    query = world.holds()
    query.prepare()
    assert (world.at("src"), world.at("dim"), world.at("out")) == (2, 3, 1)
    assert world.progress.replayed


def test_each_batch_holds_what_the_one_before_it_ended_at(world: World) -> None:
    query = world.holds()
    query.prepare()
    for number in range(1, 4):
        world.write("src")
        world.write("dim")
        world.write("out")
        world.log("offsets", number, world.offset(number, source=number, dim=number))
        world.log("commits", number)
        world.log("offsets", number + 1, world.offset(number + 1, source=9, dim=9))
        query.batch_begins()
        world.write("out")
        query.tick()
        held = (world.at("src"), world.at("dim"), world.at("out"))
        assert held == (number, number, 2 * number - 1)


def test_nothing_moves_before_a_cut_off_batch_is_done(world: World) -> None:
    for _ in range(3):
        world.write("src")
        world.write("dim")
    world.log("offsets", 0, world.offset(0, source=1, dim=1))
    world.log("commits", 0)
    world.log("offsets", 1, world.offset(1, source=2, dim=2))
    own = world.write("out", world.query_id, 0)
    query = world.holds()
    query.prepare()
    assert not world.progress.replayed
    world.write("out", world.query_id, 1)
    world.write("out")
    query.tick()
    query.batch_begins()
    query.tick()
    assert (world.at("src"), world.at("dim"), world.at("out")) == (1, 1, own)
    world.progress.committed({"source": {}})
    world.log("commits", 1)
    world.log("offsets", 2, world.offset(2, source=3, dim=3))
    query.batch_begins()
    query.tick()
    assert (world.at("src"), world.at("dim"), world.at("out")) == (2, 2, 3)


def test_an_idle_query_lets_go_of_others_snapshots(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("src")
    world.log("offsets", 0, world.offset(0, source=1, dim=1))
    world.log("commits", 0)
    query = world.holds()
    query.prepare()
    for _ in range(4):
        world.write("dim")
        world.write("out")
    query.tick()
    # What it writes at once; what it looks up only after some time, as a batch may be planned.
    assert (world.at("src"), world.at("dim"), world.at("out")) == (1, 1, 4)
    monkeypatch.setattr(retention_holds, "GRACE_S", 0.0)
    query.tick()
    assert world.at("dim") == 4
    world.log("offsets", 1, world.offset(1, source=2, dim=4))
    world.write("dim")
    world.write("out")
    query.tick()
    query.tick()
    assert (world.at("dim"), world.at("out")) == (4, 4)


def test_showing_that_the_query_lives_does_not_put_off_going_forward(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(retention_holds, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(retention_holds, "EVERY_S", 5.0)
    query = world.holds()
    query.prepare()
    for number in range(3):
        world.log("offsets", number, world.offset(number, source=1, dim=0))
        world.write("out")
        now[0] += 1.0
        query.batch_begins()
        now[0] += 5.0
        query.tick()
        world.log("commits", number)
    assert world.at("out") == 3


def test_a_batch_in_flight_keeps_idle_positions_where_they_are(world: World) -> None:
    query = world.holds()
    query.prepare()
    world.log("offsets", 0, world.offset(0, source=1, dim=0))
    world.write("out", world.query_id, 0)
    world.write("out")
    query.tick()
    assert world.at("out") == 1


def test_a_commit_whose_record_has_expired_is_an_error(world: World) -> None:
    for number in range(4):
        world.write("out", world.query_id, number)
    world.log("offsets", 3, world.offset(3, source=0, dim=0))
    world.log("commits", 2)
    ago = time.time() - 3600
    os.utime(world.checkpoint.path / "offsets" / "3", (ago, ago))
    query = world.holds()
    query.prepare()
    assert world.at("out") == 4

    Consumers(world.address("out").open()).drop(f"streamhouse-{world.query_id}")
    for _ in range(2):
        world.write("out")
    snapshots = Path(world.address("out").open().location) / "snapshot"
    for number in range(1, 5):
        (snapshots / f"snapshot-{number}").unlink()
    with pytest.raises(DataLossError, match="batch 3 .* snapshots 5 to 6 are left"):
        world.holds().prepare()

    # It was planned after what is left was committed: no commit of it can have expired.
    os.utime(world.checkpoint.path / "offsets" / "3")
    world.holds().prepare()
    assert world.at("out") == 6


def test_the_joined_version_is_held_while_the_next_one_loads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lookup,) = world.spec.query.lookups
    lookup = replace(lookup, options={"lookup.refresh.async": "true"})
    world.spec = replace(world.spec, query=replace(world.spec.query, lookups=(lookup,)))
    for _ in range(3):
        world.write("dim")
    before = {**world.offset(0, source=1, dim=2), "coming": {"dim_0": {"snapshot": 3}}}
    world.log("offsets", 0, before)
    world.log("commits", 0)
    query = world.holds()
    query.prepare()
    assert world.at("dim") == 2
    monkeypatch.setattr(retention_holds, "GRACE_S", 0.0)
    world.write("dim")
    for _ in range(3):
        query.tick()
    assert world.at("dim") == 2
    world.log("offsets", 1, world.offset(1, source=1, dim=3))
    query.tick()
    assert world.at("dim") == 2
    world.log("commits", 1)
    query.tick()
    assert world.at("dim") == 3


def test_nothing_moves_while_the_first_batch_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been planned long ago, with the snapshots of that time."""
    monkeypatch.setattr(retention_holds, "GRACE_S", 0.0)
    for name in ("src", "dim"):
        world.write(name)
    query = world.holds()
    query.prepare()
    world.log("offsets", 0, world.offset(0, source=1, dim=1))
    query.batch_begins()
    for _ in range(3):
        for name in ("src", "dim", "out"):
            world.write(name)
        query.tick()
    assert (world.at("src"), world.at("dim"), world.at("out")) == (1, 1, 1)
