"""Tables as they are read by one answer: each as of one snapshot, which the answer can name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamhouse.engine import Batches
from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.read.time_travel import named, pinned, record, settled
from streamhouse.sql.options.time_travel import split_options
from streamhouse.sql.plan import AsOf, BoundedScan

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.paimon.read.table import Table
    from streamhouse.paimon.storage.snapshots import Snapshot


@dataclass(frozen=True)
class Pin:
    """A table as of one snapshot, None where it has none.

    `then`: with the columns that it had then; else with those of now, as streams of changes show
    it, also where a column was added after the snapshot.
    """

    table: Table
    snapshot: Snapshot | None
    then: bool = False

    @property
    def stamp(self) -> str:
        """Tells this state from every other, also from those of a table of the same name."""
        one = self.snapshot
        if one is None:
            return f"empty {self.table.location} {self.table.schema_id}"
        return f"{one.id} {one.time_ms} {one.commit_user} {one.schema_id} {self.table.schema_id}"

    def schema(self, columns: list[str]) -> pa.Schema:
        return self.table.read_schema(columns)

    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        if self.snapshot is None:
            return iter(())
        if self.then:
            return self.table.read(columns=columns)
        return self.table.read(columns=columns, snapshot=self.snapshot.id)


def pin(table: Table, moment: AsOf | None = None) -> Pin:
    """The table at a moment, by default at its newest snapshot.

    `TableError` for a tag, snapshot or time that never was, `DataLossError` for one that expired.
    """
    if not moment:
        latest = table.latest_snapshot_id()
        return Pin(table, None if latest is None else table.snapshot(latest))
    try:
        found = settled(table, moment)
        snapshot = record(table, found)
        return Pin(pinned(table, found) if found else table, snapshot, then=True)
    except (ValueError, OverflowError):
        raise _no_moment() from None


def moment_of(table: Table, text: str) -> AsOf:
    """A moment as people write it: a snapshot's number, a tag, a time, or `5 min ago`."""
    try:
        return named(table, text)
    except (ValueError, OverflowError):
        raise _no_moment() from None


def _no_moment() -> OptionError:
    return OptionError(
        "parameter 'as_of': that is no moment; give a snapshot's number, a tag, a time such as "
        "2026-01-01 00:00:00 (UTC), or such as '5 min ago'"
    )


@dataclass
class Pins:
    """The tables of one query, each pinned when it is first met.

    `moment` is when tables are read that name no moment themselves: text as in `moment_of`.
    """

    warehouse: Warehouse
    moment: str | None = None
    held: dict[str, Pin] = field(default_factory=dict)

    @property
    def snapshot(self) -> int | None:
        """The snapshot of the only table; of several the sum of theirs, which grows as well."""
        ids = [pin.snapshot.id for pin in self.held.values() if pin.snapshot is not None]
        return sum(ids) if ids else None

    @property
    def time_ms(self) -> int | None:
        """When the newest of the snapshots was committed, in milliseconds since 1970."""
        times = [pin.snapshot.time_ms for pin in self.held.values() if pin.snapshot is not None]
        return max(times, default=None)

    @property
    def records(self) -> int:
        """How many records the tables have, each version of a row counted."""
        snapshots = (pin.snapshot for pin in self.held.values())
        return sum(one.total_record_count or 0 for one in snapshots if one is not None)

    @property
    def stamp(self) -> str:
        """Tells what was read from every other state of the tables."""
        return "\n".join(f"{name} {pin.stamp}" for name, pin in sorted(self.held.items()))

    def take(self, name: str) -> Pin:
        """The pinned table `database.table`."""
        if name not in self.held:
            table = self.warehouse.table(name)
            asked = None if self.moment is None else moment_of(table, self.moment)
            self.held[name] = pin(table, asked)
        return self.held[name]

    def scanner(self, scan: BoundedScan) -> tuple[pa.Schema, Batches]:
        """Reads a scan; a `Scanner` of `streamhouse.engine`."""
        source: Any = self._source(scan)
        columns = list(scan.columns)
        if isinstance(source, Pin):
            return source.schema(columns), lambda: source.read(columns)
        return source.read_schema(columns), lambda: source.read(columns=columns)

    def hold(self, scans: tuple[BoundedScan, ...]) -> None:
        """Pin all tables of a plan before any is read."""
        for scan in scans:
            if is_data(scan):
                self.take(full_name(scan))

    def _source(self, scan: BoundedScan) -> Any:
        options, hinted = split_options(scan.options)
        moment, name = scan.as_of or hinted, full_name(scan)
        if not is_data(scan):
            return self.warehouse.readable(name, moment, options, pin=True)
        if moment:
            return pin(self._with(self.warehouse.table(name), options), moment)
        held = self.take(name)
        return Pin(self._with(held.table, options), held.snapshot, held.then)

    @staticmethod
    def _with(table: Table, options: Mapping[str, str]) -> Table:
        return table.copy(options) if options else table


def full_name(scan: BoundedScan) -> str:
    """`database.table` of a scan's table."""
    return ".".join(scan.table.name[-2:])


def is_data(scan: BoundedScan) -> bool:
    """Whether a scan is of a table or a branch, not of a system table."""
    return "$" not in scan.table.name[-1].replace("$branch_", "", 1)


@contextlib.contextmanager
def view_moments(name: str) -> Iterator[None]:
    """What a moment cannot be for a view is told of the view, not of a table below it."""
    try:
        yield
    except TableError as error:
        raise TableError(
            f"view '{name}' cannot be read as of that moment: {error}; a view takes a time, such "
            "as '5 min ago', which all of its tables must still have"
        ) from None
