"""Audits a materialized view, or a table that an INSERT keeps like one.

Computes its SELECT at recorded snapshots, and compares all rows. Independent of how a refresh
writes: the whole result as a multiset, without the view's key, without pruning, in one thread.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from streamhouse.duckdb_engine import Batches, Scanner, opened, warehouse_scanner
from streamhouse.errors import DataLossError, TableError
from streamhouse.operators.planning.closed_windows import LATE
from streamhouse.operators.planning.view_plan import plan_view_into
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.unread_commits import rows_of
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.runtime.audit.recorded_batches import Unread
from streamhouse.runtime.audit.row_differences import Audit, Difference, Row, differences, equal
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.state.checkpoint import (
    VIEWS,
    Checkpoint,
    checkpoints_for,
    checkpoints_of,
    pipeline_of,
)
from streamhouse.runtime.state.table_writers import lineage_definitions, since_empty
from streamhouse.runtime.views.late_changes import NOW_MS, all_recorded, scanner_of_late
from streamhouse.runtime.views.planned import view_spec
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec, table_key
from streamhouse.runtime.views.watermarks import of_later_windows
from streamhouse.source import Offset
from streamhouse.sql.batch.closed_windows import FOREVER, between
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.expressions.zones import UTC, ZONE_OPTION
from streamhouse.sql.plan import BoundedScan
from streamhouse.sql.syntax import Query, TextPosition
from streamhouse.sql.views.stored_view import HIDDEN_KEY, StoredView

_RELATIVE = 1e-14
_VIEW = "view_rows"
_START = TextPosition(1, 1)


def is_view(address: TableAddress) -> bool:
    """Whether a table is a materialized view, or an INSERT keeps it like one.

    The latter is known from the checkpoint on this machine. It does not count if a query with a
    lineage has written the table since.
    """
    table = address.open()
    if StoredView.of(table.options) is not None:
        return True
    *_, checkpoint = _checkpoints(address)
    if _kept_select(checkpoint) is None:
        return False
    others = lineage_definitions(address)
    users = (snapshot.commit_user for snapshot in table.snapshots.newest_first())
    writers = (user for user in users if user in others or user == checkpoint.known_id())
    return next(writers, None) not in others


def opened_view(address: TableAddress, checkpoint: Checkpoint | None = None) -> ViewSpec:
    """The specification of a view's query; `checkpoint`: its own, if several append to a table."""
    session = Session(address.warehouse)
    full = session.full(split_identifier(address.identifier))
    kept = _kept_select(checkpoint or _checkpoints(address)[0])
    table = session.table(full)
    if kept is None or session.materialized.find(full) is not None:
        view = session.materialized.defined(full)
        session.settings.set(ZONE_OPTION, view.stored.zone)
        return view_spec(session, table, view.plan)
    text, columns, closed, zone = kept
    session.settings.set(ZONE_OPTION, zone)
    plan = plan_view_into(Query(text, _START), session, table, tuple(columns), closed)
    return replace(view_spec(session, table, plan), select=(text, tuple(columns)))


def _checkpoints(address: TableAddress) -> list[Checkpoint]:
    """The checkpoints of the queries that append to a table; else that of the view."""
    root, name = checkpoints_of(address.warehouse["warehouse"]), address.identifier
    pipelines = sorted({pipeline_of(path) for path in root.glob(f"*/{name}*")} - {VIEWS})
    own = (each for pipeline in pipelines for each in checkpoints_for(root, pipeline, name))
    appending = [each for each in own if _kept_select(each) is not None]
    return appending or [Checkpoint.of_view(address)]


def _kept_select(checkpoint: Checkpoint) -> tuple[str, list[str], bool, str] | None:
    """The SELECT of the INSERT that keeps a table, and its column list; None if there is none.

    Then, whether its windows do not change any more after a time, and its time zone.
    """
    record = checkpoint.previous()
    definition = json.loads(record["definition"]) if record else {}
    found = definition.get("select")
    if found is None:
        return None
    return found[0], found[1], definition.get("closed", False), definition.get("zone", UTC)


def compare_view(address: TableAddress) -> Audit:
    """Compare a view with its SELECT as of its last refresh, or else as of now.

    The last refresh is that of the checkpoint on this machine. Raises `DataLossError` if a snapshot
    that it has read no longer exists.
    """
    audits = [_compared_with(address, each) for each in _checkpoints(address)]
    return next((each for each in audits if each.differences), audits[0])


