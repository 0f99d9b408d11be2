"""The tables of a query that ends, read by its own conditions."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pypaimon_rust.datafusion import Split

from streamhouse.engine import Batches, warehouse_scanner
from streamhouse.errors import OptionError
from streamhouse.mysql import MySqlSource
from streamhouse.mysql.jdbc import parse as parse_jdbc
from streamhouse.mysql.keyed import KeyedTable
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.conditions import Filter
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.batch.progress_line import Progress
from streamhouse.runtime.batch.scan_pruning import Pruning
from streamhouse.runtime.session.connectors import connector_options
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.spec import SourceSpec
from streamhouse.sql.options.time_travel import split_options
from streamhouse.sql.plan import BoundedQuery, BoundedScan, TableInfo


class Scans:
    """The tables of a bounded query, read by its conditions; what is read shows as progress."""

    def __init__(self, session: Session, plan: BoundedQuery, shown: Progress) -> None:
        self._session = session
        self._plan = plan
        self._progress = shown
        self._pruning = Pruning(plan)

    @property
    def total(self) -> int | None:
        """How many rows the tables have in the files that are read; None if nobody knows."""
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
        """The rows of a scan, as the engine takes them."""
        table = self._table(scan)
        if table is None:
            schema, batches = scan_of(self._session, scan)
        else:
            columns, only = list(scan.columns), self._filter(scan, table)
            schema = table.read_schema(columns)

            def batches() -> Iterator[pa.RecordBatch]:
                return table.read(columns=columns, filter=only)

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches():
                self._progress.advance(batch.num_rows)
                yield batch

        return schema, counted

    def _table(self, scan: BoundedScan) -> Table | None:
        """The table at its moment; None for one of another connector, or a system table."""
        if scan.table.connector != "paimon":
            return None
        address = self._session.address(scan.table)
        options, hinted = split_options(scan.options)
        name = ".".join(scan.table.name[-2:])
        found = Warehouse(address.warehouse).readable(name, scan.as_of or hinted, options, pin=True)
        return found if isinstance(found, Table) else None

    def _filter(self, scan: BoundedScan, table: Table) -> Filter | None:
        return self._pruning.filter(scan.relation, table.arrow_schema)


def scan_of(session: Session, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
    """The rows of a table of the session, as the engine takes them."""
    if scan.table.connector == "paimon":
        address = session.address(scan.table)
        return warehouse_scanner(Warehouse(address.warehouse))(scan)
    if scan.table.connector == "jdbc":
        return _of_server(scan.table, scan.columns)
    return _foreign(scan.table, scan.columns)


def _of_server(table: TableInfo, columns: tuple[str, ...]) -> tuple[pa.Schema, Batches]:
    wanted = [column for column in table.columns if column.name in columns]
    opened = KeyedTable(parse_jdbc(connector_options(table)).server, wanted)
    opened.close()
    return opened.schema, opened.all_rows


def _foreign(table: TableInfo, columns: tuple[str, ...]) -> tuple[pa.Schema, Batches]:
    source = SourceSpec(table.connector, connector_options(table), table.columns).open()
    schema = pa.schema([source.schema.field(name) for name in columns])

    def read() -> Iterator[pa.RecordBatch]:
        if isinstance(source, MySqlSource):
            pieces = source.whole_table(1)
            for piece in pieces:
                for batch in source.read(piece):
                    yield batch.select(list(columns))
            return
        offset = source.initial_offset()
        while not source.finished(offset):
            end = source.latest_offset(offset)
            for piece in source.partitions(offset, end):
                for batch in source.read(piece):
                    yield batch.select(list(columns))
            offset = end

    if table.connector == "datagen" and not getattr(source, "bounded", False):
        raise OptionError(
            f"table {table.name[-1]} never ends, so a bounded query over it would not; give it "
            "'number-of-rows', or leave SET 'execution.runtime-mode' at 'streaming'"
        )
    return schema, read
