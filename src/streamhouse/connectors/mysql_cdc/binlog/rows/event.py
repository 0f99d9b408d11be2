"""Row events of a followed table, and their decoders."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.format import decode
from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    DELETES,
    HEADER,
    INSERTS,
    ROWS_2,
    UPDATES,
)
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import LoggedColumn, packed
from streamhouse.connectors.mysql_cdc.binlog.format.temporal import Read
from streamhouse.connectors.mysql_cdc.binlog.rows.arrays import ToArray, to_array
from streamhouse.errors import ConnectError
from streamhouse.mysql.charsets import charsets_of
from streamhouse.mysql.position import START_AGAIN
from streamhouse.mysql.values.dates import DateReading
from streamhouse.mysql.values.types import MySqlColumn

Row: TypeAlias = tuple[Any, ...]


class Change(NamedTuple):
    """The change of one row: its images before and after, of the captured columns in their order.

    `seconds`: when the server executed the change, since 1970 (UTC).
    """

    before: Row | None
    after: Row | None
    seconds: int


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
    def readers(self) -> list[Read]:
        """The decoders of a row's columns; those of columns that are not captured return None."""
        wanted = dict(zip(self.indexes, self.captured.columns, strict=True))
        return [
            self._reader(wire, column or wanted[index])
            if index in wanted
            else decode.skipper(wire, column)
            for index, (wire, column) in enumerate(self.columns)
        ]

    @functools.cached_property
    def widths(self) -> list[decode.Width]:
        return [decode.width(wire, column) for wire, column in self.columns]

    @functools.cached_property
    def arrays(self) -> list[ToArray]:
        """The conversions of the captured columns to Arrow, in their order."""
        made = []
        for index, captured in zip(self.indexes, self.captured.columns, strict=True):
            wire, known = self.columns[index]
            column = known or captured
            context = self._context(column)
            made.append(to_array(wire, column, context, self.readers[index], captured))
        return made

    @functools.cached_property
    def readings(self) -> list[DateReading]:
        """How to read dates of each captured column."""
        return [self.captured.date_reading(column) for column in self.captured.columns]

    @functools.cached_property
    def key_indexes(self) -> list[int]:
        """The indexes of the key's columns among the captured columns."""
        names = [column.name for column in self.captured.columns]
        return [names.index(column.name) for column in self.captured.table.key]

    def incomplete(self) -> ConnectError:
        """The error for an event that does not have all columns of its rows."""
        return ConnectError(
            f"the binlog of MySQL at {self.captured.options.address} contains incomplete rows of "
            f"{self.captured.table.full_name}; set binlog_row_image = FULL, in sessions too, and "
            f"{START_AGAIN}"
        )

    def _reader(self, wire: LoggedColumn, column: MySqlColumn) -> Read:
        return decode.reader(wire, column, self._context(column))

    def _context(self, column: MySqlColumn) -> decode.Context:
        captured = self._captured.get(column.name, column)
        reading = self.captured.date_reading(column)
        return decode.Context(charsets_of(self.captured.options), reading, captured.fraction)

    @functools.cached_property
    def _captured(self) -> dict[str, MySqlColumn]:
        return {column.name: column for column in self.captured.columns}


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

    def changes(self) -> Iterator[Change]:
        """The changes of rows in the event; raises `ConnectError` for incomplete rows."""
        seconds = int.from_bytes(self.data[self.at : self.at + 4], "little")
        images = self._images()
        if self.kind in INSERTS:
            changes = (Change(None, image, seconds) for image in images)
        elif self.kind in DELETES:
            changes = (Change(image, None, seconds) for image in images)
        else:
            pairs = zip(images[::2], images[1::2], strict=True)
            changes = (Change(before, after, seconds) for before, after in pairs)
        for _ in range(self.skipped):
            next(changes, None)
        return changes

    def _images(self) -> Sequence[Row]:
        kind, data, table = self.kind, self.data, self.table
        at = self.at + HEADER.size + 8
        if kind in ROWS_2:
            at += int.from_bytes(data[at : at + 2], "little")
        count, at = packed(data, at)
        size = (count + 7) // 8
        for _ in range(2 if kind in UPDATES else 1):
            if int.from_bytes(data[at : at + size], "little") + 1 < 1 << count:
                raise table.incomplete()
            at += size
        return decode.rows(data, at, self.end, table.readers, table.indexes)
