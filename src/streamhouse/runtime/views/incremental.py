"""Incremental refreshes of a view: what it kept, and whether that fits the batch.

The kept rows are a function of the query and the snapshots of its inputs. If they are those of an
earlier batch than the last one, the changes since then are applied to them first. Otherwise the
batch recomputes the view.
"""

import atexit
import logging
import math
import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa

from streamhouse.duckdb_connection import LastingConnection
from streamhouse.duckdb_engine import THREADS, Limits, time_sql
from streamhouse.errors import StreamhouseError
from streamhouse.lookup.storage.changed_keys import MOST_SNAPSHOTS
from streamhouse.operators.operator import OLD_NOW, WEIGHT
from streamhouse.operators.trees.arrangement import Arrangement, net
from streamhouse.operators.trees.compiled_tree import CompiledTree, Source, obstacle
from streamhouse.operators.trees.drawing import whole_reason
from streamhouse.operators.trees.incremental import (
    IncrementalRefresh,
    SourceChange,
    in_parts,
    merge_beside,
)
from streamhouse.operators.trees.recompute import started
from streamhouse.operators.trees.view_changes import bag_changes, view_changes
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import producer
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.inputs import MEMORY, NICENESS, opened_alone
from streamhouse.runtime.views.net_change import UnknownChangeError, net_change
from streamhouse.runtime.views.spec import ViewSpec, table_key
from streamhouse.source import Offset
from streamhouse.state.manifest import Manifest, Segments
from streamhouse.state.segment import StateError
from streamhouse.state.store import StateStore

log = logging.getLogger("streamhouse.views")
SMALL_ROWS = 50_000
"""Inputs with fewer rows in all are recomputed as fast, unless that takes longer than `FAST_S`."""
FAST_S = 0.1
"""A refresh from few changes takes about as long. Many small files take longer to read again."""
LARGE_CHANGE = 0.15
"""A change of a larger share of the inputs' rows is recomputed, which is followed by a build."""

LARGE_READ = 0.2
"""If operators read more rows than this share of the inputs', the view is recomputed."""

_FEW_ROWS = 10_000
"""One thread computes fewer changes as fast as several."""

_QUERIES = 60
"""About how many queries compute few changes."""

_SEEN_RECOMPUTES = 3
"""So many recomputes show how long one takes."""

Changes = Iterator[tuple[str, pa.RecordBatch]]
_recomputes: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_SEEN_RECOMPUTES))
"""The seconds of the last recomputes of each view in this process."""
_trees: dict[tuple[str, str], CompiledTree] = {}
_database = LastingConnection(memory_limit=MEMORY, temp_directory="")
"""Computes few changes: to open a database takes longer. A task runs alone in its process."""
atexit.register(_database.close)


class UnsuitableError(Exception):
    """The batch cannot be refreshed from changes, or is faster by recomputing the view."""


