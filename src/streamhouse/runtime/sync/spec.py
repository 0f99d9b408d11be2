"""The specification of a sync, and the parts of a batch that each of its tasks reads; picklable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from streamhouse.connectors.mysql_cdc.database.part_reader import TablePart, key_group_count
from streamhouse.mysql.position import position_of
from streamhouse.mysql.table import Server
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.source import Offset

_SEVERAL_TASKS_FROM = 4
"""From this number of chunks or of changed tables on, a batch has several tasks."""
_MOST_DIVIDED = 16
"""With more changed tables than this, tasks have whole tables."""


@dataclass(frozen=True)
class SyncSpec:
    """One sync: its options, its checkpoint, its server, and the folder of its relay log, if any.

    `query_id` is the id of the checkpoint and the commit user of all commits.
    """

    query_id: str
    options: SyncOptions
    checkpoint: Path
    server: Server
    parallelism: int
    relay: Path | None = None
    max_rows: int | None = None
    planner: ClassVar[str] = "streamhouse.runtime.sync.planner:SyncPlanner"
    task: ClassVar[str] = "streamhouse.runtime.sync.task:run"

    @property
    def retried_in(self) -> Mapping[str, str]:
        return self.options.warehouse


@dataclass(frozen=True)
class SyncTaskInput(TaskInput):
    """The tables that a task of a sync reads.

    It is the only writer of a target in the batch, or of its part's key group.
    """

    parts: tuple[TablePart, ...]
    zone: str


def task_groups(
    spec: SyncSpec, parts: Sequence[TablePart], start: Offset, end: Offset
) -> list[list[TablePart]]:
    """The parts of a batch by task: all of a target in the same one, which keeps their order.

    If few targets have many changes, each task gets a key group.
    """
    begin, until = position_of(start.get("source", {})), position_of(end["source"])
    key_groups = 1
    if begin is not None and until is not None:
        key_groups = key_group_count(begin, until, spec.parallelism)
    targets: dict[str, list[TablePart]] = {}
    for part in parts:
        targets.setdefault(part.table.target, []).append(part)
    divided: list[list[TablePart]] = []
    if key_groups > 1 and len(targets) <= _MOST_DIVIDED:
        for name in [name for name, own in targets.items() if _keeps_keys(spec, own)]:
            divided.append(targets.pop(name)[0].divided(key_groups))
    work = {name: sum(1 + len(part.chunks) for part in own) for name, own in targets.items()}
    count = 1 if sum(work.values()) < _SEVERAL_TASKS_FROM else spec.parallelism
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


def _keeps_keys(spec: SyncSpec, parts: Sequence[TablePart]) -> bool:
    """Whether all rows of a key of the target are changes of one key of its only table."""
    if len(parts) != 1 or parts[0].changes is None:
        return False
    table = parts[0].table
    target = spec.options.address(table.target).open()
    key = {column.name for column in table.definition.key}
    return target.bucket > 0 and key <= set(target.primary_key)
