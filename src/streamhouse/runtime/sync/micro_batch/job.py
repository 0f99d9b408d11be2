"""The job of a sync for Spark; see `runtime.streaming.spark_data_source.Job`.

Its planner plans the batches: their offsets, and which task writes which tables.

An offset is `{"batch", "now", "of", "source"}`: the number of the batch that ends there, its
time (epoch ms), what the offsets belong to, and the `DatabaseProgress`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.sync_tables_planner import SyncTablesPlanner
from streamhouse.connectors.mysql_cdc.database.table_part import TablePart, key_group_count
from streamhouse.connectors.mysql_cdc.database.tables.table_sets import TableSets
from streamhouse.runtime.state.batch_logs import next_batch
from streamhouse.runtime.sync.evolution import SchemaEvolution
from streamhouse.runtime.sync.micro_batch.spec import SyncSpec, SyncTaskInput
from streamhouse.runtime.sync.micro_batch.unread_targets import UnreadTargets
from streamhouse.runtime.sync.schema_changes import AddedColumns
from streamhouse.source import Offset


def planner(spec: SyncSpec, folder: Path) -> SyncPlanner:
    """The planner of a sync; on the driver."""
    return SyncPlanner(spec)


def run(spec: SyncSpec, task: SyncTaskInput) -> Iterator[pa.RecordBatch]:
    """Run a task; on executors."""
    # The driver's planner does not need it.
    from streamhouse.runtime.sync.micro_batch.task import SyncTask

    return SyncTask(spec, task).run()


_SEVERAL_TASKS_FROM = 4
"""From this number of chunks or of changed tables on, a batch has several tasks."""
_MOST_DIVIDED = 16
"""With more changed tables than this, tasks have whole tables."""


class SyncPlanner:
    """Plans the batches of one sync; in a Python process of the driver."""

    def __init__(self, spec: SyncSpec) -> None:
        self._spec = spec
        self._table_sets = TableSets(spec.checkpoint)
        self._unread = UnreadTargets(spec.checkpoint)
        self._tables_planner = SyncTablesPlanner(
            spec.options.mysql,
            spec.options.tables,
            spec.checkpoint,
            spec.relay,
            SchemaEvolution(spec.options, AddedColumns(spec.checkpoint), spec.query_id),
            spec.options.skips_snapshot,
        )

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end offset of the next batch; `start` if there is nothing to read."""
        before = start.get("source", {})
        self._tables_planner.unread(self._unread.of(int(start.get("batch", -1))))
        after = self._tables_planner.latest_offset(before)
        if after == before:
            return start
        return {
            "batch": next_batch(start),
            "now": max(time.time_ns() // 1_000_000, int(start.get("now", 0)) + 1),
            "of": self._spec.options.origin,
            "source": after,
        }

    def tasks(self, start: Offset, end: Offset) -> list[SyncTaskInput]:
        """The tasks of a batch; at least one."""
        if start == end:
            return []
        parts = self._tables_planner.parts(start.get("source", {}), end["source"])
        zone = self._table_sets.get(int(end["source"]["tables"])).zone
        zone = end["source"].get("zone", zone)
        groups = self._groups(parts, self._key_group_count(start, end))
        return [
            SyncTaskInput(number, start, end, tuple(group), self._tables_planner.server, zone)
            for number, group in enumerate(groups)
        ]

    def committed(self, end: Offset) -> None:
        pass

    def close(self) -> None:
        self._tables_planner.close()

    def _key_group_count(self, start: Offset, end: Offset) -> int:
        """Into how many key groups the changes of one table are divided."""
        before = DatabaseProgress.from_offset(start.get("source", {}))
        after = DatabaseProgress.from_offset(end["source"])
        if before is None or after is None:
            return 1
        return key_group_count(before.position, after.position, self._spec.parallelism)

    def _groups(self, parts: Sequence[TablePart], key_groups: int) -> list[list[TablePart]]:
        """The parts by task: all of a target in the same one, which keeps the order of changes.

        If few targets have many changes, each of `key_groups` tasks gets a key group.
        """
        targets: dict[str, list[TablePart]] = {}
        for part in parts:
            targets.setdefault(part.table.target, []).append(part)
        divided: list[list[TablePart]] = []
        if key_groups > 1 and len(targets) <= _MOST_DIVIDED:
            for name in [name for name, own in targets.items() if self._keeps_keys(own)]:
                divided.append(targets.pop(name)[0].divided(key_groups))
        work = {name: sum(1 + len(part.chunks) for part in own) for name, own in targets.items()}
        count = 1 if sum(work.values()) < _SEVERAL_TASKS_FROM else self._spec.parallelism
        count = max(1, min(count, len(targets)), key_groups if divided else 1)
        groups: list[list[TablePart]] = [[] for _ in range(count)]
        loads = [0] * count
        for own in divided:
            for at, part in enumerate(own):
                groups[at].append(part)
        for name in sorted(targets, key=lambda name: -work[name]):
            at = loads.index(min(loads))
            groups[at] += targets[name]
            loads[at] += work[name]
        return groups

    def _keeps_keys(self, parts: Sequence[TablePart]) -> bool:
        """Whether all rows of a key of the target are changes of one key of its only table."""
        if len(parts) != 1 or parts[0].changes is None:
            return False
        table = parts[0].table
        target = self._spec.address(table.target).open()
        key = {column.name for column in table.definition.key}
        return target.bucket > 0 and key <= set(target.primary_key)
