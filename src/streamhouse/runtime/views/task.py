"""The task of a view's refresh: computes the result, and writes what differs from the view."""

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa

from streamhouse import errors
from streamhouse.connectors.base import Message, WrittenBatch
from streamhouse.connectors.paimon.connector import sink_writer
from streamhouse.duckdb_engine import Limits, Scanner
from streamhouse.errors import DataLossError
from streamhouse.operators.trees.drawing import whole_reason
from streamhouse.operators.trees.recompute import Recompute
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.object_store.store_retries import retried_task
from streamhouse.runtime.query_operator import conformed
from streamhouse.runtime.streaming.spark_job import Record
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.streaming.tasks.task_protocol import TaskAttempt, results, written
from streamhouse.runtime.views.incremental import (
    Changes,
    IncrementalView,
    UnsuitableError,
    is_committed,
    keeps_updates,
)  # fmt: skip
from streamhouse.runtime.views.inputs import MEMORY, ViewInputs
from streamhouse.runtime.views.late_changes import (
    NOW_MS,
    LateChanges,
    all_recorded,
    scanner_of_late,
)
from streamhouse.runtime.views.net_change import FROM_SCRATCH, check_known
from streamhouse.runtime.views.session_changes import SessionChanges
from streamhouse.runtime.views.spec import Strategy, ViewSpec
from streamhouse.runtime.views.staged.planning import StageInput, staged_tree
from streamhouse.runtime.views.staged.stage_run import StageRun
from streamhouse.runtime.views.watermarks import of_later_windows
from streamhouse.source import Offset, of_kind
from streamhouse.sql.batch.closed_windows import FOREVER, between
from streamhouse.sql.parser.windowed_rows import VERSIONS
from streamhouse.state.segment import StateError
from streamhouse.work_folder import work_folder

log = logging.getLogger("streamhouse.views")
_LONG_S = 1.0
"""A refresh that takes longer may leave much memory behind."""
_NOTED_EVERY_S = 0.25
"""How often a task says how many rows it has read."""


def run(spec: ViewSpec, task: TaskInput, sent: Iterable[Record] = ()) -> Iterator[pa.RecordBatch]:
    """Run a task of a batch; yields rows of `RESULT`. `sent`: what others sent to it."""
    due, progress = 0.0, spec.progress
    if isinstance(task, StageInput):
        progress += f"-{task.level}-{task.index}"

    def note(rows: int) -> None:
        nonlocal due
        if spec.progress and time.monotonic() >= due:
            due = time.monotonic() + _NOTED_EVERY_S
            # On another host than the driver's there is no such folder.
            with contextlib.suppress(OSError):
                Path(progress).write_text(str(rows))

    if isinstance(task, StageInput):
        return _run_stages(spec, task, sent, note)
    return RefreshTask(spec, task, note).run()


def _run_stages(
    spec: ViewSpec,
    task: StageInput,
    sent: Iterable[Record],
    read_rows: Callable[[int], None],
) -> Iterator[pa.RecordBatch]:
    with work_folder("streamhouse-stages-") as folder:
        stages = StageRun(spec, task, sent, Path(folder), read_rows)
        if task.level == staged_tree(spec.plan).last:
            refresh = RefreshTask(spec, task, read_rows, stages)
            yield from retried_task(spec.retried_in, refresh.run)
        else:
            yield from retried_task(spec.retried_in, stages.sent)


