"""A query over Paimon tables that a test runs batch by batch, in its own process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.audit.recorded_batches import Batch
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.streaming.batch_planner import BatchPlanner
from streamhouse.runtime.streaming.tasks.task import run
from streamhouse.source import Offset


class BatchQuery:
    """The tables of a warehouse, and one query over them; subclasses create both."""

    def __init__(self, folder: Path) -> None:
        self._options = {"warehouse": str(folder)}
        self.warehouse = Warehouse(self._options)
        self.warehouse.create_database("default")
        self._offset: Offset = {}
        self._batches: list[Batch] = []
        self._commits = 0
        self.reports: list[dict[str, Any]] = []

    def _start(self, spec: QuerySpec) -> None:
        """Set the query, after its tables were created."""
        self.spec = spec
        self._planner = BatchPlanner(spec)

    def _address(self, name: str) -> TableAddress:
        return TableAddress(self._options, f"default.{name}")

    def _write(self, name: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
        self._commits += 1
        identifier = f"default.{name}"
        writer = TableWriter(self._options, identifier, f"test {name}")
        writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        messages = writer.prepare(self._commits)
        writer.close()
        TableCommitter(self._options, identifier, f"test {name}").commit(self._commits, messages)

    def batch(self) -> bool:
        """Run the next batch; False if there is nothing to do."""
        end = self._planner.latest_offset(self._offset)
        if end == self._offset:
            return False
        (task,) = self._planner.tasks(self._offset, end)
        messages: dict[str, list[bytes]] = {}
        for record in pa.Table.from_batches(run(self.spec, task)).to_pylist():
            if record["report"] is None:
                messages.setdefault(record["table"], []).append(record["message"])
            else:
                self.reports.append(json.loads(record["report"]))
        for table, found in messages.items():
            TableCommitter(self._options, table, "q").commit(task.batch, found)
        self._batches.append(Batch("q", task.batch, "f", self._offset, end))
        self._offset = json.loads(json.dumps(end))
        return True

    def rows(self, name: str) -> list[dict[str, Any]]:
        table = self.warehouse.table(f"default.{name}")
        return [row for batch in table.read() for row in batch.to_pylist()]
