"""Scans the tables of a bounded query with filter pushdown."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamhouse.connectors.registry import check_declaration
from streamhouse.duckdb_engine import Batches
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.split_groups import row_count
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
            table = _pinned(self._session, scan)
            if not isinstance(table, Table):
                return None
            condition = self._pruning.filter(scan.relation, table.arrow_schema)
            total += row_count(table.splits(filter=condition))
        return total

    def open(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        """The schema and batches of a scan, for the engine; rows count as progress."""
        schema, batches = scan_of(self._session, scan, self._pruning)

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches():
                self._progress.advance(batch.num_rows)
                yield batch

        return schema, counted


def scan_of(
    session: Session, scan: BoundedScan, pruning: Pruning | None = None
) -> tuple[pa.Schema, Batches]:
    """The schema and batches of a scan, for the engine; `pruning`: what it need not read."""
    found, columns = _pinned(session, scan), list(scan.columns)
    if isinstance(found, Table) and pruning is not None:
        condition = pruning.filter(scan.relation, found.arrow_schema)
        return found.read_schema(columns), lambda: found.read(columns=columns, filter=condition)
    if found is not None:
        return found.read_schema(columns), lambda: found.read(columns=columns)
    table = scan.table
    if scan.options:
        table = replace(table, options={**table.options, **scan.options})
        check_declaration(table, f"table {'.'.join(table.name[1:])}")
    return session.scan(table, scan.columns)


def _pinned(session: Session, scan: BoundedScan) -> Any:
    """The Paimon table, or system table, at the scan's snapshot; None for other connectors."""
    if scan.table.connector != "paimon":
        return None
    options, hinted = split_options(scan.options)
    warehouse = Warehouse(session.address(scan.table).warehouse)
    name = ".".join(scan.table.name[-2:])
    return warehouse.readable(name, scan.as_of or hinted, options, pin=True)