class RefreshTask:
    """Runs one refresh; executors.

    A refresh that runs again after its commit writes nothing. `read_rows` as for `ViewInputs`.
    `stages` compute the changes of a partition of a staged refresh.
    """

    def __init__(
        self,
        spec: ViewSpec,
        task: TaskInput,
        read_rows: Callable[[int], None] = lambda rows: None,
        stages: StageRun | None = None,
    ) -> None:
        self._spec, self._task, self._stages = spec, task, stages
        self._attempt = TaskAttempt.current()
        if stages is not None:
            # Spark counts the attempts of a stage that runs again from 0.
            self._attempt = replace(self._attempt, repeated=True)
        self._inputs = ViewInputs(spec, task.end, read_rows)
        self._known = replace(task, start=spec.continued(task.start, task.end["view"]))
        self._late = LateWriter(spec, self._known, self._attempt.id)
        self.strategy: Strategy = "recompute"
        """How it has refreshed the view."""
        self.stale = False
        """Whether later batches need other rows than those that are kept."""
        self.changes: Counter[str] = Counter()
        """The changes that it has written, by row kind."""
        self.open_since: int | None = None
        """The first time of open sessions (epoch ms), or one before it; None if not known."""

    def commit(self) -> None:
        """Write and commit the changes in this process, without a query of Spark."""

        def write() -> WrittenBatch:
            return WrittenBatch(self._task.batch, [bytes(message) for message in self.write()])

        self._spec.open_sink().committer(self._spec.query_id).commit(write, lambda: None)

    def run(self) -> Iterator[pa.RecordBatch]:
        """Run the task; yields rows of `RESULT`."""
        spec, task = self._spec, self._task
        messages: list[tuple[str, Message]] = [
            (spec.target.identifier, message) for message in self.write()
        ]
        messages += self._late.write()
        counts = {
            "rows": self._inputs.rows,
            "missed": 0,
            "changes": self.changes,
            "strategy": self.strategy,
            "stale": self.stale,
            "late": self._late.rows,
            "open_since": self.open_since,
        }
        yield results(task, self._attempt, spec.target.identifier, messages, counts)

    def write(self) -> list[Message]:
        """Write the changes; returns the commit messages."""
        self.changes.clear()
        spec, began = self._spec, time.monotonic()
        sink = spec.open_sink()
        opened = partial(sink.writer, spec.query_id, self._task.batch, self._attempt.id)
        try:
            return written(opened, self._rows())
        except errors.StreamhouseError as error:
            error.args = (f"view {spec.target.identifier}: {error}", *error.args[1:])
            raise
        finally:
            if time.monotonic() - began > _LONG_S:
                _free_memory()

    def _rows(self) -> Iterator[pa.Table]:
        """The changes as rows of the sink."""
        table, plan, computed = self._spec.target.planned(), self._spec.plan, self._changed
        if plan.windows is not None:
            computed = self._closed if plan.keyless else self._corrected
        elif self._stages is not None:
            computed = partial(self._staged, self._stages)
        for kind, batch in computed(table):
            if plan.keyless and kind != "+I":
                raise DataLossError(
                    "rows leave the result, and its table or what reads it takes inserts only. A "
                    "table of the query was overwritten or truncated, or the query has changed; "
                    f"{FROM_SCRATCH}"
                )
            rows = conformed(pa.Table.from_batches([batch]), table.arrow_schema)
            self.changes[kind] += rows.num_rows
            yield of_kind(rows, kind)

    def _changed(self, table: Table) -> Changes:
        """What has changed in a view without windows that are closed."""
        spec, view = self._spec, IncrementalView(self._spec, self._task, table)
        if is_committed(table, spec.query_id, self._task.batch, spec.plan.keyless):
            self.strategy = "incremental"
            return
        if spec.plan.keyless:
            self._check_offset(self._task.end)
            self._check_offset(self._task.start or self._task.end)
        if spec.strategy != "recompute":
            yield from self._incremental(view)
        if self.strategy == "recompute":
            began = time.monotonic()
            yield from self._recompute(table)
            view.recomputed(self.changes.total() > 0, time.monotonic() - began)
            self.stale = view.stale

    def _staged(self, stages: StageRun, table: Table) -> Changes:
        """What has changed in a partition of a staged refresh."""
        spec, began = self._spec, time.monotonic()
        yield from stages.changes(table)
        self.stale = spec.strategy != "recompute" and not whole_reason(spec.plan.tree)
        if not self._task.index:
            # If in fact no task has written anything, the next batch recomputes the view.
            view = IncrementalView(spec, self._task, table)
            view.recomputed(True, time.monotonic() - began)

    def _check_offset(self, offset: Offset) -> None:
        """Raise `DataLossError` if the rows of a table without a key at an offset are not known."""
        if offset["view"] != self._task.end["view"]:
            raise DataLossError(f"it was created anew, or its query has changed; {FROM_SCRATCH}")
        for key, address in self._spec.tables.items():
            check_known(address, offset["vector"][key])

    def _incremental(self, view: IncrementalView) -> Changes:
        """The changes as what is kept gives them; sets `strategy` unless it is not suitable."""
        name = self._spec.target.identifier
        try:
            with ExitStack() as stack:
                yield from Limits.growing(
                    lambda limits: stack.enter_context(view.changes(limits)), MEMORY
                )
            self.strategy = "incremental"
        except UnsuitableError as reason:
            log.debug("%s: recomputed: %s", name, reason)
        except (StateError, errors.QueryError, errors.LimitError) as error:
            # Recomputing the view may succeed, for example if only old rows make a value overflow.
            if self.changes:
                raise
            log.warning("%s: what the view has kept is dropped: %s", name, error)
            view.drop()

    def _recompute(self, table: Table) -> Changes:
        spec, start = self._spec, self._task.start
        recompute = Recompute(spec.plan)
        latest = table.latest_snapshot_id()
        tables = self._inputs.scanner(spec.plan.query)
        if latest is None or (spec.plan.keyless and not start):
            return (("+I", batch) for batch in recompute.whole(tables, self._task.now_ms))

        def kept() -> Iterator[pa.RecordBatch]:
            if not spec.plan.keyless:
                yield from table.read(snapshot=latest)
                return
            before = ViewInputs(spec, start).scanner(spec.plan.query)
            yield from _stored(recompute.whole(before, self._task.now_ms), table)

        rows = table.arrow_schema, kept
        return recompute.changes(tables, self._task.now_ms, rows, keeps_updates(table))

    def _closed(self, table: Table) -> Changes:
        """The rows of the windows that the batch closes."""
        task, spec = self._task, self._spec
        assert spec.plan.windows is not None
        before, after = map(spec.final_at, (task.start, task.end))
        yield from (each for each in self._replayed(table) if each[0] == "+I")
        windows = [late.window for late in spec.plan.windows.late]
        if after is None or (
            before is not None and not any(each.ends_between(before, after) for each in windows)
        ):
            return
        recompute = self._of_windows(before, after)
        tables = self._late.scanner(self._inputs.scanner(recompute.plan.query))
        # Nothing that is read depends on the time, but late rows have columns of it.
        for batch in recompute.whole(tables, NOW_MS):
            yield "+I", batch
        self.open_since = self._late.open_since(after)

    def _replayed(self, table: Table) -> Changes:
        """What late rows that are read again change in windows that were final before the batch."""
        spec, (start, end) = self._spec, (self._known.start, self._task.end)
        if not start or start.get("replays") == end.get("replays"):
            return
        windows = spec.plan.windows
        assert windows is not None and windows.seen is not None
        # The query of the windows that were final, without late rows.
        sql = between(windows.seen.sql, None, end["replays"][-1]["final"])
        query = replace(windows.seen, sql=sql)
        recompute = Recompute(replace(spec.plan, query=query))

        def without_late(replays: Offset) -> Scanner:
            late = all_recorded(spec, spec.query_id, start | replays)
            return scanner_of_late(ViewInputs(spec, start).scanner(query), late)

        def kept() -> Iterator[pa.RecordBatch]:
            yield from _stored(recompute.whole(without_late({}), NOW_MS), table)

        tables = without_late({"replays": end["replays"]})
        yield from recompute.changes(tables, NOW_MS, (table.arrow_schema, kept))

    def _of_windows(self, before: int | None, after: int | None) -> Recompute:
        query = self._spec.plan.query
        closed = replace(query, sql=between(query.sql, before, after, self._late.first_read_ms))
        return Recompute(replace(self._spec.plan, query=closed))

    def _corrected(self, table: Table) -> Changes:
        """What has changed in windows that may still change."""
        spec, windows = self._spec, self._spec.plan.windows
        assert windows is not None
        before, after = map(spec.final_at, (self._known.start, self._known.end))
        latest = table.latest_snapshot_id() or 0

        def kept() -> Iterator[pa.RecordBatch]:
            rows = table.read(snapshot=latest)
            return of_later_windows(rows, windows, spec.plan.zone, before)

        yield from self._replayed(table)
        recompute = self._of_windows(before, FOREVER)
        tables = self._late.scanner(self._inputs.scanner(recompute.plan.query))
        yield from recompute.changes(tables, NOW_MS, (table.arrow_schema, kept))
        if after is not None:
            self.open_since = self._late.open_since(after)


