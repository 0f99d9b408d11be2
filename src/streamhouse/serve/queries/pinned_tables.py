"""Pins each table of a query to one snapshot, so that the response can name what it read."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from streamhouse.duckdb_engine import Batches, warehouse_scanner
from streamhouse.errors import OptionError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.time_travel import parse_as_of, resolve, snapshot_of, table_as_of
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.serve.views.shown_table import ShownTable
from streamhouse.sql.options.time_travel_options import split_options
from streamhouse.sql.plan import AsOf, BoundedScan


def newest_rows(
    table: Table, columns: Sequence[str], snapshot: int | None, most: int
) -> Iterator[pa.RecordBatch]:
    """The last rows of a snapshot in the order of their files, which is that of their commits.

    Partitions are in the order of their names.
    """
    splits = table.splits(snapshot, in_commit_order=True)
    first, expected = len(splits), 0
    while True:
        while first and expected < most:
            first -= 1
            expected += sum(file.rows for file in SplitFrame.parse(splits[first]).files)
        tail, count = _tail(table.read(columns=columns, splits=splits[first:]), most)
        if count >= most or not first:
            return iter(tail)
        # Some rows have been deleted.
        expected = count


def _tail(batches: Iterator[pa.RecordBatch], most: int) -> tuple[list[pa.RecordBatch], int]:
    """The last rows of the batches, and their number."""
    tail: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        tail.append(batch)
        count += batch.num_rows
        while tail and count - tail[0].num_rows >= most:
            count -= tail.pop(0).num_rows
    if count > most:
        tail[0] = tail[0].slice(count - most)
        count = most
    return tail, count


@dataclass(frozen=True)
class PinnedTable:
    """A table as of one snapshot; `snapshot` is None before the first commit.

    `own_schema`: read with the columns that the table had at the snapshot. Otherwise with the
    current columns, as change streams do, even if a column was added after the snapshot.
    `last`: read only the newest rows of a table without a key, at most so many; None for all rows.
    """

    table: Table
    snapshot: Snapshot | None
    own_schema: bool = False
    last: int | None = None

    @property
    def shown(self) -> ShownTable:
        """The table as readers see it."""
        return ShownTable(self.table)

    @property
    def stamp(self) -> str:
        """A key that is unique for this state, also after the table is dropped and recreated."""
        snapshot = self.snapshot
        if snapshot is None:
            return f"empty {self.table.location} {self.table.schema_id}"
        return (
            f"{snapshot.id} {snapshot.time_ms} {snapshot.commit_user} {snapshot.schema_id} "
            f"{self.table.schema_id}"
        )

    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        if self.snapshot is None:
            return iter(())
        pinned = None if self.own_schema else self.snapshot.id
        if self.last is not None:
            return newest_rows(self.table, columns, pinned, self.last)
        return self.shown.read(columns, snapshot=pinned)


def pin_table(table: Table, as_of: AsOf | None = None) -> PinnedTable:
    """Pin the table at a point in time, by default at its newest snapshot.

    Raises `TableError` for a tag, snapshot or time that never existed, `DataLossError` for one that
    has expired, and `OptionError` for one that is out of range.
    """
    if not as_of:
        latest = table.latest_snapshot_id()
        return PinnedTable(table, None if latest is None else table.snapshot(latest))
    with _in_range():
        as_of = resolve(table, as_of)
        snapshot = snapshot_of(table, as_of)
        return PinnedTable(table_as_of(table, as_of) if as_of else table, snapshot, own_schema=True)


@contextlib.contextmanager
def _in_range() -> Iterator[None]:
    """Raise `OptionError` for a point in time that cannot be represented."""
    try:
        yield
    except (ValueError, OverflowError):
        raise OptionError(
            "parameter 'as_of' is out of range; give a snapshot's number, a tag, a time such as "
            "2026-01-01 00:00:00 (UTC), or a relative time such as '5 min ago'"
        ) from None


@dataclass
class PinnedTables:
    """The tables of one query, each pinned when it is first used.

    `as_of` applies to tables for which the query names no point in time: a snapshot id, a tag, a
    time (UTC), or a duration such as `5 min ago`; None: the newest snapshot.
    """

    warehouse: Warehouse
    as_of: str | None = None
    tables: dict[str, PinnedTable] = field(default_factory=dict)

    @property
    def snapshot(self) -> int | None:
        """The snapshot id of the only table; of several the sum, which grows with each commit."""
        ids = [pin.snapshot.id for pin in self.tables.values() if pin.snapshot is not None]
        return sum(ids) if ids else None

    @property
    def time_ms(self) -> int | None:
        """The commit time of the newest of the snapshots, in milliseconds since 1970."""
        times = [pin.snapshot.time_ms for pin in self.tables.values() if pin.snapshot is not None]
        return max(times, default=None)

    @property
    def records(self) -> int:
        """The number of records of all tables; each version of a row counts."""
        snapshots = (pin.snapshot for pin in self.tables.values())
        return sum(
            snapshot.total_record_count or 0 for snapshot in snapshots if snapshot is not None
        )

    @property
    def stamp(self) -> str:
        """A key that is unique for the state of all tables."""
        return "\n".join(f"{name} {pin.stamp}" for name, pin in sorted(self.tables.items()))

    def get(self, name: str) -> PinnedTable:
        """The pinned table `database.table`."""
        if name not in self.tables:
            table = self.warehouse.table(name)
            with _in_range():
                as_of = None if self.as_of is None else parse_as_of(table, self.as_of)
            self.tables[name] = pin_table(table, as_of)
        return self.tables[name]

    def keep_newest(self, name: str, most: int | None) -> None:
        """Let reads of a table without a key return only its newest rows, at most so many."""
        self.tables[name] = replace(self.get(name), last=most)

    def scanner(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        """The schema of a scan, and a function that reads it; a `Scanner` of `engine`."""
        if not is_data(scan):
            return warehouse_scanner(self.warehouse)(scan)
        pin, columns = self._pin(scan), list(scan.columns)
        return pin.shown.read_schema(columns), lambda: pin.read(columns)

    def pin_all(self, scans: tuple[BoundedScan, ...]) -> None:
        """Pin all tables of a plan before any is read."""
        for scan in scans:
            if is_data(scan):
                self.get(full_name(scan))

    def _pin(self, scan: BoundedScan) -> PinnedTable:
        options, hinted = split_options(scan.options)
        as_of, name = scan.as_of or hinted, full_name(scan)
        if as_of:
            return pin_table(self._with(self.warehouse.table(name), options), as_of)
        pinned_table = self.get(name)
        return replace(pinned_table, table=self._with(pinned_table.table, options))

    @staticmethod
    def _with(table: Table, options: Mapping[str, str]) -> Table:
        return table.copy(options) if options else table


def full_name(scan: BoundedScan) -> str:
    """`database.table` of a scan's table."""
    return ".".join(scan.table.name[-2:])


def is_data(scan: BoundedScan) -> bool:
    """Whether a scan reads a table or a branch, not a system table."""
    return "$" not in scan.table.name[-1].replace("$branch_", "", 1)
