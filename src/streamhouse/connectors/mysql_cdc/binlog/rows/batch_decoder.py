"""Collects row events of one table and decodes them together, to Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    DELETES,
    HEADER,
    INSERTS,
    ROWS_2,
    UPDATES,
)
from streamhouse.connectors.mysql_cdc.binlog.rows.event import LoggedTable, Row, RowEvent
from streamhouse.connectors.mysql_cdc.binlog.rows.images import Block, ImageFinder, IntArray, Values
from streamhouse.errors import ConnectError
from streamhouse.mysql.values.types import from_values

MOST_BYTES = 8 * 1024 * 1024
"""How many bytes of events to decode together; larger batches are not faster."""
ROW_BITS = 32
"""A row's number is that of its event, shifted left by so many bits, plus its own in the event."""
_FEW_BYTES = 8 * 1024
"""Fewer bytes are decoded value by value, which is faster for them."""
_KINDS = pa.array(["+I", "-U", "+U", "-D"])
_INSERT, _BEFORE, _AFTER, _DELETE = range(4)
_POST_HEADER = HEADER.size + 8


Seconds: TypeAlias = Sequence[int] | npt.NDArray[np.int64]
"""When changes were executed, since 1970 (UTC)."""


class RowSelection(Protocol):
    """Selects rows by some of their columns, such as those of a task's key group."""

    @property
    def key_indexes(self) -> Sequence[int]:
        """The indexes of these columns among the captured ones."""

    def mask(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Which rows are selected, by these columns."""


class ChangedRows(NamedTuple):
    """Changed rows: their kinds, the plain arrays of the captured columns, and when (seconds).

    `numbers` increase in the order of the binlog, see `ROW_BITS`.
    """

    kinds: pa.Array
    columns: list[pa.Array]
    seconds: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]


@dataclass
class _Run:
    """Successive events to which one TABLE_MAP event applies."""

    table: LoggedTable
    kinds: list[int] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def events(self) -> Iterator[RowEvent]:
        for kind, raw, skipped in zip(self.kinds, self.raw, self.skipped, strict=True):
            yield RowEvent(self.table, kind, raw, 0, len(raw), skipped)


class BatchDecoder:
    """Collects row events of one table, and decodes them together.

    The caller drains it at about `MOST_BYTES`. `selection`: which rows to decode; None: all.
    """

    def __init__(self, selection: RowSelection | None = None) -> None:
        self._selection = selection
        self._runs: list[_Run] = []
        self._table: LoggedTable | None = None
        self.bytes = 0

    def add(self, event: RowEvent, number: int = 0) -> None:
        """Keep an event; copies its bytes out of the block that it is part of.

        `number`: its index among the events of several tables.
        """
        table, kind, data, at, end, skipped = event
        if table is not self._table:
            self._table, self._run = table, _Run(table)
            self._runs.append(self._run)
        run = self._run
        run.kinds.append(kind)
        run.raw.append(data[at:end])
        run.skipped.append(skipped)
        run.numbers.append(number)
        self.bytes += end - at

    def drain(self) -> Iterator[ChangedRows]:
        """Decode and remove all events; yields no empty batches."""
        runs, self._runs, self._table, self.bytes = self._runs, [], None, 0
        for run in runs:
            rows = self._decoded(run)
            if len(rows.seconds):
                yield rows

    def _decoded(self, run: _Run) -> ChangedRows:
        if sum(map(len, run.raw)) < _FEW_BYTES or any(run.skipped):
            return _selected(_one_by_one(run), self._selection)
        return _RunDecoder(run).rows(self._selection)


def _selected(rows: ChangedRows, selection: RowSelection | None) -> ChangedRows:
    if selection is None or not len(rows.seconds):
        return rows
    selected = selection.mask([rows.columns[index] for index in selection.key_indexes])
    mask = pa.array(selected)
    columns = [column.filter(mask) for column in rows.columns]
    return ChangedRows(
        rows.kinds.filter(mask), columns, rows.seconds[selected], rows.numbers[selected]
    )


def _one_by_one(run: _Run) -> ChangedRows:
    table = run.table
    kinds: list[int] = []
    rows: list[Row] = []
    seconds: list[int] = []
    numbers: list[int] = []
    for number, event in zip(run.numbers, run.events(), strict=True):
        first = len(rows)
        for before, after, at in event.changes():
            if before is None or after is None:
                kinds.append(_INSERT if before is None else _DELETE)
            else:
                moved = any(before[index] != after[index] for index in table.key_indexes)
                kinds += (_DELETE, _INSERT) if moved else (_BEFORE, _AFTER)
            for image in (before, after):
                if image is not None:
                    numbers.append((number << ROW_BITS) + len(rows) - first)
                    rows.append(image)
                    seconds.append(at)
    columns = zip(*rows, strict=True) if rows else ((),) * len(table.captured.columns)
    arrays = [
        from_values(column, values, reading)
        for column, values, reading in zip(
            table.captured.columns, columns, table.readings, strict=True
        )
    ]
    return ChangedRows(
        _KINDS.take(pa.array(kinds, pa.int8())),
        arrays,
        np.array(seconds, np.int64),
        np.array(numbers, np.int64),
    )


class _RunDecoder:
    """Decodes the events of a run together, column by column."""

    def __init__(self, run: _Run) -> None:
        self._table = run.table
        self._block = Block(*run.raw)
        sizes = np.fromiter(map(len, run.raw), np.int64, len(run.raw))
        self._ends: IntArray = np.cumsum(sizes)
        self._starts: IntArray = self._ends - sizes
        self._kinds = np.array(run.kinds, np.int64)
        self._numbers = np.array(run.numbers, np.int64) << ROW_BITS

    def rows(self, selection: RowSelection | None) -> ChangedRows:
        """The changed rows; raises `ConnectError` for incomplete rows."""
        table, block = self._table, self._block
        finder = ImageFinder(table.widths, table.indexes)
        try:
            images = finder.find(block, self._first_images(), self._ends)
        except (ValueError, IndexError) as error:
            raise self._broken(str(error)) from None
        values = [images.columns[index] for index in table.indexes]
        early = set(table.key_indexes) | set(() if selection is None else selection.key_indexes)
        known = {index: table.arrays[index](block, values[index]) for index in sorted(early)}
        kinds = self._row_kinds(
            images.events, images.numbers, [known[p] for p in table.key_indexes]
        )
        seconds = block.words_at(self._starts, "<u4").astype(np.int64)[images.events]
        numbers = self._numbers[images.events] + images.numbers
        if selection is not None:
            mask = selection.mask([known[index] for index in selection.key_indexes])
            if not mask.all():
                (chosen,) = np.nonzero(mask)
                known = {index: array.take(pa.array(chosen)) for index, array in known.items()}
                values = [value.some(chosen) for value in values]
                kinds, seconds, numbers = kinds[chosen], seconds[chosen], numbers[chosen]
        columns = [self._column(index, known, values) for index in range(len(values))]
        return ChangedRows(_KINDS.take(pa.array(kinds)), columns, seconds, numbers)

    def _column(self, index: int, known: dict[int, pa.Array], values: Sequence[Values]) -> pa.Array:
        if index in known:
            return known[index]
        return self._table.arrays[index](self._block, values[index])

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
        updates = np.isin(kinds, list(UPDATES))
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
        first, second = pa.array(befores), pa.array(afters)
        moved = np.zeros(len(befores), np.bool_)
        for key in keys:
            same = pc.equal(key.take(first), key.take(second))
            moved |= ~same.to_numpy(zero_copy_only=False).astype(np.bool_)
        kinds[befores[moved]], kinds[afters[moved]] = _DELETE, _INSERT
        return kinds

    def _broken(self, reason: str) -> ConnectError:
        table = self._table.captured
        return ConnectError(
            f"the binlog of MySQL at {table.options.address} has row events of "
            f"{table.table.full_name} that cannot be decoded: {reason}"
        )
