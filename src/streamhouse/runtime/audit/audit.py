"""Audits a view: recomputes its rows from the lineage of its queries, and compares."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_database import open_database
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.invisible_rows import rows_invisible_to_select
from streamhouse.paimon.changelog.unread_commits import rows_of
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.paimon.write.commit_retries import CHANGE_USER
from streamhouse.paimon.write.temporary_table import TemporaryTable
from streamhouse.runtime.audit.provable_range import pending_rows_at, provable_range
from streamhouse.runtime.audit.recompute import Recomputation
from streamhouse.runtime.audit.recorded_batches import (
    Batch,
    Commits,
    RecordedBatches,
    Unread,
    unread,
)
from streamhouse.runtime.audit.row_differences import Audit, Difference, Row, differences, equal
from streamhouse.runtime.audit.view_audit import compare_view, is_view
from streamhouse.runtime.query_spec import PartialAggregation
from streamhouse.source import ROW_KIND, with_kinds
from streamhouse.sql.options.merge_functions import MERGING_ENGINES, merge_function, remove_option

_KIND_COLUMN = "rowkind.field"
_UNORDERED = ("collect", "merge_map", "nested_update")
"""Merge functions whose result is a set of elements: their order depends on the merges."""


def audit(warehouse: Mapping[str, str], identifier: str) -> Audit:
    """Recompute the table `database.table` from its lineage and compare it, row by row.

    Compares the newest snapshot whose batches are all in the lineage (while queries run, it is
    about a second behind, in object stores five), and whose rows are all visible. In tables with a
    primary key, DOUBLE values are equal if they differ by at most 0.005 or 1 in 10^12, since the
    order of addition differs. Rows of other writers (INSERT … VALUES, other programs) are taken as
    they were written.
    If snapshots have expired, the recomputation starts from the earliest state of the view after
    which all source and lookup snapshots still exist. Raises `TableError` if no query of a script
    writes the table, `DataLossError` if there is no such state.
    """
    address = TableAddress(dict(warehouse), identifier)
    table = address.open()
    if is_view(address):
        return compare_view(address)
    recorded = RecordedBatches.read(address)
    newest = _newest_visible(table, newest_recorded(table, recorded.last))
    counts = Counter[str]()
    with ExitStack() as tables:
        expected = tables.enter_context(ExpectedRows(table))
        for rows, removed in _expected(table, recorded, newest, counts):
            expected.write(rows)
            if removed is not None:
                # The Rust and the Java core differ in how they merge a removal with later rows.
                remaining = KeySet(removed).others(expected.merged())
                expected = tables.enter_context(ExpectedRows(table))
                expected.write(remaining)
        actual = table.rows(snapshot=newest or 0)
        found = tuple(_compare(table, actual, expected.merged()))
    return Audit(
        identifier, newest, counts["batches"], counts["joined"], counts["waiting"],
        counts["foreign"], actual.num_rows, counts["base"], found,
        (*unread(recorded), *_invisible(table)),
    )  # fmt: skip


def newest_recorded(table: Table, last: Mapping[str, Batch]) -> int | None:
    """The newest snapshot whose batches are all in the lineage; `last`: last batch by query."""
    # Read once, since the queries may commit meanwhile.
    snapshots = list(table.snapshots.newest_first())
    commits = Commits(snapshots)
    unrecorded = [commits.first_from(user, batch.number + 1) for user, batch in last.items()]
    before = [snapshot - 1 for snapshot in unrecorded if snapshot is not None]
    return min(before, default=snapshots[0].id if snapshots else None)


def _newest_visible(table: Table, newest: int | None) -> int | None:
    """The newest snapshot up to `newest` of which a SELECT sees all rows; None if there is none."""
    for snapshot in table.snapshots.newest_first(newest or 0):
        if not rows_invisible_to_select(table, snapshot.id).rows:
            return snapshot.id
    return None


def _invisible(table: Table) -> tuple[Unread, ...]:
    rows = rows_invisible_to_select(table, table.latest_snapshot_id() or 0).rows
    return (Unread(table.identifier, 0, rows),) if rows else ()


def _expected(
    table: Table, recorded: RecordedBatches, newest: int | None, counts: Counter[str]
) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """The expected rows in the order of the original commits, each with the keys to remove next."""
    users = recorded.of_query.keys()
    snapshots = list(table.snapshots.newest_first(newest or 0))
    start = provable_range(table, snapshots, recorded)
    base = start.snapshot
    # Starting from an empty snapshot is the same as recomputing everything.
    empty = any(s.id == base and s.total_record_count == 0 for s in snapshots)
    counts["base"] = 0 if empty else base
    commits = Commits(table.snapshots.newest_first())
    foreign = [
        s
        for s in snapshots
        if s.commit_user not in users and s.commit_kind == "APPEND" and s.id > base
    ]
    counts["foreign"] = len(foreign)
    any_order = PartialAggregation.of(table.columns, table.primary_key, table.options) is not None
    # A source gives the rows of several batches by partition or bucket, not batch by batch.
    grouped = any_order or (not table.primary_key and len(users) == 1 and not foreign)
    parts: list[tuple[int, pa.Table, pa.Table | None]] = []
    if base:
        parts.append((base, table.rows(snapshot=base), None))
    parts += [(snapshot.id, *_foreign(table, snapshot)) for snapshot in foreign]
    removals = sorted(snapshot_id for snapshot_id, _, removed in parts if removed is not None)
    for user in sorted(users):
        first = start.first_batches.get(user, 0)
        query_batches = [b for b in recorded.up_to(newest or 0, user, commits) if b.number >= first]
        counts["batches"] += len(query_batches)
        waiting = pending_rows_at(recorded, user, first) if query_batches and first else None
        recomputation = Recomputation(recorded, waiting if waiting and waiting.states else None)
        # If expiry determined the base snapshot, all of these batches come after it.
        at_snapshot = base if first else 0
        for run in _runs_between(query_batches, commits, removals):
            for step in recomputation.steps(run, grouped and (not base or bool(first))):
                at_snapshot = max(at_snapshot, commits.last_up_to(step.last))
                counts["joined"] += step.hits.num_rows
                if not base or first or at_snapshot > base:
                    parts.append((at_snapshot, step.rows, None))
        if recomputation.waiting is not None:
            counts["waiting"] += len(recomputation.waiting.states)
    # The rows of the base snapshot come first; the sort is stable within a snapshot.
    for _, rows, removed in sorted(parts, key=lambda part: part[0]):
        yield rows, removed


def _foreign(table: Table, snapshot: Snapshot) -> tuple[pa.Table, pa.Table | None]:
    """The rows that another writer's snapshot wrote, and the keys of the records it removed.

    In a table that merges rows a `-D` retracts values, unless it comes from a DELETE or MERGE
    statement, or the table's remove-record option is set: then it removes the record.
    """
    rows = rows_of(table, [snapshot.id])
    if not table.primary_key:
        return rows.drop_columns([ROW_KIND]), None
    option = remove_option(table.options)
    changed = snapshot.commit_user.startswith(CHANGE_USER)
    if option is None or not (changed or table.options.get(option, "").lower() == "true"):
        return rows, None
    deleted = pc.equal(rows.column(ROW_KIND), "-D")
    removed = rows.filter(deleted).select(list(table.primary_key))
    return rows.filter(pc.invert(deleted)), removed if removed.num_rows else None


def _runs_between(
    batches: list[Batch], commits: Commits, removals: list[int]
) -> Iterator[list[Batch]]:
    """A query's batches, grouped so that no removal of records falls inside a group."""
    numbered = [(bisect_left(removals, commits.last_up_to(batch)), batch) for batch in batches]
    for _, run in groupby(numbered, key=lambda pair: pair[0]):
        yield [batch for _, batch in run]


