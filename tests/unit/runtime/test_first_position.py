"""Where a new consumer of a query begins at a table that the query writes."""

from __future__ import annotations

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
from streamhouse.runtime.state.retention_holds import HeldTables, RetentionHolds
from streamhouse.sql.plan import Column

QUERY = "abcdef0123456789"


def write(options: dict[str, str], commit: int, user: str = QUERY) -> None:
    writer = TableWriter(options, "d.t", user)
    writer.write(pa.record_batch({"id": pa.array([commit], pa.int32())}))
    TableCommitter(options, "d.t", user).commit(commit, writer.prepare(commit))
    writer.close()


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
    checkpoint: Any = SimpleNamespace(path=tmp_path, logs=logs)
    progress: Any = SimpleNamespace(replayed=False)
    held = HeldTables([TableAddress(options, "d.t")])
    holds = RetentionHolds(QUERY, held, checkpoint, progress)
    if expired and not committed and logged < 0:
        with pytest.raises(DataLossError, match="unknown whether it was written.*--from-scratch"):
            holds.prepare()
        return
    holds.prepare()
    consumer = Consumers(warehouse.table("d.t")).get(query_consumer(QUERY))
    assert consumer is not None
    assert consumer.next_snapshot == (4 if committed else 3)
