"""Pending rows, which wait for a lookup retry: the tables `__pending` and `__unmatched`.

`<target>__pending` has one row per waiting row: `_query` (the query's id), `_row_id`, `_due` (when
to retry), `_attempts` (retries made so far; -1: it waits behind another row of its key, and was not
looked up yet), `_rowkind` if the source is a changelog, then the
source's columns. Rows that have used up their attempts are moved to `<target>__unmatched`: the
source's columns, `_rowkind` of a changelog, then `_attempts` and `_missed_at`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import column_ids
from streamhouse.runtime.state.auxiliary_tables import rows_of_query
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SchemaChange,
    SetType,
)


def follow(
    address: TableAddress, fixed: Sequence[str], columns: Sequence[Column], source: Table | None
) -> None:
    """Alter a `__pending` or `__unmatched` table to have `columns` and its `fixed` ones.

    `source` is the source table, if it is a Paimon table: renamed columns are then matched by their
    column ids. Raises `TableError` if the table has the columns of another source.
    """
    table = address.open()
    existing = {c.name: c.type for c in table.columns if c.name not in fixed}
    if existing == {c.name: c.type for c in columns}:
        return
    names = _names(existing, source)
    if names is None:
        if not set(existing) <= {column.name for column in columns}:
            raise TableError(
                f"table {address.identifier} keeps rows of another source, with the columns "
                f"{', '.join(existing)}; give this query another target, or drop that table"
            )
        names = {name: name for name in existing}
    warehouse = Warehouse(address.warehouse)
    warehouse.alter_table(address.identifier, *_changes(existing, names, columns))


def _names(existing: dict[str, str], source: Table | None) -> dict[str, str | None] | None:
    """The new name of each column (None: dropped).

    None if the columns are not those of a schema version of the source.
    """
    if source is None:
        return None
    current = {number: name for name, number in column_ids(source).items()}
    for schema_id in range(source.schema_id, -1, -1):
        version = source.find_version(schema_id)
        if version is not None and set(column_ids(version)) == set(existing):
            return {name: current.get(number) for name, number in column_ids(version).items()}
    return None


def _changes(
    existing: dict[str, str], names: dict[str, str | None], columns: Sequence[Column]
) -> list[SchemaChange]:
    renamed = {old: new for old, new in names.items() if new is not None and new != old}
    changes: list[SchemaChange] = [DropColumn((old,)) for old, new in names.items() if new is None]
    # Renamed in two steps, since two columns may have swapped names.
    changes += [RenameColumn((old,), f"__was_{old}") for old in renamed]
    changes += [RenameColumn((f"__was_{old}",), new) for old, new in renamed.items()]
    types = {new: existing[old] for old, new in names.items() if new is not None}
    for column in columns:
        if column.name not in types:
            changes.append(AddColumn(Column(column.name, column.type, True, column.comment)))
        elif types[column.name] != column.type:
            changes.append(SetType((column.name,), column.type))
    return changes


QUERY, ROW_ID, DUE, ATTEMPTS, KIND = "_query", "_row_id", "_due", "_attempts", "_rowkind"
MISSED_AT = "_missed_at"
_TIME = pa.timestamp("ms")


def create_tables(
    pending: TableAddress,
    unmatched: TableAddress,
    columns: Sequence[Column],
    changelog: bool,
    source: TableAddress | None = None,
) -> None:
    """Create the two tables, or alter existing ones to the source's present columns.

    `source` is the source table, if it is a Paimon table. Raises `TableError` if the tables have
    the columns of another source.
    """
    source_columns = [Column(c.name, c.type, True, c.comment) for c in columns]
    kind = [Column(KIND, "STRING")] if changelog else []
    key = [Column(QUERY, "STRING", False), Column(ROW_ID, "STRING", False)]
    pending_columns = [*key, Column(DUE, "TIMESTAMP(3)"), Column(ATTEMPTS, "INT"), *kind]
    pending.create([*pending_columns, *source_columns], (QUERY, ROW_ID), {"bucket": "1"})
    unmatched_columns = [*kind, Column(ATTEMPTS, "INT"), Column(MISSED_AT, "TIMESTAMP(3)")]
    unmatched.create([*source_columns, *unmatched_columns], (), {"bucket": "-1"})
    table = None if source is None else source.open()
    for address, fixed in ((pending, pending_columns), (unmatched, unmatched_columns)):
        follow(address, [column.name for column in fixed], source_columns, table)


@dataclass(frozen=True)
class PendingState:
    """The number of pending rows at a snapshot, and when the next one is due (epoch ms)."""

    snapshot: int | None
    rows: int
    next_due_ms: int | None

    def due(self, now_ms: int) -> bool:
        """Whether any row is due."""
        return self.next_due_ms is not None and self.next_due_ms <= now_ms


class PendingRows:
    """Reads the pending rows of one query."""

    def __init__(self, address: TableAddress, query_id: str) -> None:
        self._address = address
        self._query_id = query_id
        self._waiting = PendingState(None, 0, None)

    def waiting(self, within_s: float = 0.0) -> PendingState:
        """The state at the newest snapshot; reads the table only if it has changed.

        `within_s`: as in `Table.latest_snapshot_id`.
        """
        latest = self._address.follow().latest_snapshot_id(within_s)
        if latest is not None and latest != self._waiting.snapshot:
            rows = self.read(latest, (QUERY, ROW_ID, DUE, ATTEMPTS))
            # A row behind another one is retried with that one.
            first = rows.filter(pc.greater_equal(rows.column(ATTEMPTS), 0)).column(DUE)
            due = pc.min(first.cast(_TIME).cast(pa.int64())).as_py() if len(first) else None
            self._waiting = PendingState(latest, rows.num_rows, due)
        return self._waiting

    def read(self, snapshot: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The query's pending rows as of a snapshot, sorted by row id."""
        table = self._address.follow()
        rows = rows_of_query(table, QUERY, self._query_id, columns, snapshot=snapshot)
        return rows.sort_by(ROW_ID)


def as_source(rows: pa.Table, changelog: bool) -> pa.Table:
    """Pending rows as the source produced them."""
    source = rows.drop_columns([QUERY, ROW_ID, DUE, ATTEMPTS])
    if not changelog:
        return source
    kinds = source.column(KIND)
    return source.drop_columns([KIND]).append_column(ROW_KIND, kinds)


def as_waiting(
    source: pa.Table, query_id: str, row_ids: pa.Array, due_ms: int, attempts: pa.Array
) -> pa.Table:
    """Source rows as rows of the pending table, without row kinds for the write."""
    count = source.num_rows
    columns = {
        QUERY: pa.repeat(pa.scalar(query_id), count),
        ROW_ID: row_ids,
        DUE: pa.repeat(pa.scalar(due_ms, pa.int64()).cast(_TIME), count),
        ATTEMPTS: attempts,
    }
    for name, column in zip(source.column_names, source.columns, strict=True):
        columns[KIND if name == ROW_KIND else name] = column
    return pa.table(columns)


def as_unmatched(source: pa.Table, attempts: pa.Array, now_ms: int) -> pa.Table:
    """Source rows as rows of the unmatched table."""
    if ROW_KIND in source.column_names:
        kinds = source.column(ROW_KIND)
        source = source.drop_columns([ROW_KIND]).append_column(KIND, kinds)
    missed_at = pa.repeat(pa.scalar(now_ms, pa.int64()).cast(_TIME), source.num_rows)
    return source.append_column(ATTEMPTS, attempts).append_column(MISSED_AT, missed_at)
