"""Incremental refreshes of a view: what it kept, and whether that fits the batch.

The kept rows are a function of the query and the snapshots of its inputs. They fit a batch if they
are those of its start offset. Otherwise they are computed anew from the inputs at that offset,
which `ViewHolds` keeps from expiring, or the batch recomputes the view.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from streamhouse.duckdb_engine import THREADS, Batches, Limits, opened, time_sql
from streamhouse.lookup.storage.changed_keys import MOST_SNAPSHOTS
from streamhouse.operators.operator import OLD_NOW, WEIGHT
from streamhouse.operators.trees.compiled_tree import CompiledTree, Source, obstacle
from streamhouse.operators.trees.drawing import whole_reason
from streamhouse.operators.trees.incremental import IncrementalRefresh, SourceChange
from streamhouse.operators.trees.view_changes import view_changes
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.inputs import ViewInputs
from streamhouse.runtime.views.net_change import UnknownChangeError, net_change
from streamhouse.runtime.views.spec import ViewSpec, table_key
from streamhouse.sql.plan import BoundedScan
from streamhouse.state.manifest import Manifest, Segments
from streamhouse.state.store import StateStore

log = logging.getLogger("streamhouse.views")

MEMORY = ("160MB", "1GB")
"""What DuckDB uses before it spills to files, and what it uses if that is too little."""
SMALL_ROWS = 50_000
"""Inputs with fewer rows in all are recomputed as fast."""
LARGE_CHANGE = 0.05
"""A change of a larger share of the inputs' rows is recomputed."""

LARGE_READ = 0.2
"""If operators read more rows than this share of the inputs', the view is recomputed."""

_FEW_ROWS = 10_000
"""One thread computes fewer changes as fast as several."""

Changes = Iterator[tuple[str, pa.RecordBatch]]
_trees: dict[str, CompiledTree] = {}


class UnsuitableError(Exception):
    """The batch cannot be refreshed from changes, or is faster by recomputing the view."""


