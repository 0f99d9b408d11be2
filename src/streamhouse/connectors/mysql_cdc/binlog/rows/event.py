"""Row events of a followed table, and how their columns are decoded."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.format import decode
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import LoggedColumn
from streamhouse.connectors.mysql_cdc.binlog.rows.arrays import ToArray, to_array
from streamhouse.errors import ConnectError
from streamhouse.mysql.charsets import charsets_of
from streamhouse.mysql.position import START_AGAIN
from streamhouse.mysql.values.types import MySqlColumn


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