def _compared_with(address: TableAddress, checkpoint: Checkpoint) -> Audit:
    spec = opened_view(address, checkpoint)
    last, newest = checkpoint.logs.last_offset(), ViewPlanner(spec).newest({})
    # The first word is the text of the query as the script has it; the second is the table.
    current = bool(last) and last["view"].split()[-1] == newest["view"].split()[-1]
    if spec.plan.windows is not None or spec.plan.keyless:
        if not current:
            raise TableError(
                f"view {address.identifier} has rows as they were when a batch appended them or a "
                "watermark closed their windows, which only the checkpoint of its pipeline knows; "
                "audit it on that machine"
            )
        return Comparison(spec, last, checkpoint.known_id()).audit()
    if not current:
        return compare_newest(spec)
    result = Comparison(spec, last, checkpoint.known_id()).audit()
    # A statement may have refreshed the view since.
    if result.differences and last["vector"] != newest["vector"]:
        now = compare_newest(spec)
        result = result if now.differences else now
    return result


def compare_newest(spec: ViewSpec) -> Audit:
    """Compare a view with its SELECT at the newest snapshots.

    Whether it has been refreshed since is not known.
    """
    newest = {"now": time.time_ns() // 1_000_000, **ViewPlanner(spec).newest({})}
    return Comparison(spec, newest, None).audit(unknown=True)


class Comparison:
    """Compares one view with its SELECT at an offset; `writer` is the query that keeps the view.

    Its later batches do not count.
    """

    def __init__(self, spec: ViewSpec, offset: Offset, writer: str | None) -> None:
        self._spec, self._offset, self._writer = spec, offset, writer
        self._table = spec.target.open()
        self._columns = [c for c in self._table.columns if c.name != HIDDEN_KEY]
        windows = spec.plan.windows
        query = spec.plan.query if windows is None else windows.seen
        assert query is not None
        self._query = query

    def audit(self, unknown: bool = False) -> Audit:
        """Compare; `unknown`: it is not known whether the view was computed from the offset."""
        snapshot = self._snapshot()
        inputs: dict[str, int] = {}
        unread: list[Unread] = []
        for address in self._spec.tables.values():
            position = self._offset["vector"][table_key(address)]
            inputs[address.identifier] = read = int(position["snapshot"])
            latest = address.open().latest_snapshot_id() or 0
            if unknown or latest > read:
                missing = None if unknown else latest - read
                unread.append(Unread(address.identifier, missing, 0))
        rows, found = self._compared(snapshot)
        if unknown and not found:
            unread = []
        name = self._table.identifier
        return Audit(name, snapshot, 1, 0, 0, 0, rows, 0, found, tuple(unread), inputs)

    def _snapshot(self) -> int | None:
        batch = int(self._offset.get("batch", 0))
        for snapshot in self._table.snapshots.newest_first():
            if snapshot.commit_user != self._writer or snapshot.commit_identifier <= batch:
                return snapshot.id
        return None

    def _scan(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        address = self._spec.address(scan)
        if address is None:
            return warehouse_scanner(Warehouse(self._spec.target.warehouse))(scan)
        table, columns = address.planned(), list(scan.columns)
        snapshot = int(self._offset["vector"][table_key(address)]["snapshot"])
        if snapshot and table.snapshots.find(snapshot) is None:
            raise DataLossError(
                f"view {self._table.identifier} was computed from snapshot {snapshot} of "
                f"{table.identifier}, which no longer exists; run its script, which computes the "
                "view anew, and audit it again"
            )
        return table.read_schema(columns), lambda: table.read(columns, snapshot)

    def _compared(self, snapshot: int | None) -> tuple[int, tuple[Difference, ...]]:
        """The number of the view's rows, and the differences."""
        names = [column.name for column in self._columns]
        kept = (
            self._table.read_schema(names),
            lambda: self._computed(self._table.read(names, snapshot or 0)),
        )
        listed = ", ".join(map(quote, names))
        now_ms = int(self._offset["now"]) if self._spec.plan.windows is None else NOW_MS
        with opened(
            self._query, self._scanner(), threads=1, now_ms=now_ms,
            more={_VIEW: kept, **self._late_before_replays},
        ) as connection:  # fmt: skip
            connection.execute(f"CREATE TEMP TABLE actual AS SELECT {listed} FROM {_VIEW}")
            sql = " UNION ALL ".join(f"SELECT {listed} FROM {each}" for each in self._written)
            connection.execute(f"CREATE TEMP TABLE expected AS {sql}")
            if self._spec.plan.keyless:
                others = self._written_by_others(snapshot or 0)
                later = self._computed(iter(others.to_batches()))
                connection.register("others", pa.Table.from_batches(later, others.schema))
                connection.execute(f"INSERT INTO expected SELECT {listed} FROM others")
            real = [c.name for c in self._columns if c.type in ("DOUBLE", "FLOAT")]
            key = () if self._spec.plan.hidden else self._spec.plan.key
            found = tuple(differences(connection, key, real, _equal))
            count = connection.sql("SELECT count(*) FROM actual").fetchall()[0][0]
        return count, found

    def _written_by_others(self, last: int) -> pa.Table:
        """The rows that others have appended up to a snapshot, as they were written."""
        numbers = [
            snapshot.id
            for snapshot in since_empty(self._table, last)
            if snapshot.commit_kind == "APPEND" and snapshot.commit_user != self._writer
        ]
        return rows_of(self._table, numbers[::-1])

    @property
    def _since(self) -> int | None:
        """By which watermark windows were final before the query was changed; None: it was not."""
        since: int | None = self._offset.get("since", {"final": None})["final"]
        return since

    def _computed(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the windows that the SELECT computes, not a former one."""
        windows = self._spec.plan.windows
        if windows is None or self._since is None:
            return rows
        if not windows.column or windows.offset_ms > 0:
            # The windows of the former SELECT may have had another size.
            raise TableError(
                f"view {self._table.identifier}: its SELECT was changed, and its rows do not say "
                "which of them are of the former one; add window_end to the SELECT, or run the "
                "script once with --from-scratch"
            )
        return of_later_windows(rows, windows, self._spec.plan.zone, self._since)

    @property
    def _replays(self) -> list[Offset]:
        """The times that late rows were read again, if each has appended what it changed."""
        replays: list[Offset] = self._offset.get("replays", [])
        return replays if self._spec.plan.keyless else []

    def _scanner(self) -> Scanner:
        """A scanner that also reads the rows that are late at the offset."""
        return scanner_of_late(self._scan, all_recorded(self._spec, self._writer, self._offset))

    @property
    def _late_before_replays(self) -> dict[str, tuple[pa.Schema, Batches]]:
        """The scans of late rows as they were before each replay."""
        found = {}
        for number in range(len(self._replays)):
            before = self._offset | {"replays": self._replays[:number]}
            scanner = scanner_of_late(self._scan, all_recorded(self._spec, self._writer, before))
            for scan in self._query.scans:
                if scan.table.connector == LATE:
                    found[f"{scan.relation}_before_{number}"] = scanner(scan)
        return found

    @property
    def _written(self) -> Iterator[str]:
        """The relations of the rows that batches have written, in turn between the replays."""
        since, replays = self._since, self._replays
        last = self._spec.final_at(self._offset) if self._spec.plan.keyless else FOREVER
        ends = [since, *(replay["final"] for replay in replays), last]
        for number, (before, after) in enumerate(pairwise(ends)):
            yield self._sql(number, before, after)
            if number:
                new, old = (self._sql(each, since, before) for each in (number, number - 1))
                yield f"(SELECT * FROM {new} EXCEPT ALL SELECT * FROM {old}) AS replayed"

    def _sql(self, replays: int, before: int | None, after: int | None) -> str:
        """The SELECT after so many replays; of rows with the same declared key the greatest one."""
        plan, query = self._spec.plan, between(self._query.sql, before, after)
        if replays < len(self._replays):
            for scan in self._query.scans:
                if scan.table.connector == LATE:
                    query = query.replace(
                        quote(scan.relation), quote(f"{scan.relation}_before_{replays}")
                    )
        sql = f"({query}) AS made"
        if plan.unique:
            return sql
        order = ", ".join(f"{quote(c.name)} DESC NULLS LAST" for c in self._columns)
        key = ", ".join(map(quote, plan.key))
        return f"{sql} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {order}) = 1"


def _equal(a: Row, b: Row) -> bool:
    """Whether two rows are equal, but for the last bits of floats, which depend on the plan."""
    return all(equal(value, b[name], _RELATIVE, 0.0) for name, value in a.items())
