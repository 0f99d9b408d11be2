"""Consumers of a sync's tables: written when their position moves, and not without need."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import DataLossError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.sync import commit
from streamhouse.runtime.sync.commit import SyncHolds
from streamhouse.sql.plan import Column

QUERY = "abcdef0123456789"


def write(options: dict[str, str], commit: int, user: str = QUERY) -> None:
    writer = TableWriter(options, "d.t", user)
    writer.write(pa.record_batch({"id": pa.array([commit], pa.int32())}))
    TableCommitter(options, "d.t", user).commit(commit, writer.prepare(commit))
    writer.close()


def test_a_consumer_is_written_before_a_commit_only_if_it_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "MOVE_S", 0.0)
    options = {"warehouse": str(tmp_path / "lake")}
    warehouse = Warehouse(options)
    warehouse.create_database("d")
    warehouse.create_table("d", "t", (Column("id", "INT"),), options={"bucket": "-1"})
    consumers, consumer = Consumers(warehouse.table("d.t")), query_consumer(QUERY)
    spec: Any = SimpleNamespace(
        query_id=QUERY,
        options=SimpleNamespace(address=lambda target: TableAddress(options, target)),
    )
    checkpoint: Any = SimpleNamespace(path=tmp_path)
    progress: Any = SimpleNamespace(replayed=True)
    holds = SyncHolds(spec, checkpoint, progress)
    holds.add(["d.t"])
    file = tmp_path / "lake" / "d.db" / "t" / "consumer" / f"consumer-{consumer}"
    os.utime(file, (1, 1))
    holds.before_commit(["d.t"])
    write(options, 1)
    holds.before_commit(["d.t"])  # Still snapshot 1, which the batch has made.
    assert consumers.refreshed_s(consumer) == 1
    write(options, 2)
    holds.before_commit(["d.t"])
    held = consumers.get(consumer)
    assert held is not None
    assert held.next_snapshot == 2
    assert consumers.refreshed_s(consumer) != 1


@pytest.mark.parametrize("committed", [False, True], ids=["without a commit", "with a commit"])
@pytest.mark.parametrize("expired", [0, 1], ids=["no snapshot expired", "a snapshot expired"])
@pytest.mark.parametrize("logged", [-1, 1], ids=["logged before", "logged after"])
def test_the_first_position_after_an_interrupted_batch(
    tmp_path: Path, committed: bool, expired: int, logged: int
) -> None:
    """It is before the batch's commit; unknown only if that commit may have expired."""
    options = {"warehouse": str(tmp_path / "lake")}
    warehouse = Warehouse(options)
    warehouse.create_database("d")
    warehouse.create_table("d", "t", (Column("id", "INT"),), options={"bucket": "-1"})
    for number in range(3):
        write(options, number, "another")
    if committed:
        write(options, 0)
    table = warehouse.table("d.t")
    oldest = table.snapshot(1 + expired).time_ms / 1000
    for snapshot in range(1, 1 + expired):
        (tmp_path / "lake/d.db/t/snapshot" / f"snapshot-{snapshot}").unlink()
    (tmp_path / "lake/d.db/t/snapshot/EARLIEST").write_text(str(1 + expired))
    logs = SimpleNamespace(last_logged=lambda: 0, logged_s=lambda number: oldest + logged)
    spec: Any = SimpleNamespace(
        query_id=QUERY,
        options=SimpleNamespace(address=lambda target: TableAddress(options, target)),
    )
    checkpoint: Any = SimpleNamespace(path=tmp_path, logs=logs)
    progress: Any = SimpleNamespace(replayed=False)
    holds = SyncHolds(spec, checkpoint, progress)
    if expired and not committed and logged < 0:
        with pytest.raises(DataLossError, match="unknown whether it was written.*--from-scratch"):
            holds.add(["d.t"], replayed=False)
        return
    holds.add(["d.t"], replayed=False)
    held = Consumers(warehouse.table("d.t")).get(query_consumer(QUERY))
    assert held is not None
    assert held.next_snapshot == (4 if committed else 3)