def _stored(batches: Iterator[pa.RecordBatch], table: Table) -> Iterator[pa.RecordBatch]:
    """Rows as a table has them."""
    for batch in batches:
        yield from conformed(pa.Table.from_batches([batch]), table.arrow_schema).to_batches()


def _free_memory() -> None:
    """Return memory that allocators keep to the operating system."""
    # On Linux that of the system calls `malloc_trim`.
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()


class LateWriter:
    """Finds and writes the late rows of one batch of a view; `rows` counts them."""

    def __init__(self, spec: ViewSpec, task: TaskInput, attempt: str) -> None:
        self._spec, self._task, self._attempt = spec, task, attempt
        self.rows = 0

    @cached_property
    def _changes(self) -> list[LateChanges]:
        windows = self._spec.plan.windows
        return [
            (LateChanges if late.sessions is None else SessionChanges)(self._spec, self._task, n)
            for n, late in enumerate(() if windows is None else windows.late)
        ]

    @property
    def _sessions(self) -> list[SessionChanges]:
        return [each for each in self._changes if isinstance(each, SessionChanges)]

    def write(self) -> Iterator[tuple[str, Message]]:
        """Write the late rows; yields the commit messages, with their tables."""
        spec = self._spec
        for address in spec.auxiliary_tables:
            batch, attempt = self._task.batch, self._attempt
            opened = partial(sink_writer, address, spec.query_id, batch, attempt)
            for message in written(opened, self._late_rows(address)):
                yield address.identifier, message

    def _late_rows(self, address: TableAddress) -> Iterator[pa.Table]:
        """The late rows of the batch for a table."""
        for own, changes in zip(self._spec.late, self._changes, strict=True):
            for late in () if own != address or changes.unchanged else changes.rows():
                self.rows += late.num_rows
                yield of_kind(late, "+I")

    def scanner(self, tables: Scanner) -> Scanner:
        """A scanner that also reads the late rows that its query reads, and those of the batch."""
        read = (each for each in self._changes if each.kind in ("SESSION", VERSIONS))
        late = {name: rows for each in read for name, rows in each.late.items()}
        return scanner_of_late(tables, late)

    @property
    def first_read_ms(self) -> int | None:
        """The time from which on rows can be in a session that is open, or are near one."""
        found = [each.first_read_ms for each in self._sessions]
        known = [each for each in found if each is not None]
        return min(known) if known and len(known) == len(found) else None

    def open_since(self, after: int) -> int | None:
        """The first time of the sessions that are open after the batch; None without sessions."""
        return min((each.open_since(after) for each in self._sessions), default=None)
