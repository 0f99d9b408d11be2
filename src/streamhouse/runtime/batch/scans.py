"""Scans the tables of a bounded query with filter pushdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pypaimon_rust.datafusion import Split

from streamhouse.connectors.registry import check_declaration, connector, effective_options
from streamhouse.duckdb_engine import Batches, warehouse_scanner
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.conditions import Filter
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.batch.progress_line import ProgressLine
from streamhouse.runtime.batch.scan_pruning import Pruning
from streamhouse.runtime.session.session import Session
from streamhouse.sql.options.time_travel_options import split_options
from streamhouse.sql.plan import BoundedQuery, BoundedScan


class Scans:
    """Opens a bounded query's scans, with pushdown conditions; rows read advance `progress`."""

    def __init__(self, session: Session, plan: BoundedQuery, progress: ProgressLine) -> None:
        self._session = session
        self._plan = plan
        self._progress = progress
        self._pruning = Pruning(plan)

    @property
    def total(self) -> int | None:
        """The number of rows in the files that are read; None if unknown."""
        total = 0
        for scan in self._plan.scans:
            table = self._table(scan)
            if table is None:
                return None
            total += sum(
                int(Split.deserialize(split).row_count())
                for split in table.splits(filter=self._filter(scan, table))
            )
        return total

    def open(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        """The schema and batches of a scan, for the engine; rows count as progress."""
        table = self._table(scan)
        if table is None:
            schema, batches = scan_of(self._session, scan)
        else:
            columns, condition = list(scan.columns), self._filter(scan, table)
            schema = table.read_schema(columns)

            def batches() -> Iterator[pa.RecordBatch]:
                return table.read(columns=columns, filter=condition)

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches():
                self._progress.advance(batch.num_rows)
                yield batch

        return schema, counted

    def _table(self, scan: BoundedScan) -> Table | None:
        """The Paimon table at the scan's snapshot; None for other connectors and system tables."""
        if scan.table.connector != "paimon":
            return None
        address = self._session.endpoints.address(scan.table)
        options, hinted = split_options(scan.options)
        name = ".".join(scan.table.name[-2:])
        table = Warehouse(address.warehouse).readable(name, scan.as_of or hinted, options, pin=True)
        return table if isinstance(table, Table) else None

    def _filter(self, scan: BoundedScan, table: Table) -> Filter | None:
        return self._pruning.filter(scan.relation, table.arrow_schema)


def scan_of(session: Session, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
    """The schema and batches of a scan, for the engine, without filter pushdown."""
    if scan.table.connector == "paimon":
        address = session.endpoints.address(scan.table)
        return warehouse_scanner(Warehouse(address.warehouse))(scan)
    table = scan.table
    if scan.options:
        table = replace(table, options={**table.options, **scan.options})
        check_declaration(table, f"table {'.'.join(table.name[1:])}")
    reader = connector(table.connector)
    return reader.scan(table, effective_options(table), scan.columns)
