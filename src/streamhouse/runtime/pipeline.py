"""Runs the continuous queries of one script in one driver, and maintains their tables."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from streamhouse.connectors.registry import connector
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.invisible_rows import InvisibleRows
from streamhouse.paimon.maintenance.service import Maintenance
from streamhouse.paimon.read.visibility import changes_visible, hides_new_rows
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.runtime.batch.progress_line import progress
from streamhouse.runtime.monitoring.reporter import Reporter
from streamhouse.runtime.monitoring.run_reports import RunReports, SnapshotProgressLine
from streamhouse.runtime.query_description import QueryProgress
from streamhouse.runtime.run_output import Outcome, RunOutput
from streamhouse.runtime.spark.settings import SparkOptions
from streamhouse.runtime.streaming.pacing import Pacing, Role
from streamhouse.runtime.streaming.query import QueryFailed
from streamhouse.source import Offset

if TYPE_CHECKING:
    from pyspark import SparkContext

    from streamhouse.connectors.mysql_cdc.relay.relay import Relays
    from streamhouse.runtime.replacement.replacement import Replacement
    from streamhouse.runtime.spark.executors import ExecutorWatch
    from streamhouse.runtime.streaming.query import JobQuery

_TICK_S = 0.05
_CONFIRM_S = 0.002
"""The time between two checks if the first has found no work left."""
_UNCHANGED_CHECKS = 2
"""A run has caught up once so many checks in a row have found the offsets of the check before.

The queries of a check are not checked at the same moment, and rows that a compaction makes visible
are looked for after them. The first of these checks shows that no query committed in between, the
second that no such rows have become visible since.
"""
_NOTICE_AFTER_S = 5.0
"""After this time an `until_caught_up` run prints a notice of what it waits for."""
_NICE = 5
"""How much the sidecar's `nice` value is raised where no query waits for compaction."""
_CHECK_S = 0.125
"""How often one of the queries is checked for failure."""


class Side(Protocol):
    """Something that runs in the driver next to the queries, such as a SELECT on the console."""

    def step(self) -> None:
        """Process what is available now, without waiting for more."""

    @property
    def reads(self) -> Sequence[TableAddress]:
        """The Paimon tables whose changes it reads."""

    def caught_up_offset(self) -> Offset | None:
        """Its current offset if nothing is left to do, else None."""

    def close(self) -> None: ...


