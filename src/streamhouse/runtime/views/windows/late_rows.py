"""Rows that arrive for windows that the watermark has closed: found in tasks, kept in a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from streamhouse.connectors.base import Message
from streamhouse.connectors.specs import SinkSpec
from streamhouse.duckdb_engine import BATCH_ROWS, Batches, Limits, opened, warehouse_scanner
from streamhouse.errors import DataLossError
from streamhouse.operators.planning.closed_windows import LateRows
from streamhouse.operators.scan import Scan
from streamhouse.operators.trees.compiled_tree import Source
from streamhouse.operators.trees.incremental import SourceChange
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.conditions import Filter
from streamhouse.paimon.read.pushdown import keys_filter
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.runtime.query_operator import conformed
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.inputs import MEMORY, ViewInputs
from streamhouse.runtime.views.net_change import UnknownChangeError, net_change
from streamhouse.runtime.views.spec import ViewSpec, table_key
from streamhouse.source import ROW_KIND, Offset
from streamhouse.sql.batch.closed_windows import between
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


class LateWriter:
    """Writes the late rows of one batch of a view; `rows` counts them."""

    def __init__(self, spec: ViewSpec, task: TaskInput, attempt: str) -> None:
        self._spec, self._task, self._attempt = spec, task, attempt
        self.rows = 0

    def write(self) -> Iterator[tuple[str, Message]]:
        """Write the late rows; yields the commit messages, with their tables."""
        windows = self._spec.plan.windows
        before = self._task.start.get("watermark", {}).get("at")
        if windows is None or before is None:
            return
        before -= self._spec.lateness_ms
        for address in self._spec.auxiliary_tables:
            numbers = [n for n, own in enumerate(self._spec.late) if own == address]
            changes = {n: LateChanges(self._spec, self._task, windows.late[n]) for n in numbers}
            changes = {n: each for n, each in changes.items() if not each.unchanged}
            for message in self._written(address, changes, before) if changes else ():
                yield address.identifier, message

    def _written(
        self, address: TableAddress, changes: Mapping[int, LateChanges], before: int
    ) -> list[Message]:
        table, query_id = address.planned(), self._spec.query_id
        sink = SinkSpec("paimon", {}, table.columns, address).open()
        writer = sink.writer(query_id, self._task.batch, self._attempt)
        try:
            for number, each in changes.items():
                for rows in each.rows(number, before, query_id):
                    self.rows += rows.num_rows
                    late = conformed(rows, table.arrow_schema)
                    kinds = pa.repeat(pa.scalar("+I"), late.num_rows)
                    for part in late.append_column(ROW_KIND, kinds).combine_chunks().to_batches():
                        writer.write(part)
            return list(writer.prepare())
        finally:
            writer.close()


class LateChanges:
    """The changes, between two offsets, of a table function's rows in windows closed before."""

    def __init__(self, spec: ViewSpec, task: TaskInput, late: LateRows) -> None:
        self._spec, self._late = spec, late
        # A table that the query did not read before had no rows for it.
        vector = {
            table_key(at): {"snapshot": 0, "time": 0, "table": Identity(at.open()).digest}
            for at in spec.tables.values()
            if table_key(at) not in task.start["vector"]
        }
        start = {**task.start, "vector": {**task.start["vector"], **vector}}
        self._task = TaskInput(task.index, start, task.end)

    @property
    def unchanged(self) -> bool:
        """Whether none of its tables has changed."""
        addresses = [self._spec.address(scan) for scan in self._late.query.scans]
        old, new = self._task.start["vector"], self._task.end["vector"]
        keys = [table_key(address) for address in addresses if address is not None]
        return all(old[key] == new[key] for key in keys)

    def rows(self, number: int, before: int, query_id: str) -> Iterator[pa.Table]:
        """The rows that enter and leave, with the columns of the table of late rows."""
        query = self._late.query
        new = between(query.sql, before, before)
        old = re.sub(r'"(scan_\d+)"', self._old_relation, new)
        at = f"make_timestamp_ms({before})"
        parts = (
            f"SELECT *, '{kind}' AS _kind, '{REASON}' AS _reason, {at} AS _watermark, "
            f"{self._task.batch} AS _batch, {number} AS _input, '{query_id}' AS _query "
            f"FROM (SELECT * FROM ({rows}) EXCEPT ALL SELECT * FROM ({others}))"
            for kind, rows, others in (("-D", old, new), ("+I", new, old))
        )
        more = {f"{_OLD}{scan.relation}": self._old(scan) for scan in query.scans}
        if self._changed is not None and self._changed.keys is not None:
            more[_KEYS] = _of(self._changed.keys)
        bound = replace(query, sql=" UNION ALL ".join(parts))
        with opened(
            bound, self._new, Limits(memory=MEMORY), now_ms=NOW_MS, more=more
        ) as connection:
            for batch in connection.sql(bound.sql).to_arrow_reader(BATCH_ROWS):
                yield pa.Table.from_batches([batch])

    @cached_property
    def _changed(self) -> SourceChange | None:
        """What has changed in the one table of linear rows; None if that is not known."""
        scan = self._late.query.scans[0]
        address = self._spec.address(scan)
        if address is None or not self._late.linear:
            return None
        key = address.planned().primary_key
        if not {*key} <= {*scan.columns}:
            return None
        source = Source(Scan(scan.table, scan.relation, scan.columns), (scan.relation,))
        old, new = (self._position(offset, address) for offset in self._offsets)
        try:
            return net_change(source, address, old, new)
        except UnknownChangeError:
            return None

    @property
    def _offsets(self) -> tuple[Offset, Offset]:
        return self._task.start, self._task.end

    def _position(self, offset: Offset, address: TableAddress) -> dict[str, Any]:
        position: dict[str, Any] = offset["vector"][table_key(address)]
        return position

    def _old_relation(self, name: re.Match[str]) -> str:
        """The rows of a scan before the batch: of all keys, or of those that have changed."""
        rows = f'"{_OLD}{name[1]}"'
        if self._changed is None or self._changed.keys is None:
            return rows
        by = ", ".join(map(quote, self._changed.keys.column_names))
        return f"(SELECT * FROM {rows} SEMI JOIN {_KEYS} USING ({by}))"

    def _new(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        if self._changed is not None:
            return _of(self._changed.rows)
        return self._at(scan, self._task.end)

    def _old(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        change, address = self._changed, self._spec.address(scan)
        if change is not None and change.keys is None:
            return _of(change.rows.schema.empty_table())
        if address is None:
            return self._at(scan, self._task.start)
        position, table = self._position(self._task.start, address), address.open()
        number = int(position["snapshot"])
        if position["table"] != Identity(table).digest or (
            number and table.snapshots.find(number) is None
        ):
            raise DataLossError(
                f"view {self._spec.target.identifier}: the rows of table {address.identifier} as "
                f"of snapshot {number} no longer exist, so it is not known which rows came too "
                "late for their windows; run the script once with --from-scratch"
            )
        condition = None
        if change is not None and change.keys is not None and change.keys.num_rows <= _MOST_KEYS:
            fields = (table.arrow_schema.field(name) for name in change.keys.column_names)
            condition = keys_filter(fields, change.keys)
        return self._at(scan, self._task.start, condition)

    def _at(
        self, scan: BoundedScan, offset: Offset, condition: Filter | None = None
    ) -> tuple[pa.Schema, Batches]:
        address = self._spec.address(scan)
        if address is None:
            return warehouse_scanner(Warehouse(self._spec.target.warehouse))(scan)
        return ViewInputs(self._spec, offset).open_table(address, scan.columns, condition)


def _of(rows: pa.Table) -> tuple[pa.Schema, Batches]:
    return rows.schema, lambda: iter(rows.to_batches())
