"""Repairs an aggregated view: recomputes it from its sources and commits the differences.

The target of a stream reflects its source up to the query's last commit. So each query's definition
is run over its source as of the offset of that commit, with the lookup snapshots of that commit.
Where the target differs, the wrong values are retracted and the right ones written. Changes that
the stream writes later are then added to correct sums.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import CommitConflictError, StreamhouseError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.consumers import Consumers, query_consumer
from streamhouse.paimon.changelog.unread_commits import rows_of, written_since
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows, producer
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import overwrite_table
from streamhouse.paimon.write.commit_retries import attempt, remove_dead_attempts
from streamhouse.paimon.write.temporary_table import TemporaryTable
from streamhouse.runtime.audit import view_audit
from streamhouse.runtime.audit.audit import newest_recorded
from streamhouse.runtime.audit.provable_range import pending_rows_at
from streamhouse.runtime.audit.recompute import Recomputation, WaitingRows
from streamhouse.runtime.audit.recorded_batches import Batch, Commits, RecordedBatches
from streamhouse.runtime.audit.row_differences import Deviation, deviation
from streamhouse.runtime.batch.progress_line import ProgressLine, progress
from streamhouse.runtime.batch.row_kinds import RETRACTABLE, functions_of
from streamhouse.runtime.query_source import source_offset
from streamhouse.source import ROW_KIND, of_kind

_TRIES = 20
_PAUSE_S = 0.5
_ORDER_FREE = ("sum", "product", "max", "min", "bool_and", "bool_or")
_COMMUTES = ("sum", "last_non_null_value")
_OVERWRITE = (
    "stop the query, and write the table by INSERT OVERWRITE … SELECT after "
    "SET 'execution.runtime-mode' = 'batch'"
)


@dataclass(frozen=True)
class RepairResult:
    """Counts of missing (`inserted`), wrong (`updated`) and surplus (`deleted`) rows.

    `snapshot` is the id of the repair's commit; None if nothing was written.
    """

    table: str
    inserted: int
    updated: int
    deleted: int
    snapshot: int | None


def repair(
    warehouse: Mapping[str, str], identifier: str, where: str | None = None, dry_run: bool = False
) -> RepairResult:
    """Recompute the view `database.table` and commit the differences, in one snapshot.

    `where` is a condition on its primary key; without it the whole view is repaired. `dry_run`
    writes nothing. The queries may keep running: the repair recomputes their last commit in the
    lineage, at least of the snapshot at the time of the call. It starts over if the queries
    meanwhile write rows to which the differences cannot be added. Columns whose merge depends on
    the order of rows (`last_value` and the like) keep their values. A second run changes nothing.
    Rows that no query produces, such as those of INSERT … VALUES, are removed. A terminal shows a
    progress line. Raises `TableError` for a table that no query of a script writes or that cannot
    be repaired this way, `DataLossError` if the source as of the last commit has expired,
    `CommitConflictError` if the queries overtake every try.
    """
    address = TableAddress(dict(warehouse), identifier)
    table = address.open()
    if table.primary_key and view_audit.is_view(address):
        return _refreshed(address, where, dry_run)
    check_table(table)
    remove_dead_attempts(table)
    since = table.latest_snapshot_id() or 0
    with progress() as bar:
        for _ in range(_TRIES):
            current = _Attempt(address, where, since, bar)
            result = current.run(dry_run)
            if result is not None:
                return result
            time.sleep(_PAUSE_S)
    if current.lineage_lags:
        raise CommitConflictError(
            f"table {identifier}: its lineage lacks the last commits of its queries; if their "
            "pipeline was killed, start it again, which writes the missing part, and then repair"
        )
    raise CommitConflictError(
        f"table {identifier}: its queries changed the differing rows during every try; "
        "stop the queries and repair again"
    )


def _refreshed(address: TableAddress, where: str | None, dry_run: bool) -> RepairResult:
    """Repair a materialized view: refresh it."""
    from streamhouse.runtime.views.refresh import refresh

    if where is not None:
        raise TableError(
            f"{address.identifier} is a materialized view, and its repair is a refresh of all its "
            "rows; leave the condition out"
        )
    spec = view_audit.opened_view(address)
    if spec.plan.windows is not None:
        raise TableError(
            f"{address.identifier} has windows as they were when a watermark closed them, which no "
            "repair can compute; run its script once with --from-scratch"
        )
    if dry_run:
        found = view_audit.compare_newest(spec).differences
        kinds = Counter(
            "-D" if one.expected is None else "+I" if one.actual is None else "+U" for one in found
        )
    else:
        kinds = refresh(spec)
    snapshot = address.open().latest_snapshot_id() if kinds and not dry_run else None
    return RepairResult(address.identifier, kinds["+I"], kinds["+U"], kinds["-D"], snapshot)


class _Attempt:
    """One try: recomputes the table at a snapshot not older than `since`, and commits.

    `lineage_lags` says that the lineage, which is written within about a second, lacks this
    snapshot.
    """

    def __init__(
        self, address: TableAddress, where: str | None, since: int, bar: ProgressLine
    ) -> None:
        self._address = address
        self._where = where
        self._since = since
        self._progress = bar
        self._table = address.open()
        self._snapshot = 0
        self._functions = functions_of(self._table)
        self.lineage_lags = False

    def run(self, dry_run: bool) -> RepairResult | None:
        """Recompute, compare and commit; None if another try is needed."""
        self._progress.part("computing", None)
        with TemporaryTable(self._table) as temporary:
            if not self._recompute(temporary):
                return None
            rows = temporary.finish().rows()
        table = self._table
        self._progress.part("comparing", None)
        kept = [name for name, f in self._functions.items() if f not in _ORDER_FREE]
        actual = table.rows(snapshot=self._snapshot)
        rows = rows.cast(table.arrow_schema)
        difference = deviation(actual, rows, table.primary_key, kept, self._where)
        if dry_run or not any(difference.counts):
            return RepairResult(table.identifier, *difference.counts, None)
        self._progress.part("writing", None)
        committed = self._commit(difference)
        if committed is None:
            return None
        return RepairResult(table.identifier, *difference.counts, committed)

    def _recompute(self, temporary: TemporaryTable) -> bool:
        """Write the expected rows into `temporary`; False if another try is needed."""
        recorded = RecordedBatches.read(self._address)
        queries = {user: recorded.last[user] for user in _queries(self._table, recorded)}
        for batch in queries.values():
            check_query(recorded, batch)
        self._snapshot = newest_recorded(self._table, queries) or 0
        self.lineage_lags = self._snapshot < self._since
        if self.lineage_lags:
            return False
        commits = Commits(self._table.snapshots.newest_first())
        for user in queries:
            last = next(reversed(recorded.up_to(self._snapshot, user, commits)), None)
            if last is None or "split" in source_offset(last.end):
                return False
            recomputation = Recomputation(recorded)
            for step in recomputation.steps([replace(last, start={})]):
                temporary.write(_retracted(step.rows, "+I"))
                self._progress.advance(step.rows.num_rows)
            if not self._retract_pending(temporary, last, recorded):
                return False
        return True

    def _retract_pending(
        self, temporary: TemporaryTable, last: Batch, recorded: RecordedBatches
    ) -> bool:
        """Retract the output of pending rows: the stream writes it when it retries them."""
        waiting = pending_rows_at(recorded, last.query_id, last.number + 1)
        if waiting is None:
            raise StreamhouseError(
                f"table {self._address.identifier}: the rows that were pending at its last "
                "commit have expired; repair it after its queries have committed again"
            )
        if not waiting.states:
            return True
        due = [(0, -(1 << 30))] * waiting.rows.num_rows
        recomputation = Recomputation(recorded, WaitingRows(waiting.rows, due))
        for step in recomputation.steps([replace(last, start=last.end)]):
            if step.rows.num_rows and not set(self._functions.values()) <= set(_COMMUTES):
                return False
            temporary.write(_retracted(step.rows, "-U"))
        return True

    def _commit(self, difference: Deviation) -> int | None:
        """Write and commit; returns the snapshot id, None if other commits were faster."""
        table = self._table
        if difference.counts[2] or not set(self._functions.values()) <= set(RETRACTABLE):
            # Deletions, and functions without retraction, need an overwrite to be one snapshot.
            with commit_lock(table.location):
                return self._overwrite(difference)
        with attempt(table) as own:
            changes = difference.with_nulls(self._null_columns)
            messages = own.writer().write_all(changes.to_batches())
            with commit_lock(table.location):
                if self._still_valid(difference):
                    own.committer.commit(0, messages)
                    return self._address.open().latest_snapshot_id()
        own.committer.abort(messages)
        return None

    @property
    def _null_columns(self) -> list[str]:
        """Columns that are written as null, which their merge function ignores."""
        if producer(self._table.options) == "input":
            return []
        return [
            name
            for name, function in self._functions.items()
            if function == "last_non_null_value" and self._table.arrow_schema.field(name).nullable
        ]

    def _overwrite(self, difference: Deviation) -> int | None:
        """Overwrite the partitions with differing rows; the caller holds the commit lock."""
        current = self._address.open()
        if not self._still_valid(difference, strict=True):
            return None
        rows = difference.applied(current.rows())
        keys = list(current.partition_keys)
        whole_table = not keys
        if keys:
            differing = KeySet(difference.keys.select(keys))
            part = differing.rows(rows)
            # A dynamic overwrite does not replace a partition that gets no rows.
            whole_table = len(KeySet(part.select(keys))) != len(differing)
            rows = rows if whole_table else part
        options = {"dynamic-partition-overwrite": "false" if whole_table else "true"}
        with attempt(current) as own:
            messages = own.writer(options, overwrite=True).write_all(rows.to_batches())
            overwrite_table(current, own.user, messages, options)
        return self._address.open().latest_snapshot_id()

    def _still_valid(self, difference: Deviation, strict: bool = False) -> bool:
        """Whether the differences still apply to the newest snapshot; the caller holds the lock."""
        current = self._address.open()
        if current.schema_id != self._table.schema_id:
            return False
        later = written_since(current, self._snapshot, current.latest_snapshot_id() or 0)
        if later is None or (later and current.has_dynamic_buckets):
            return False
        commutes = set(self._functions.values()) <= set(_COMMUTES)
        writes_changelog = producer(self._table.options) == "input"
        if not later or (
            commutes and not strict and not writes_changelog and not difference.counts[0]
        ):
            return True
        keys = rows_of(current, later, current.primary_key).select(list(current.primary_key))
        return not difference.touches(keys)


def _queries(table: Table, recorded: RecordedBatches) -> list[str]:
    """The queries that write the table: those that have a consumer at it, or all if none has."""
    users = sorted(recorded.of_query)
    consumers = Consumers(table)
    live = [user for user in users if consumers.get(query_consumer(user)) is not None]
    return live or users


def _retracted(rows: pa.Table, kind: str) -> pa.Table:
    """The rows with a `rowkind` column: unchanged for `kind` +I, inverted for -U."""
    if ROW_KIND not in rows.column_names:
        return of_kind(rows, kind)
    if kind == "+I":
        return rows
    index = rows.column_names.index(ROW_KIND)
    kinds = rows.column(index)
    inverted = pc.if_else(pc.is_in(kinds, value_set=pa.array(["-U", "-D"])), "+U", "-U")
    return rows.set_column(index, ROW_KIND, inverted)


def check_table(table: Table) -> None:
    """Raise `TableError` for a table that cannot be repaired by adding differences to its rows."""
    engine = table.options.get("merge-engine", "deduplicate").lower()
    where = f"table {table.identifier}"
    if not table.primary_key or hides_new_rows(table):
        kind = "deletion vectors" if table.primary_key else "no primary key"
        raise TableError(f"{where} has {kind}; repair it by INSERT from its sources")
    if engine != "aggregation":
        raise TableError(
            f"{where} has 'merge-engine' = '{engine}': repair it by INSERT INTO … SELECT, which "
            "writes only rows that differ; sys.repair is for aggregation tables"
        )
    if "rowkind.field" in table.options or any("sequence" in key for key in table.options):
        raise TableError(
            f"{where} merges by a sequence or reads row kinds from a column; repair it by INSERT "
            "OVERWRITE while no query writes it"
        )


def check_query(recorded: RecordedBatches, last: Batch) -> None:
    """Raise `TableError` for a query whose batches cannot be recomputed as a single batch.

    `last` is its last batch.
    """
    where = f"table {recorded.target.identifier}: one of its queries"
    spec = recorded.spec(last)
    if spec.source.connector == "mysql-cdc":
        raise TableError(
            f"{where} follows a MySQL table, whose history MySQL does not keep; copy the "
            "MySQL table into a Paimon table and compute this one from it, or "
            f"{_OVERWRITE}, which reads MySQL's current rows"
        )
    if spec.query.timed:
        raise TableError(
            f"{where} uses the time of the batch (PROCTIME(), CURRENT_TIMESTAMP, NOW(), "
            "CURRENT_DATE or the like), which was different in each of its batches; use a "
            f"time column of its source instead, or {_OVERWRITE}, which uses its own time"
        )
    if last.end.get("looked_up"):
        raise TableError(
            f"{where} looks up a table in MySQL (connector 'jdbc'), which does not keep its "
            f"rows as of the query's last commit; {_OVERWRITE}, which joins MySQL's current rows"
        )
