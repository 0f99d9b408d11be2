"""Consumers of a sync's tables: written when their position moves, and not without need."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.sync.micro_batch import sync_holds
from streamhouse.runtime.sync.micro_batch.sync_holds import SyncHolds
from streamhouse.sql.plan import Column

QUERY = "abcdef0123456789"


def write(options: dict[str, str], commit: int) -> None:
    writer = TableWriter(options, "d.t", QUERY)
    writer.write(pa.record_batch({"id": pa.array([commit], pa.int32())}))
    TableCommitter(options, "d.t", QUERY).commit(commit, writer.prepare(commit))
    writer.close()


def test_a_consumer_is_written_before_a_commit_only_if_it_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_holds, "MOVE_S", 0.0)
    options = {"warehouse": str(tmp_path / "lake")}
    warehouse = Warehouse(options)
    warehouse.create_database("d")
    warehouse.create_table("d", "t", (Column("id", "INT"),), options={"bucket": "-1"})
    consumers, consumer = Consumers(warehouse.table("d.t")), query_consumer(QUERY)
    spec: Any = SimpleNamespace(
        query_id=QUERY, address=lambda target: TableAddress(options, target)
    )
    checkpoint: Any = SimpleNamespace(path=tmp_path)
    holds = SyncHolds(spec, checkpoint)
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
