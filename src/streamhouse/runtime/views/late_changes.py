"""Changes of rows in windows that the watermark has closed: found in tasks."""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_engine import BATCH_ROWS, Batches, Limits, Scanner, opened
from streamhouse.operators.planning.closed_windows import LATE
from streamhouse.operators.trees.incremental import SourceChange
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.conditions import keys_filter
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.runtime.query_operator import conformed
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.inputs import MEMORY, ViewInputs
from streamhouse.runtime.views.net_change import check_known, known_change
from streamhouse.runtime.views.spec import ViewSpec, table_key
from streamhouse.source import Offset
from streamhouse.sql.batch.closed_windows import KINDS, between, late_table
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.plan import BoundedScan, Column

REASON = "its window was closed by the watermark"
COLUMNS = (
    Column("_kind", "STRING"), Column("_reason", "STRING"), Column("_watermark", "TIMESTAMP(3)"),
    Column("_batch", "BIGINT"), Column("_input", "INT"), Column("_query", "STRING"),
)  # fmt: skip
"""The columns of a table of late rows after those of the rows and of their windows."""
NOW_MS = 0
"""The time in columns of the present time of late rows, so that an audit finds equal rows."""
_MOST_KEYS = 5_000
_OLD, _KEYS = "old_", "changed_keys"


def recorded(
    address: TableAddress, number: int, query_id: str | None, end: Offset
) -> dict[str, pa.Table]:
    """The late rows of a table function up to an offset, for each kind by `late_table`.

    Those that came before the query was changed are late no more: see `ViewSpec.continued`. So are
    those that were read again: see `ViewPlanner.replays`.
    """
    table, replays = address.open(), end.get("replays")
    replayed = replays[-1]["late"].get(address.identifier, -1) if replays else -1
    own = (
        (pc.field("_query") == query_id)
        & (pc.field("_batch") > replayed)
        & (pc.field("_input") == number)
        & (pc.field("_batch") >= end.get("since", {"batch": 0})["batch"])
        & (pc.field("_batch") <= end["batch"])
    )
    rows = table.rows().filter(own)
    return {late_table(number, kind): rows.filter(pc.field("_kind") == kind) for kind in KINDS}


def all_recorded(spec: ViewSpec, query_id: str | None, end: Offset) -> dict[str, pa.Table]:
    """The late rows of all table functions, as `recorded`."""
    tables = (recorded(at, n, query_id, end) for n, at in enumerate(spec.late))
    return {name: rows for each in tables for name, rows in each.items()}