class IncrementalView:
    """Refreshes a view in one batch from the changes of its inputs; executors."""

    def __init__(self, spec: ViewSpec, task: TaskInput, table: Table) -> None:
        """`table` is the view's table."""
        self._spec, self._task, self._table = spec, task, table
        self._store, self._failed = StateStore(Path(spec.state)), False
        latest = table.latest_snapshot_id()
        self._newest = None if latest is None else table.snapshot(latest)

    @cached_property
    def _tree(self) -> CompiledTree:
        return _compiled(self._spec)

    @contextmanager
    def changes(self, memory: str) -> Iterator[Changes]:
        """The changes of the view's table, as row kinds with rows, all computed.

        What is kept after the batch is saved at the end. Raises `UnsuitableError`, and `LimitError`
        if DuckDB needs more memory.
        """
        kept, changes = self._start(), self._input_changes()
        query = replace(self._spec.plan.query, scans=())
        more = {} if kept is not None else self._sources()
        few = kept is not None and sum(c.rows.num_rows for c in changes.values()) < _FEW_ROWS
        threads, now_ms = 1 if few else THREADS, self._task.now_ms
        limits = Limits(memory=memory)
        with opened(
            query, _no_scan, limits, threads=threads, now_ms=now_ms, more=more
        ) as connection:
            refresh = IncrementalRefresh(self._tree, connection, self._store, kept or {})
            old_now = time_sql(int(self._task.start["now"]))
            connection.execute(f"SET VARIABLE {OLD_NOW} = {old_now}")
            if kept is None:
                log.info("%s: computing what the view keeps", self._spec.target.identifier)
                refresh.build()
            delta = refresh.apply(changes)
            old, new = (f"(SELECT * FROM {delta} WHERE {WEIGHT} {sign} 0)" for sign in "<>")
            wrote = False

            def read() -> Changes:
                nonlocal wrote
                for change in view_changes(connection, self._spec.plan, old, new):
                    wrote = True
                    yield change

            yield read()
            before, served = self._before, 0
            if before is not None and before.arrangements:
                served = before.served + 1
            patience = 0 if before is None else before.patience
            self._save(wrote, refresh.segments, served=served, patience=patience)

    def _sources(self) -> Mapping[str, tuple[pa.Schema, Batches]]:
        """The inputs at the start offset, which what is kept is computed from."""
        for key, address in self._spec.tables.items():
            snapshot = int(self._task.start["vector"][key]["snapshot"])
            if snapshot and address.open().snapshots.find(snapshot) is None:
                raise UnsuitableError(f"table {address.identifier}: snapshot {snapshot} is gone")
        inputs = ViewInputs(self._spec, self._task.start)
        return {
            each.name: inputs.open_table(self._address(each), each.scan.columns)
            for each in self._tree.sources
        }

    def recomputed(self, wrote: bool) -> None:
        """Note that the batch has recomputed the view, so that the next one can continue."""
        if self._spec.state and self._store.usable:
            before = self._before
            patience, waited = (0, 0) if before is None else before.lost(self._failed)
            self._save(wrote, {}, patience=patience, waited=waited)

    def _save(self, wrote: bool, segments: Mapping[str, Segments], **counts: int) -> None:
        newest = self._newest
        table = {"snapshot": 0, "time": 0, "wrote": int(wrote)}
        if newest is not None:
            table |= {"snapshot": newest.id, "time": newest.time_ms}
        labels = {name: self._tree.arrangements[name].label for name in segments}
        offset, batch = self._task.end, self._task.batch
        self._store.save(Manifest(batch, offset, table, segments, labels, **counts))

    @cached_property
    def _before(self) -> Manifest | None:
        """The manifest of the batch before."""
        start = dict(self._task.start)
        found = (each for each in self._store.manifests() if dict(each.offset) == start)
        return next(found, None)

    def drop(self) -> None:
        """Forget what is kept, because it is wrong."""
        self._failed = True
        self._store.clear()

    @property
    def committed(self) -> bool:
        """Whether the batch has been committed in an earlier run.

        What it has kept is there, too: that is saved before the commit.
        """
        for snapshot in self._table.snapshots.newest_first():
            if _changes_rows(snapshot):
                writer = snapshot.commit_user, snapshot.commit_identifier
                return writer == (self._spec.query_id, self._task.batch)
        return False

    def _start(self) -> Mapping[str, Segments] | None:
        """What is kept as of the start offset; None if that must be computed.

        Raises `UnsuitableError` if the batch is to recompute the view.
        """
        spec, start, end = self._spec, self._task.start, self._task.end
        if not start or start["view"] != end["view"]:
            raise UnsuitableError("the view is new, or its query has changed")
        if any(address is None for address in spec.inputs):
            raise UnsuitableError("it reads a system table, or a fixed snapshot")
        if not spec.state or not self._store.usable:
            raise UnsuitableError("this host does not have the checkpoint")
        before = self._before
        obstacles = filter(None, map(obstacle, self._tree.operators))
        reason = next(obstacles, "") or (self._slower(before) if spec.strategy == "auto" else "")
        if reason:
            raise UnsuitableError(reason)
        if before is None:
            raise UnsuitableError("nothing is known of the batch before it")
        self._check_table(before)
        if before.arrangements.keys() == self._tree.arrangements.keys():
            return before.arrangements
        if spec.strategy == "auto" and before.waited < before.patience:
            raise UnsuitableError("what was kept was of no use lately")
        return None

    def _check_table(self, manifest: Manifest) -> None:
        """Raise `UnsuitableError` unless the view's table is as the batch of a manifest left it."""
        snapshot, snapshots = int(manifest.table["snapshot"]), self._table.snapshots
        before = snapshots.find(snapshot) if snapshot else None
        latest = 0 if self._newest is None else self._newest.id
        later = [snapshots.find(number) for number in range(snapshot + 1, latest + 1)]
        found = [
            None if each is None else (each.commit_user, each.commit_identifier)
            for each in later
            if each is None or _changes_rows(each)
        ]
        expected = [(self._spec.query_id, manifest.batch)] if manifest.table["wrote"] else []
        replaced = snapshot and (before is None or before.time_ms != manifest.table["time"])
        if replaced or found != expected:
            raise UnsuitableError("another writer may have changed the view's table")

    def _slower(self, before: Manifest | None) -> str:
        """Why recomputing the view is faster; empty if it is not."""
        reason = whole_reason(self._tree.root)
        if reason:
            return reason
        rows = changed = 0
        for key, address in self._spec.tables.items():
            table = address.follow()
            first = int(self._task.start["vector"][key]["snapshot"])
            last = int(self._task.end["vector"][key]["snapshot"])
            if first and last - first > MOST_SNAPSHOTS:
                return "much has changed"
            snapshots = [table.snapshots.find(n) for n in range(first, last + 1) if n]
            if snapshots and snapshots[0] is not None:
                rows += snapshots[0].total_record_count or 0
            later = snapshots[1:] if first else snapshots
            changed += sum(abs(each.delta_record_count or 0) for each in later if each is not None)
        if rows < SMALL_ROWS:
            return f"its inputs have fewer than {SMALL_ROWS:,} rows"
        kept = {} if before is None else before.arrangements
        relations = {name for each in self._changed_sources() for name in each.relations}
        read = {name for name, readers in self._tree.read_whole if readers & relations}
        if sum(f.rows for name in read for f in kept.get(name, ())) > rows * LARGE_READ:
            return "operators read nearly as many rows as recomputing the view does"
        return "much has changed" if changed > rows * LARGE_CHANGE else ""

    def _changed_sources(self) -> Iterator[Source]:
        start, end = self._task.start["vector"], self._task.end["vector"]
        for source in self._tree.sources:
            key = table_key(self._address(source))
            if start[key] != end[key]:
                yield source

    def _input_changes(self) -> dict[Source, SourceChange]:
        vectors = self._task.start["vector"], self._task.end["vector"]
        found = {}
        for source in self._changed_sources():
            address = self._address(source)
            start, end = (vector[table_key(address)] for vector in vectors)
            try:
                found[source] = net_change(source, address, start, end)
            except UnknownChangeError as error:
                raise UnsuitableError(f"table {address.identifier}: {error}") from error
        return found

    def _address(self, source: Source) -> TableAddress:
        scans = self._spec.plan.query.scans
        (number, *_) = (n for n, each in enumerate(scans) if each.relation in source.relations)
        address = self._spec.inputs[number]
        assert address is not None
        return address


def _compiled(spec: ViewSpec) -> CompiledTree:
    """The compiled tree of a view; a process compiles each once."""
    name = spec.fingerprint
    if name not in _trees:
        _trees[name] = CompiledTree(spec.plan.tree)
    return _trees[name]


def _no_scan(scan: BoundedScan) -> NoReturn:
    raise AssertionError(f"nothing reads {scan.table.name}")


def _changes_rows(snapshot: Snapshot) -> bool:
    return snapshot.purges or snapshot.commit_kind not in ("COMPACT", "ANALYZE")