class Pipeline:
    """Starts continuous queries, monitors them, and stops each between two batches."""

    def __init__(
        self,
        spark: SparkOptions,
        stopped: Callable[[], bool],
        reporter: Reporter | None = None,
        notice: Callable[[str], None] = lambda text: None,
        output: RunOutput | None = None,
    ) -> None:
        self._options = spark
        self._notice = notice
        self._stopped = stopped
        self._reporter = reporter
        self._reports = RunReports(output or RunOutput())
        self._watch: ExecutorWatch | None = None
        self._new: list[JobQuery] = []
        self._running: list[JobQuery] = []
        self._maintenance: dict[str, Maintenance] = {}
        self._reads: list[TableAddress] = []
        self._awaited: list[TableAddress] = []
        """The tables of `_reads` whose changes become visible only after a compaction."""
        self._readers: dict[str, Relays] = {}
        """What reads for several queries, by connector."""
        self._snapshot_line = SnapshotProgressLine()
        self._check_at = 0.0
        self._checked = -1
        """The index in `_running` of the query that was last checked for failure."""
        self._replacements: list[Replacement] = []
        self._replaces = False
        """Whether a view has a next query."""
        self._behind = 0
        """The index of the query or side that had work left at the last check."""

    @property
    def queries(self) -> list[JobQuery]:
        """All queries, running or not started yet."""
        return [*self._running, *self._new]

    def add(self, query: JobQuery) -> None:
        """Add a query, which `run` starts."""
        self._new.append(query)

    def remove(self, query: JobQuery, dropped: bool = False) -> None:
        """Stop a query between two batches, and forget it; `dropped`: its table goes, too."""
        query.stop()
        for queries in (self._new, self._running):
            if query in queries:
                queries.remove(query)
        for maintenance in self._maintenance.values() if dropped else ():
            maintenance.forget(query.description.target)

    def replace_by(self, replacement: Replacement) -> None:
        """Let queries of a view be replaced while `run` lasts."""
        self._replacements.append(replacement)

    def run(self, until_caught_up: bool, sides: Sequence[Side]) -> None:
        """Run all queries until stopped or, with `until_caught_up`, until none has work left.

        Rows that wait for the compaction of a table that a query reads or writes count as work
        left, unless a table option (such as `write-only`) delays that compaction. A notice names
        the rows that such an option delays, also after a stop.
        """
        try:
            self._replace(warm=not until_caught_up)
            for side in sides:
                self._follow(side.reads)
            unchanged_checks, notice_at = 0, time.monotonic() + _NOTICE_AFTER_S
            before: list[Offset] | None = []
            while not self._stopped():
                pause_s = _TICK_S
                self._step(sides)
                self._replace(warm=not until_caught_up)
                if until_caught_up:
                    now = None if self._replaces else self._caught_up_offsets(sides)
                    unchanged = now is not None and now == before
                    waiting = self._waiting() if unchanged else []
                    due = [rows for rows in waiting if rows.option is None]
                    unchanged_checks = unchanged_checks + 1 if unchanged and not due else 0
                    before = now
                    if now is not None and not due:
                        pause_s = _CONFIRM_S
                    if unchanged_checks >= _UNCHANGED_CHECKS:
                        self._notice_invisible("caught up, but for ", waiting)
                        return
                    if due and time.monotonic() >= notice_at:
                        notice_at = float("inf")
                        self._notice_invisible("not caught up yet: ", due)
                time.sleep(pause_s)
            self._notice_left_invisible()
        finally:
            self._snapshot_line.close()
            for side in sides:
                side.close()

    def _replace(self, warm: bool) -> None:
        """Let views replace their queries, and start the new ones."""
        self._replaces = any([each.step() for each in self._replacements])
        if self._new:
            self._start(warm)

    def _caught_up_offsets(self, sides: Sequence[Side]) -> list[Offset] | None:
        """The offsets of all queries if none has work left, else None.

        Each check reads files of a table or queries a server. So the query that had work left at
        the last check is checked first, and the others only once it has none.
        """
        readers: list[QueryProgress | Side] = [query.progress for query in self._running]
        readers.extend(sides)
        offsets: dict[int, Offset] = {}
        for step in range(len(readers)):
            index = (self._behind + step) % len(readers)
            offset = retried(readers[index].caught_up_offset)
            if offset is None:
                self._behind = index
                return None
            offsets[index] = offset
        return [offsets[index] for index in range(len(readers))]

    def close(self) -> None:
        """Stop all queries between two batches, then the maintenance.

        An error does not keep the rest from being stopped; it is raised at the end.
        """
        with contextlib.ExitStack() as stack:
            for reader in self._readers.values():
                stack.callback(reader.close)
            for maintenance in self._maintenance.values():
                stack.callback(maintenance.stop)
            for query in reversed(self.queries):
                stack.callback(query.stop)
            for query in self._running:
                query.request_stop()
            self._replacements = []
            self._running, self._new, self._maintenance, self._readers = [], [], {}, {}
            self._reads, self._awaited = [], []

    def report_end(self, outcome: Outcome) -> None:
        """Report to the output that all queries ended without an error; call it after `close`."""
        self._reports.end(outcome)

    def _waiting(self) -> list[InvisibleRows]:
        """Committed rows of all tables that are invisible until a compaction."""
        return [rows for service in self._maintenance.values() for rows in retried(service.waiting)]

    def _notice_left_invisible(self) -> None:
        """Print which rows stay invisible, also to the next run, until somebody compacts them."""
        try:
            left = [rows for rows in self._waiting() if rows.option is not None]
        except StreamhouseError as error:
            self._notice(f"stopped, but {error}")
            return
        self._notice_invisible("stopped, but for ", left)

    def _notice_invisible(self, prefix: str, waiting: Sequence[InvisibleRows]) -> None:
        for rows in waiting:
            self._notice(f"{prefix}{rows}")

    def _step(self, sides: Sequence[Side]) -> None:
        for reader in self._readers.values():
            reader.step()
        self._check_next()
        for query in list(self._running):
            self._try(query, lambda query: query.tick())
        for side in sides:
            side.step()
        self._snapshot_line.step(self._running)
        self._reports.step()
        if self._watch is not None:
            self._watch.step()
        if self._reporter is not None:
            self._reporter.step()

    def _check_next(self) -> None:
        """Check the next query for failure: one query a step, so that each step makes few calls."""
        if self._running and time.monotonic() >= self._check_at:
            self._check_at = time.monotonic() + _CHECK_S
            self._checked = (self._checked + 1) % len(self._running)
            self._try(self._running[self._checked], lambda query: query.check())

    def _try(self, query: JobQuery, call: Callable[[JobQuery], None]) -> None:
        """Call a method of a query; if that fails, a view may go on without the query."""
        try:
            call(query)
        except (QueryFailed, StreamhouseError, OSError) as error:
            if not any(each.gives_up(query, error) for each in self._replacements):
                raise

    def _start(self, warm: bool) -> None:
        from streamhouse.runtime.spark.jvm import OUTPUT
        from streamhouse.runtime.spark.session import check_cluster, executor_watch, start_session

        self._reports.starting()
        if self._reporter is not None:
            self._reporter.begin(self.queries, lambda: list(self._maintenance.values()), OUTPUT.new)
        self._start_readers()
        with progress() as line:
            line.part("preparing the queries", None)
            for query in self._new:
                query.prepare()
            line.part("starting Spark", None)
            spark = start_session("streamhouse", self._options)
            line.part("waiting for executors", None)
            check_cluster(spark, self._options, self._warehouses(), self._notice, self._stopped)
            self._watch = executor_watch(spark, self._options, self._notice)
            line.part("starting the queries", None)
            self._start_on(spark, warm)
        self._reports.running(self._running)

    def _start_readers(self) -> None:
        """Start what reads for several of the new queries, before these are prepared."""
        groups: dict[str, list[JobQuery]] = {}
        for query in self._new:
            if query.source_spec is not None:
                groups.setdefault(query.source_spec.connector, []).append(query)
        for name, sharing in groups.items():
            reader = self._readers.get(name) or connector(name).shared_reader()
            if reader is not None:
                self._readers[name] = reader
                reader.start(sharing)

    def _warehouses(self) -> list[Mapping[str, str]]:
        """The warehouses that the tasks of new queries read or write."""
        described = [query.description for query in self._new]
        addresses = [
            at
            for description in described
            for at in (description.address, *description.source_tables, *description.lookups)
        ]
        found = {at.warehouse["warehouse"]: at.warehouse for at in addresses if at.warehouse}
        return list(found.values())

    def _start_on(self, spark: SparkContext, warm: bool) -> None:
        pacing = Pacing(len(self._new) if warm else 1)
        for query in self._new:
            if query.tables:
                query.pressure = self._maintenance_of(query.description.address, warm).pressure
            self._follow(query.description.follows())
            query.pacing, query.role = pacing, self._role(query)
            if not self._options.is_local:
                query.use_cluster()
        for query in self._new:
            query.start(spark)
        self._running, self._new = [*self._running, *self._new], []

    def _role(self, query: JobQuery) -> Role:
        """How the pauses of the query depend on other queries."""
        others, targets = self.queries, query.targets

        def written(tables: Iterable[TableAddress]) -> bool:
            return any(target.same(at) for at in tables for target in targets)

        read = any(written(other.description.source_tables) for other in others)
        if not read and any(written(other.description.lookups) for other in others):
            return Role.LOOKUP
        sources = query.description.source_tables
        if any(to.same(at) for other in others for to in other.targets for at in sources):
            return Role.DOWNSTREAM
        return Role.SOURCE

    def _follow(self, tables: Sequence[TableAddress]) -> None:
        """Register source tables with maintenance; it compacts them where readers wait for that."""
        for table in tables:
            if not any(table.same(read) for read in self._reads):
                self._reads.append(table)
                opened = table.open()
                if changes_visible(opened) != "commit":
                    self._awaited.append(table)
            self._maintenance_of(table, warm=False)

    def _may_compact(self, warehouse: Mapping[str, str]) -> bool:
        """Whether maintenance may start in a warehouse.

        It starts at once if a query sees the rows of a source there only after a compaction.
        Otherwise it leaves the processors to the first batch of every running query.
        """
        if any(query.warehouse == warehouse for query in self._awaited):
            return True
        return bool(self._running) and all(query.metrics.read().batches for query in self._running)

    def _waits(self, warehouse: Mapping[str, str]) -> bool:
        """Whether a table written in the warehouse shows rows or changes only after a compaction.

        Tables that show changes only after a full compaction do not count.
        """
        targets = [target for query in self.queries for target in query.targets]
        tables = [target.open() for target in targets if target.warehouse == warehouse]
        return any(
            hides_new_rows(table) or changes_visible(table) == "compaction" for table in tables
        )

    def _maintenance_of(self, table: TableAddress, warm: bool) -> Maintenance:
        """The maintenance of the table's warehouse; `warm` starts its JVM before the first job."""
        warehouse = table.warehouse
        key = repr(sorted(warehouse.items()))
        if key not in self._maintenance:
            self._maintenance[key] = Maintenance(
                warehouse,
                lambda: [
                    table
                    for query in self._running
                    if query.description.address.warehouse == warehouse
                    for table in query.tables
                ],
                may_expire=lambda: all(query.progress.replayed for query in self._running),
                may_begin=lambda: not warm or self._may_compact(warehouse),
                warm=warm,
                nice=0 if self._waits(warehouse) else _NICE,
                reads=lambda: [
                    read.identifier for read in self._reads if read.warehouse == warehouse
                ],
            )
            self._maintenance[key].start()
        return self._maintenance[key]
