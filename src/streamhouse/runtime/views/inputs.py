"""Reads the inputs of a view's refresh at the snapshots of its offset."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import duckdb
import pyarrow as pa

from streamhouse.arrow_batches import read_ahead
from streamhouse.duckdb_engine import Batches, Limits, Scanner, no_tables, opened, warehouse_scanner
from streamhouse.errors import SchemaChangeError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.conditions import Filter
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import converted, current_columns, with_planned_types
from streamhouse.runtime.batch.scan_pruning import Pruning
from streamhouse.runtime.views.net_change import is_read_alike
from streamhouse.runtime.views.spec import ViewSpec, table_key
from streamhouse.source import Offset
from streamhouse.sql.plan import BoundedQuery, BoundedScan

Splits: TypeAlias = Mapping[str, Sequence[bytes]]
"""Serialised splits, by the relation of their scan."""
MEMORY = "160MB"
"""What DuckDB uses for kept rows before it spills to files."""
NICENESS = 10
"""The priority of work on kept rows beside the batches, which go first."""


def _as_planned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the types with which the view was planned; `SchemaChangeError` for other values."""
    rows = with_planned_types(batch, schema)
    try:
        return converted(rows.rename_columns(schema.names), schema)
    except pa.ArrowInvalid as error:
        raise SchemaChangeError(
            "a column was widened, and has a value that does not fit the type that it had when "
            f"the view was planned: {error}; start the script again"
        ) from error


class ViewInputs:
    """Scans of a view's query at the snapshots of a batch's end offset; `rows` counts what is read.

    `read_rows` is called with that count after each batch of rows. `splits`: only these are read,
    by the relation of the scan.
    A snapshot that no longer exists, after a rollback or expiry, is replaced by the newest one: the
    next refresh finds that its position is another, and computes the view anew.
    """

    def __init__(
        self,
        spec: ViewSpec,
        end: Offset,
        read_rows: Callable[[int], None] = lambda rows: None,
        splits: Splits | None = None,
    ) -> None:
        self._spec, self._vector = spec, end["vector"]
        self._read_rows, self._splits = read_rows, splits
        self.rows = 0

    def scanner(self, query: BoundedQuery) -> Scanner:
        """Returns the schema and batches of a scan of a query, for the engine.

        Files that the conditions of the query exclude are not read.
        """
        pruning = Pruning(query)

        def opened_scan(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
            address = self._spec.address(scan)
            if address is None:
                return warehouse_scanner(Warehouse(self._spec.target.warehouse))(scan)
            condition = pruning.filter(scan.relation, address.planned().arrow_schema)
            splits = None if self._splits is None else self._splits.get(scan.relation, ())
            return self.open_table(address, scan.columns, condition, splits)

        return opened_scan

    def splits(self, scan: BoundedScan) -> list[bytes]:
        """The splits of a scan of the view's query, in a stable order."""
        address = self._spec.addresses[scan.relation]
        table, snapshot = address.planned(), int(self._vector[table_key(address)]["snapshot"])
        condition = Pruning(self._spec.plan.query).filter(scan.relation, table.arrow_schema)
        return table.splits(snapshot, condition)

    def open_table(
        self,
        address: TableAddress,
        names: Sequence[str],
        condition: Filter | None = None,
        splits: Sequence[bytes] | None = None,
    ) -> tuple[pa.Schema, Batches]:
        """The schema and batches of columns of an input, or of some splits, for the engine."""
        table, newest = address.planned(), address.open()
        columns, current = list(names), current_columns(newest, table.schema_id, names)
        snapshot = int(self._vector[table_key(address)]["snapshot"])
        schema, alike = table.read_schema(columns), is_read_alike(newest, table, columns)
        if not alike:
            # The core refuses new nulls, and reads values that do not fit the type as null.
            table, columns, condition = newest, current, None
            schema = pa.schema([field.with_nullable(True) for field in schema])

        read = partial(self._read, table, snapshot, columns, condition)
        if splits is not None:
            read = partial(table.read, columns, filter=condition, splits=splits)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in read_ahead(read):
                self.rows += batch.num_rows
                self._read_rows(self.rows)
                yield batch if alike else _as_planned(batch, schema)

        return schema, batches

    def _read(
        self, table: Table, snapshot: int, columns: list[str], condition: Filter | None
    ) -> Iterator[pa.RecordBatch]:
        if snapshot and table.snapshots.find(snapshot) is None:
            snapshot = table.latest_snapshot_id() or 0
        return table.read(columns=columns, snapshot=snapshot, filter=condition)


def opened_alone(
    spec: ViewSpec,
    limits: Limits,
    threads: int,
    now_ms: int | None = None,
    more: Mapping[str, tuple[pa.Schema, Batches]] = MappingProxyType({}),
    lasting: AbstractContextManager[duckdb.DuckDBPyConnection] | None = None,
) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """As `duckdb_engine.opened` for a view's query, without the query's tables."""
    query = replace(spec.plan.query, scans=())
    return opened(
        query, no_tables, limits, threads=threads, now_ms=now_ms, more=more, lasting=lasting
    )
