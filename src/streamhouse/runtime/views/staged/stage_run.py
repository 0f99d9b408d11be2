"""A task of a staged refresh: computes the stages of one level for its partition; executors.

Tasks send each other blocks of rows as rows of `RESULT`: `task` is the receiver, `report` the
number of the stage. `first_row` is the place of the block among those of its receiver: by sender,
and as that has sent it. Spark runs tasks again whose rows are lost with their executor, while other
receivers have read these rows. So they must be the same again, in the same order.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import duckdb
import pyarrow as pa

from streamhouse.duckdb_engine import BATCH_ROWS, Batches, Limits, opened
from streamhouse.errors import StreamhouseError
from streamhouse.operators.trees.recompute import MEMORY, started
from streamhouse.operators.trees.stages import Stage
from streamhouse.operators.trees.view_changes import view_changes
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.streaming.spark_job import Record
from streamhouse.runtime.streaming.tasks.task_protocol import RESULT, from_ipc, to_ipc
from streamhouse.runtime.views.incremental import Changes, keeps_updates
from streamhouse.runtime.views.inputs import ViewInputs
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.runtime.views.staged.planning import StageInput, staged_tree
from streamhouse.sql.expressions.binder import quote

_SENDER_BITS = 40
_KEPT = "kept_rows"


class StageRun:
    """Runs the stages of a level; `folder` gets the blocks of the records that were `sent`.

    `read_rows` as for `ViewInputs`. Raises `StreamhouseError` if blocks are missing.
    """

    def __init__(
        self,
        spec: ViewSpec,
        task: StageInput,
        sent: Iterable[Record],
        folder: Path,
        read_rows: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._spec, self._task = spec, task
        self._tree = staged_tree(spec.plan)
        stages = self._tree.of_level(task.level)
        self._stages = [each for each in stages if not (each.single and task.index)]
        self._inputs = ViewInputs(spec, task.end, read_rows, task.splits)
        self._blocks = _stored(sent, folder)
        for each in (each for stage in self._stages for each in stage.received):
            senders = {int(path.name) >> _SENDER_BITS for path in self._blocks[each.number]}
            if len(senders) < (1 if each.single else task.count):
                raise StreamhouseError("rows of other tasks are missing; start the query again")

    def sent(self) -> Iterator[pa.RecordBatch]:
        """The rows of `RESULT` for the tasks of the next level."""
        index = self._task.index
        for stage in self._stages:
            blocks = Limits.growing(partial(self._blocks_of, stage), MEMORY)
            for place, (receiver, rows) in enumerate(blocks, index << _SENDER_BITS):
                yield _row(receiver, place, to_ipc(rows), stage.number)
        for number in sorted(self._tree.read_after(self._task.level) & self._blocks.keys()):
            for path in self._blocks[number]:
                yield _row(index, int(path.name), path.read_bytes(), number)

    def _blocks_of(self, stage: Stage, limits: Limits) -> Iterator[tuple[int, pa.Table]]:
        def blocks() -> Iterator[tuple[int, pa.Table]]:
            with self._opened(limits, stage) as connection:
                yield from stage.sent(connection, self._task.count)

        return started(blocks())

    def changes(self, table: Table) -> Changes:
        """The changes of the view's table in this partition, as row kinds with rows."""
        return Limits.growing(lambda limits: started(self._changes(limits, table)), MEMORY)

    def _changes(self, limits: Limits, table: Table) -> Changes:
        if not self._stages:
            # The first task has the whole result.
            return
        plan, task = self._spec.plan, self._task
        latest = None if plan.keyless else table.latest_snapshot_id()
        columns = ", ".join(quote(column.name) for column in plan.columns)
        new = f"SELECT {columns} FROM ({self._tree.result.computed})"
        # Tasks may read several snapshots of it, but the same rows: if others have changed them,
        # the batch runs again.
        kept = table.arrow_schema, lambda: table.read(snapshot=latest)
        more = {} if latest is None else {_KEPT: kept}
        with self._opened(limits, self._tree.result, more) as connection:
            if latest is not None:
                old = self._tree.kept(_KEPT, task.index, task.count)
                updates = keeps_updates(table)
                yield from view_changes(connection, plan, f"({old})", f"({new})", updates)
                return
            for batch in connection.sql(new).to_arrow_reader(BATCH_ROWS):
                yield "+I", batch

    def _opened(
        self,
        limits: Limits,
        stage: Stage,
        more: Mapping[str, tuple[pa.Schema, Batches]] = MappingProxyType({}),
    ) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """DuckDB with the task's share of the tables that a stage reads, and what it has received.

        One thread returns rows in the same order each time.
        """
        received = {each.relation: _relation(self._blocks[each.number]) for each in stage.received}
        query = self._spec.plan.query
        scans = tuple(each for each in query.scans if each.relation in stage.relations)
        return opened(
            replace(query, scans=scans),
            self._inputs.scanner(query),
            limits,
            threads=1,
            now_ms=self._task.now_ms,
            more={**received, **more},
        )


def _row(receiver: int, place: int, block: bytes, stage: int) -> pa.RecordBatch:
    row = {"task": receiver, "first_row": place, "block": block, "report": str(stage)}
    return pa.RecordBatch.from_pylist([row], schema=RESULT)


def _stored(sent: Iterable[Record], folder: Path) -> dict[int, list[Path]]:
    """The files of the blocks that a task receives, in order, by the number of their stage."""
    found: dict[int, list[Path]] = defaultdict(list)
    for record in sent:
        path = folder / record["report"] / str(record["first_row"])
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(record["block"])
        found[int(record["report"])].append(path)
    for paths in found.values():
        paths.sort(key=lambda path: int(path.name))
    return found


def _relation(paths: list[Path]) -> tuple[pa.Schema, Batches]:
    """Blocks as a relation, each mapped into memory while it is read."""

    def block(path: Path) -> pa.Table:
        return from_ipc(pa.memory_map(str(path)))

    return block(paths[0]).schema, lambda: (
        rows for path in paths for rows in block(path).to_batches()
    )
