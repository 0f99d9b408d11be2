"""Collects row events of one table and decodes them together, to Arrow columns."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.format import decode
from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    DELETES,
    HEADER,
    INSERTS,
    ROWS_2,
    UPDATES,
)
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import LoggedColumn
from streamhouse.connectors.mysql_cdc.binlog.rows.arrays import ToArray, to_array
from streamhouse.connectors.mysql_cdc.binlog.rows.images import Block, IntArray, find_images
from streamhouse.errors import ConnectError
from streamhouse.mysql.charsets import charsets_of
from streamhouse.mysql.position import START_AGAIN
from streamhouse.mysql.values.types import MySqlColumn

MOST_BYTES = 8 * 1024 * 1024
"""How many bytes of events to decode together; larger batches are not faster."""
ROW_BITS = 32
"""A row's number is that of its event, shifted left by so many bits, plus its own in the event."""
_KINDS = pa.array(["+I", "-U", "+U", "-D"])
_INSERT, _BEFORE, _AFTER, _DELETE = range(4)
_BEFORES = pa.array(["-U", "-D"])
_POST_HEADER = HEADER.size + 8
Seconds: TypeAlias = Sequence[int] | npt.NDArray[np.int64]
"""When changes were executed, since 1970 (UTC)."""


@dataclass(frozen=True)
class LoggedTable:
    """How one TABLE_MAP event describes a followed table.

    `columns`: all of its columns in their order, each with the table's column (None: not known).
    `indexes`: of the captured columns among them, in the order of `captured`.
    """

    captured: CapturedTable
    columns: tuple[tuple[LoggedColumn, MySqlColumn | None], ...]
    indexes: tuple[int, ...]

    @functools.cached_property
    def widths(self) -> list[decode.Width]:
        return [decode.width(wire, column) for wire, column in self.columns]

    @functools.cached_property
    def arrays(self) -> list[ToArray]:
        """The conversions of the captured columns to Arrow, in their order."""
        made, charsets = [], charsets_of(self.captured.options)
        for index, captured in zip(self.indexes, self.captured.columns, strict=True):
            wire, known = self.columns[index]
            column = known or captured
            reading = self.captured.date_reading(column)
            context = decode.Context(charsets, reading, captured.fraction)
            made.append(to_array(wire, column, context, captured))
        return made

    def incomplete(self) -> ConnectError:
        """The error for an event that does not have all columns of its rows."""
        return ConnectError(
            f"the binlog of MySQL at {self.captured.options.address} contains incomplete rows of "
            f"{self.captured.table.full_name}; set binlog_row_image = FULL, in sessions too, and "
            f"{START_AGAIN}"
        )


class RowEvent(NamedTuple):
    """A row event at bytes `at` to `end` (without its checksum) of `data`.

    `skipped`: how many of its first changes are left out.
    """

    table: LoggedTable
    kind: int
    data: bytes
    at: int
    end: int
    skipped: int = 0


RowSelection: TypeAlias = Callable[[Sequence[pa.Array]], npt.NDArray[np.bool_]]
"""Selects rows by the columns of their key, such as those of a task's key group."""


class ChangedRows(NamedTuple):
    """Changed rows: their kinds, the plain arrays of the captured columns, and when (seconds).

    `numbers` increase in the order of the binlog, see `ROW_BITS`.
    """

    kinds: pa.Array
    columns: list[pa.Array]
    seconds: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]

    def befores(self) -> pa.Array:
        """Which rows are images of before a change."""
        return pc.is_in(self.kinds, value_set=_BEFORES)


_Run: TypeAlias = list[tuple[int, bytes, int, int]]
"""Successive events that one TABLE_MAP event describes: kind, bytes, `skipped` and number."""