class IncrementalView:
    """Refreshes a view in one batch from the changes of its inputs; executors."""

    def __init__(self, spec: ViewSpec, task: TaskInput, table: Table) -> None:
        """`table` is the view's table."""
        self._spec, self._task, self._table = spec, task, table
        self._store = spec.open_store()
        latest = table.latest_snapshot_id()
        self._newest = None if latest is None else table.snapshot(latest)
        self.stale = False
        """Whether later batches need a build: the kept rows are missing, or too old."""

    @cached_property
    def _tree(self) -> CompiledTree:
        return compiled(self._spec)

    @contextmanager
    def changes(self, limits: Limits) -> Iterator[Changes]:
        """The changes of the view's table, as row kinds with rows, all computed.

        What is kept after the batch is saved at the end; that of many changes by a thread, beside
        the commit. Raises `UnsuitableError`, and `LimitError` if DuckDB needs more memory.
        """
        start, end = self._task.start, self._task.end
        reason = unsuitable(self._spec, self._store, self._tree, end)
        if reason:
            raise UnsuitableError(reason)
        with ExitStack() as stack:
            stack.enter_context(self._store.writing())
            kept = self._start()
            segments: Mapping[str, Segments] = self._store.merged(kept.arrangements)
            late = None if kept.kept_at == start else self._input_changes(kept.kept_at, start)
            changes = self._input_changes(start, end)
            if late is not None:
                segments, _ = self._applied(segments, in_parts(late), kept.kept_at, start, limits)
            *most, last = in_parts(changes)
            segments, deltas = self._applied(segments, most, start, end, limits)
            connection, refresh = stack.enter_context(
                self._refresh(segments, last, end if most else start, end, limits)
            )
            delta = refresh.apply(last)
            if deltas:
                connection.register("_earlier", pa.concat_tables(deltas))
                both = f"(SELECT * FROM _earlier UNION ALL SELECT * FROM {delta})"
                delta = f"({net(self._tree.root, both)})"
            # `_save` removes what no manifest names, such as the rows that earlier parts have kept.
            beside = not (most or _are_few(last) or self._spec.replica)
            if not beside:
                refresh.keep()
            old, new = (f"(SELECT * FROM {delta} WHERE {WEIGHT} {sign} 0)" for sign in "<>")
            wrote = False

            def read() -> Changes:
                nonlocal wrote
                plan, updates = self._spec.plan, keeps_updates(self._table)
                found = (
                    bag_changes(connection, f"SELECT * FROM {delta}")
                    if plan.keyless
                    else view_changes(connection, plan, old, new, updates)
                )
                for change in found:
                    wrote = True
                    yield change

            # With too little memory this fails here, and the caller can try again with more.
            yield started(read())
            self._save(wrote, {} if beside else refresh.segments)
            if beside:
                self._start_keeping(refresh, wrote, stack.pop_all())
                return
        if refresh.merges:
            start_merges(self._spec, self._store, refresh.merges)

    def _start_keeping(
        self, refresh: IncrementalRefresh, wrote: bool, opened: ExitStack
    ) -> threading.Thread:
        """Write what is kept after the batch in a thread, which closes what is `opened`.

        If its process ends first, the next batch continues from older rows.
        """

        def work() -> None:
            try:
                with opened:
                    refresh.keep()
                    self._store.fill(self._manifest(wrote, refresh.segments))
            except (StreamhouseError, StateError, OSError) as error:
                log.info("%s: kept rows were not written: %s", self._spec.target.identifier, error)
                return
            if refresh.merges:
                start_merges(self._spec, self._store, refresh.merges)

        thread = threading.Thread(target=work, name="kept-rows", daemon=True)
        thread.start()
        return thread

    def _applied(
        self,
        segments: Mapping[str, Segments],
        parts: Sequence[Mapping[Source, SourceChange]],
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        limits: Limits,
    ) -> tuple[Mapping[str, Segments], list[pa.Table]]:
        """What is kept after parts of the changes between two offsets, and the changes of the
        view's rows by each."""
        deltas = []
        for part in parts:
            with self._refresh(segments, part, start, end, limits) as (connection, refresh):
                delta = refresh.apply(part)
                deltas.append(connection.sql(f"SELECT * FROM {delta}").to_arrow_table())
                refresh.keep()
            segments, start = refresh.segments, end
        return segments, deltas

    @contextmanager
    def _refresh(
        self,
        segments: Mapping[str, Segments],
        changes: Mapping[Source, SourceChange],
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        limits: Limits,
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, IncrementalRefresh]]:
        """A refresh from what was kept at one offset to another, and its connection."""
        few = _are_few(changes)
        threads, now_ms, query = 1 if few else THREADS, int(end["now"]), self._spec.plan.query
        # What needs more memory, or functions of users, gets a database of its own.
        small = few and limits.memory == MEMORY and not query.functions
        lasting = _database.cursor(query.sql, _QUERIES) if small else None
        with opened_alone(self._spec, limits, threads, now_ms, lasting=lasting) as connection:
            connection.execute(f"SET VARIABLE {OLD_NOW} = {time_sql(int(start['now']))}")
            yield connection, IncrementalRefresh(self._tree, connection, self._store, segments)

    def recomputed(self, wrote: bool, seconds: float) -> None:
        """Note that the batch has recomputed the view, so that the next one can continue."""
        _recomputes[self._spec.fingerprint].append(seconds)
        if self._spec.state and self._store.usable:
            self._save(wrote, {})

    def _save(self, wrote: bool, segments: Mapping[str, Segments]) -> None:
        self._store.save(self._manifest(wrote, segments))

    def _manifest(self, wrote: bool, segments: Mapping[str, Segments]) -> Manifest:
        newest = self._newest
        table = {"snapshot": 0, "time": 0, "wrote": int(wrote)}
        if newest is not None:
            table |= {"snapshot": newest.id, "time": newest.time_ms}
        labels = self._tree.labels(segments)
        return Manifest(self._task.batch, self._task.end, table, segments, labels)

    def drop(self) -> None:
        """Forget what is kept, because it is wrong."""
        self.stale = True
        self._store.clear()

    def _start(self) -> Manifest:
        """What is kept as of the start offset, or an earlier one.

        Raises `UnsuitableError` if the batch is to recompute the view.
        """
        spec, start = self._spec, self._task.start
        manifests = self._store.manifests()
        found = [each for each in manifests if each.batch <= int(start.get("batch", -1))]
        kept = next((each for each in found if self._fits(each)), None)
        if spec.strategy == "auto":
            self._check_extent(kept)
        if kept is None:
            self.stale = True
            raise UnsuitableError("what the view keeps is not computed yet")
        if spec.plan.keyless:
            # The rows that its table has do not matter.
            return kept
        before = next((each for each in found if dict(each.offset) == dict(start)), None)
        if before is None or not self._is_of_query(before):
            # A query that another one has replaced for a time may fit rows that were kept earlier.
            raise UnsuitableError(
                "nothing is known of the batch before it, or it had another query"
            )
        self._check_table(before)
        return kept

    def _check_extent(self, kept: Manifest | None) -> None:
        """Raise `UnsuitableError` if recomputing the view is faster than using what is kept."""
        end = self._task.end
        old, new = (end if kept is None else kept.kept_at)["vector"], end["vector"]
        changed, rows = changed_rows(self._spec, old, new)
        if kept is None:
            seconds = _recomputes[self._spec.fingerprint]
            fast = len(seconds) < _SEEN_RECOMPUTES or min(seconds) < FAST_S
            if rows < SMALL_ROWS and fast:
                raise UnsuitableError(f"its inputs have fewer than {SMALL_ROWS:,} rows")
            return
        rows = max(rows, SMALL_ROWS)
        # Without a key the whole result would be computed twice.
        if changed > rows * LARGE_CHANGE and not self._spec.plan.keyless:
            self.stale = True
            raise UnsuitableError("much has changed")
        sources = self._changed_sources(kept.kept_at, end)
        relations = {name for each in sources for name in each.relations}
        read = {name for name, readers in self._tree.read_whole if readers & relations}
        if sum(f.rows for n in read for f in kept.arrangements.get(n, ())) > rows * LARGE_READ:
            raise UnsuitableError("operators read nearly as many rows as recomputing the view does")

    def _fits(self, manifest: Manifest) -> bool:
        """Whether the rows that a manifest names are those of the query."""
        names = self._tree.arrangements.keys()
        return self._is_of_query(manifest) and manifest.arrangements.keys() == names

    def _is_of_query(self, manifest: Manifest) -> bool:
        return bool(manifest.offset["view"] == self._task.end["view"])

    def _check_table(self, manifest: Manifest) -> None:
        """Raise `UnsuitableError` unless the view's table is as the batch of a manifest left it."""
        snapshot, snapshots = int(manifest.table["snapshot"]), self._table.snapshots
        before = snapshots.find(snapshot) if snapshot else None
        latest = 0 if self._newest is None else self._newest.id
        later = [snapshots.find(number) for number in range(snapshot + 1, latest + 1)]
        found = [
            None if each is None else (each.commit_user, each.commit_identifier)
            for each in later
            if each is None or each.changes_rows
        ]
        expected = [(self._spec.query_id, manifest.batch)] if manifest.table["wrote"] else []
        replaced = snapshot and (before is None or before.time_ms != manifest.table["time"])
        if replaced or found != expected:
            raise UnsuitableError("another writer may have changed the view's table")

    def _input_changes(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> dict[Source, SourceChange]:
        found = {}
        for source in self._changed_sources(start, end):
            address = self._spec.addresses[source.scan.relation]
            first, last = (each["vector"][table_key(address)] for each in (start, end))
            try:
                found[source] = net_change(source.scan, address, first, last)
            except UnknownChangeError as error:
                self.stale = True
                raise UnsuitableError(f"table {address.identifier}: {error}") from error
        return found

    def _changed_sources(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Iterator[Source]:
        for source in self._tree.sources:
            key = table_key(self._spec.addresses[source.scan.relation])
            if start["vector"][key] != end["vector"][key]:
                yield source


def _are_few(changes: Mapping[Source, SourceChange]) -> bool:
    return sum(each.size for each in changes.values()) < _FEW_ROWS


def start_merges(
    spec: ViewSpec, store: StateStore, merges: Sequence[tuple[Segments, Arrangement]]
) -> threading.Thread:
    """Merge segments in a thread. If its process ends first, a later batch starts it again."""

    def work() -> None:
        # On Linux this is the priority of this thread, and of those that it starts.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        limits = Limits(memory=MEMORY)
        try:
            with store.merging() as alone:
                for files, kept in merges if alone else ():
                    with opened_alone(spec, limits, threads=1) as connection:
                        merge_beside(connection, store, files, kept)
        except (StreamhouseError, StateError, OSError) as error:
            log.info("%s: kept rows were not merged: %s", spec.target.identifier, error)

    thread = threading.Thread(target=work, name="merges", daemon=True)
    thread.start()
    return thread


def is_committed(table: Table, query_id: str, batch: int, shared: bool = False) -> bool:
    """Whether a batch has been committed in an earlier run, as the last one of the view's table.

    Its manifest is there, too: that is saved before the commit. `shared`: commits of others do not
    count.
    """
    snapshots = table.snapshots.newest_first()
    counted = (each for each in snapshots if not shared or each.commit_user == query_id)
    last = next((each for each in counted if each.changes_rows), None)
    return last is not None and (last.commit_user, last.commit_identifier) == (query_id, batch)


def keeps_updates(table: Table) -> bool:
    """Whether a view's table needs rows before an update: it keeps the changes as written."""
    return producer(table.options) == "input"


def unsuitable(spec: ViewSpec, store: StateStore, tree: CompiledTree, end: Offset) -> str:
    """Why a view is recomputed whatever has changed; empty if it is refreshed from changes."""
    if not str(end["view"]).startswith(spec.fingerprint):
        return "the batch was planned for another query"
    if any(address is None for address in spec.inputs):
        return "it reads a system table, or a fixed snapshot"
    if not spec.state or not store.usable:
        return "this host does not have the checkpoint"
    reason = next(filter(None, map(obstacle, tree.operators)), "")
    return reason if reason or spec.strategy != "auto" else whole_reason(tree.root)


def changed_rows(
    spec: ViewSpec, old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[float, int]:
    """How many records of a view's tables have changed between two vectors, and how many exist."""
    tables = spec.tables.items()
    found = [extent(address.follow(), old[key], new[key]) for key, address in tables]
    return sum(changed for changed, _ in found), sum(rows for _, rows in found)


def extent(table: Table, start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[float, int]:
    """How many records of a table have changed between two positions, and how many there are."""
    first, last = int(start["snapshot"]), int(end["snapshot"])
    newest = table.snapshots.find(last) if last else None
    rows = 0 if newest is None else newest.total_record_count or 0
    if first and last - first > MOST_SNAPSHOTS:
        return math.inf, rows
    snapshots = [table.snapshots.find(number) for number in range(first + 1, last + 1)]
    changing = (each for each in snapshots if each is not None and each.changes_rows)
    return sum(abs(each.delta_record_count or 0) for each in changing), rows


def compiled(spec: ViewSpec) -> CompiledTree:
    """The compiled tree of a view; a process compiles each once.

    Views of several warehouses may have the same text, but keep other rows. With another version of
    a table's schema, other columns may be null.
    """
    versions = [at.schema_id for at in spec.addresses.values()]
    name = spec.fingerprint, repr([sorted(spec.origins.items()), versions])
    if name not in _trees:
        _trees[name] = CompiledTree(spec.plan.tree, spec.origins)
    return _trees[name]