class LateChanges:
    """The changes, between two offsets, of a table function's rows in windows closed before."""

    def __init__(self, spec: ViewSpec, task: TaskInput, number: int) -> None:
        """`number`: the place of the table function in the query."""
        assert spec.plan.windows is not None
        self._spec, self._late, self._number = spec, spec.plan.windows.late[number], number
        self._before = spec.final_at(task.start)
        known = task.start.get("vector", {})
        # A table that the query did not read before had no rows for it.
        vector = {
            table_key(at): {"snapshot": 0, "time": 0, "table": Identity(at.open()).digest}
            for at in spec.tables.values()
            if table_key(at) not in known
        }
        start = {**task.start, "vector": {**known, **vector}}
        self._task = TaskInput(task.index, start, task.end)

    @property
    def unchanged(self) -> bool:
        """Whether none of its tables has changed, or no window was closed before."""
        if self._before is None:
            return True
        addresses = [self._spec.address(scan) for scan in self._late.query.scans]
        old, new = self._task.start["vector"], self._task.end["vector"]
        keys = [table_key(address) for address in addresses if address is not None]
        return all(old[key] == new[key] for key in keys)

    @property
    def kind(self) -> str:
        """The kind of the windows."""
        return self._late.window.kind

    def rows(self) -> Iterator[pa.Table]:
        """The rows that enter and leave, as the table of late rows has them."""
        with self._opened() as connection:
            entered, left = self._entered_and_left()
            for kind, rows in (("-D", left), ("+I", entered)):
                sql = f"SELECT *, '{kind}' AS _kind, {self._constants} FROM ({rows})"
                for batch in connection.sql(sql).to_arrow_reader(BATCH_ROWS):
                    yield conformed(pa.Table.from_batches([batch]), self._schema)

    @cached_property
    def late(self) -> dict[str, pa.Table]:
        """The late rows up to the batch, for each kind by `late_table`."""
        rows = pa.concat_tables(
            [self._schema.empty_table(), *([] if self.unchanged else self.rows())]
        )
        return {
            name: pa.concat_tables([known, rows.filter(pc.field("_kind") == kind)])
            for kind, (name, known) in zip(KINDS, self._recorded.items(), strict=True)
        }

    @cached_property
    def _recorded(self) -> dict[str, pa.Table]:
        """The late rows of former batches."""
        address = self._spec.late[self._number]
        end = {**self._task.end, "batch": self._task.batch - 1}
        return recorded(address, self._number, self._spec.query_id, end)

    def _entered_and_left(self) -> tuple[str, str]:
        """The SQL of the rows that entered since the start of the batch, and of those that left."""
        new = between(self._late.query.sql, self._before, self._before)
        old = re.sub(r'"(scan_\d+)"', self._old_relation, new)
        entered, left = (
            f"SELECT * FROM ({rows}) EXCEPT ALL SELECT * FROM ({others})"
            for rows, others in ((new, old), (old, new))
        )
        return entered, left

    @property
    def _schema(self) -> pa.Schema:
        return self._spec.late[self._number].planned().arrow_schema

    @property
    def _constants(self) -> str:
        """The values of the columns that are the same in all late rows of the batch."""
        return (
            f"'{REASON}' AS _reason, make_timestamp_ms({self._before}) AS _watermark, "
            f"{self._task.batch} AS _batch, {self._number} AS _input, "
            f"'{self._spec.query_id}' AS _query"
        )

    def _opened(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """A database with the changed rows, and the keys of all that changed."""
        query, limits = self._late.query, Limits(memory=MEMORY)
        more = {f"{_OLD}{scan.relation}": self._old(scan) for scan in query.scans}
        if self._changed is not None and self._changed.keys is not None:
            more[_KEYS] = batches_of(self._changed.keys)
        return opened(query, self._new, limits, now_ms=NOW_MS, more=more)

    @cached_property
    def _changed(self) -> SourceChange | None:
        """What has changed in the one table of linear rows; None if that is not known."""
        scan = self._late.query.scans[0]
        address = self._spec.address(scan)
        if address is None or not self._late.linear:
            return None
        if not {*address.planned().primary_key} <= {*scan.columns}:
            return None
        vectors = self._task.start["vector"], self._task.end["vector"]
        return known_change(scan, address, *(each[table_key(address)] for each in vectors))

    def _old_relation(self, name: re.Match[str]) -> str:
        """The rows of a scan before the batch: of all keys, or of those that have changed."""
        rows = f'"{_OLD}{name[1]}"'
        if self._changed is None or self._changed.keys is None:
            return rows
        by = ", ".join(map(quote, self._changed.keys.column_names))
        return f"(SELECT * FROM {rows} SEMI JOIN {_KEYS} USING ({by}))"

    def _new(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        if self._changed is not None:
            return batches_of(self._changed.rows)
        return ViewInputs(self._spec, self._task.end).scanner(self._late.query)(scan)

    def _old(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        change, address = self._changed, self._spec.address(scan)
        if change is not None and change.keys is None:
            return batches_of(change.rows.schema.empty_table())
        self._check_start(scan)
        before, keys = ViewInputs(self._spec, self._task.start), change.keys if change else None
        if address is None or keys is None or keys.num_rows > _MOST_KEYS:
            return before.scanner(self._late.query)(scan)
        schema = address.open().arrow_schema
        condition = keys_filter(map(schema.field, keys.column_names), keys)
        return before.open_table(address, scan.columns, condition)

    def _check_start(self, scan: BoundedScan) -> None:
        """Raise `DataLossError` if a table's rows before the batch are not known any more."""
        address = self._spec.address(scan)
        if address is not None:
            check_known(address, self._task.start["vector"][table_key(address)])


def batches_of(rows: pa.Table) -> tuple[pa.Schema, Batches]:
    """Rows as a scan of DuckDB."""
    return rows.schema, lambda: iter(rows.to_batches())


def scanner_of_late(tables: Scanner, late: Mapping[str, pa.Table]) -> Scanner:
    """A scanner of tables that also reads `late` rows, by `late_table`."""

    def scan(scanned: BoundedScan) -> tuple[pa.Schema, Batches]:
        if scanned.table.connector == LATE:
            return batches_of(late[scanned.table.name[-1]].select(scanned.columns))
        return tables(scanned)

    return scan