class ExpectedRows(TemporaryTable):
    """A temporary table with the audited one's merge options; Paimon's Rust core merges rows."""

    def __init__(self, like: Table) -> None:
        options = {k: v for k, v in like.options.items() if k == _KIND_COLUMN}
        if like.options.get("merge-engine") == "first-row":
            # A first-row table shows no rows before a compaction.
            options |= {
                "merge-engine": "aggregation",
                "fields.default-aggregate-function": "first_value",
                **{f"fields.{column.name}.ignore-retract": "true" for column in like.columns},
            }
        if like.primary_key:
            options["bucket"] = "-1" if like.crosses_partitions else "1"
        super().__init__(like, options)

    def write(self, rows: pa.Table) -> None:
        """Write rows in their order."""
        if _KIND_COLUMN in self._like.options:
            if ROW_KIND in rows.column_names:
                rows = rows.drop_columns([ROW_KIND])
        elif self._like.primary_key:
            # Later rows may have a row kind, and all rows of a writer need the same schema.
            rows = with_kinds(rows)
        super().write(rows)

    def merged(self) -> pa.Table:
        """The merged rows; none can be written afterwards."""
        return self.finish().rows()


def _compare(table: Table, actual: pa.Table, expected: pa.Table) -> Iterator[Difference]:
    unordered = {
        name
        for name in actual.column_names
        if name not in table.primary_key
        and table.options.get("merge-engine") in MERGING_ENGINES
        and merge_function(table.options, name) in _UNORDERED
    }

    def same(a: Row, b: Row) -> bool:
        return all(
            _elements(a[name]) == _elements(b[name])
            if name in unordered
            else equal(a[name], b[name])
            for name in a
        )

    with open_database() as connection:
        connection.register("actual", actual)
        connection.register("expected", expected.cast(actual.schema))
        yield from differences(connection, table.primary_key, (), same)


def _elements(values: list[Any] | None) -> list[str] | None:
    return None if values is None else sorted(map(repr, values))
