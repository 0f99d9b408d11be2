"""The specification of a sync, as its planner and its tasks receive it; picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamhouse.connectors.mysql_cdc.database.table_part import TablePart
from streamhouse.mysql.table import Server
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.sync.options import SyncOptions


@dataclass(frozen=True)
class SyncSpec:
    """One sync: its options, its checkpoint, and the folder of its relay log.

    `query_id` is the id of the checkpoint and the commit user of all commits.
    """

    query_id: str
    options: SyncOptions
    checkpoint: Path
    relay: Path
    parallelism: int
    max_rows: int | None = None

    def address(self, target: str) -> TableAddress:
        """The address of a target, `database.table`."""
        return TableAddress(self.options.warehouse, target)

    @property
    def retried_in(self) -> Mapping[str, str]:
        return self.options.warehouse

    @property
    def planner(self) -> str:
        return "streamhouse.runtime.sync.micro_batch.job:planner"

    @property
    def task(self) -> str:
        return "streamhouse.runtime.sync.micro_batch.job:run"


@dataclass(frozen=True)
class SyncTaskInput(TaskInput):
    """The tables that a task of a sync reads.

    It is the only writer of a target in the batch, or of its part's key group.
    """

    parts: tuple[TablePart, ...]
    server: Server
    zone: str