def changed_pairs(
    columns: Sequence[pa.Array], befores: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """For each row of `befores`, whether a column differs between it and the row after it."""
    first, second = pa.array(befores), pa.array(befores + 1)
    changed = np.zeros(len(befores), np.bool_)
    for column in columns:
        before, after = column.take(first), column.take(second)
        both_null = pc.and_(pc.is_null(before), pc.is_null(after))
        same = pc.or_(pc.fill_null(pc.equal(before, after), False), both_null)
        changed |= ~np.asarray(same, np.bool_)
    return changed


class BatchDecoder:
    """Collects row events of one table, and decodes them together.

    The caller drains it at about `MOST_BYTES`. `selection`: which rows to decode; None: all.
    """

    def __init__(self, selection: RowSelection | None = None) -> None:
        self._selection = selection
        self._runs: list[tuple[LoggedTable, _Run]] = []
        self._table: LoggedTable | None = None
        self.bytes = 0

    def add(self, event: RowEvent, number: int = 0) -> None:
        """Keep an event; copies its bytes out of the block that it is part of.

        `number`: its index among the events of several tables.
        """
        table, kind, data, at, end, skipped = event
        if table is not self._table:
            self._table = table
            self._runs.append((table, []))
        self._runs[-1][1].append((kind, data[at:end], skipped, number))
        self.bytes += end - at

    def drain(self) -> Iterator[ChangedRows]:
        """Decode and remove all events; yields no empty batches."""
        runs, self._runs, self._table, self.bytes = self._runs, [], None, 0
        for table, run in runs:
            rows = _RunDecoder(table, run).rows(self._selection)
            if len(rows.seconds):
                yield rows


class _RunDecoder:
    """Decodes the events of a run together, column by column."""

    def __init__(self, table: LoggedTable, run: _Run) -> None:
        self._table = table
        kinds, raw, skipped, numbers = zip(*run, strict=True)
        self._block = Block(*raw)
        sizes = np.fromiter(map(len, raw), np.int64, len(raw))
        self._ends: IntArray = np.cumsum(sizes)
        self._starts: IntArray = self._ends - sizes
        self._kinds = np.array(kinds, np.int64)
        self._updates = np.isin(self._kinds, list(UPDATES))
        # The images of the skipped changes, of which an update has two.
        self._skipped = np.array(skipped, np.int64) * np.where(self._updates, 2, 1)
        self._numbers = np.array(numbers, np.int64) << ROW_BITS

    def rows(self, selection: RowSelection | None) -> ChangedRows:
        """The changed rows; raises `ConnectError` for incomplete rows."""
        table, block = self._table, self._block
        try:
            starts, wanted = self._first_images(), frozenset(table.indexes)
            images = find_images(block, starts, self._ends, table.widths, wanted)
        except (ValueError, IndexError) as error:
            raise self._broken(str(error)) from None
        values = [images.columns[index] for index in table.indexes]
        at = table.captured.key_indexes
        known = {index: table.arrays[index](block, values[index]) for index in at}
        key = [known[index] for index in at]
        kinds = self._row_kinds(images.events, images.numbers, key)
        seconds = block.words_at(self._starts, "<u4").astype(np.int64)[images.events]
        numbers = self._numbers[images.events] + images.numbers
        mask = images.numbers >= self._skipped[images.events]
        if selection is not None:
            mask &= selection(key)
        if not mask.all():
            (chosen,) = np.nonzero(mask)
            known = {index: array.take(pa.array(chosen)) for index, array in known.items()}
            values = [value.some(chosen) for value in values]
            kinds, seconds, numbers = kinds[chosen], seconds[chosen], numbers[chosen]
        columns = [
            known[index] if index in known else table.arrays[index](block, values[index])
            for index in range(len(values))
        ]
        return ChangedRows(_KINDS.take(pa.array(kinds)), columns, seconds, numbers)

    def _first_images(self) -> IntArray:
        """The offsets of the first image of each event; checks that images have all columns."""
        block, kinds = self._block, self._kinds
        at = self._starts + _POST_HEADER
        extra = np.isin(kinds, list(ROWS_2))
        if extra.any():
            at = at + np.where(extra, block.lengths_at(at, 2), 0)
        count = len(self._table.columns)
        at = at + (1 if count < 251 else 3)
        size = (count + 7) // 8
        updates = self._updates
        for index in range(size):
            full = 0xFF if index < count // 8 else (1 << count % 8) - 1
            present = block.bytes_at(at + index)
            after = block.bytes_at(at + size + index)
            if ((present & full) != full).any() or ((after & full) != full)[updates].any():
                raise self._table.incomplete()
        return at + np.where(updates, 2 * size, size)

    def _row_kinds(
        self, events: IntArray, numbers: IntArray, keys: Sequence[pa.Array]
    ) -> npt.NDArray[np.int64]:
        """The numbers of `_KINDS`: an update that changes the key is a delete and an insert."""
        of_event = np.select(
            [np.isin(self._kinds, list(INSERTS)), np.isin(self._kinds, list(DELETES))],
            [_INSERT, _DELETE],
            _BEFORE,
        )
        kinds = of_event[events]
        updates = kinds == _BEFORE
        if not updates.any():
            return kinds
        (befores,) = np.nonzero(updates & (numbers % 2 == 0))
        afters = befores + 1
        if 2 * len(befores) != np.count_nonzero(updates):
            raise self._broken("an update has no row after it")
        kinds[afters] = _AFTER
        moved = changed_pairs(keys, befores)
        kinds[befores[moved]], kinds[afters[moved]] = _DELETE, _INSERT
        return kinds

    def _broken(self, reason: str) -> ConnectError:
        table = self._table.captured
        return ConnectError(
            f"the binlog of MySQL at {table.options.address} has row events of "
            f"{table.table.full_name} that cannot be decoded: {reason}"
        )
