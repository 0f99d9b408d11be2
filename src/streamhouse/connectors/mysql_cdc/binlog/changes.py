"""Decodes binlog events into changes of one table; skips events of other tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pymysql.protocol import MysqlPacket
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import TableMapEvent

from streamhouse.connectors.mysql_cdc.binlog import decode
from streamhouse.connectors.mysql_cdc.binlog.events import (
    CHECKSUM_BYTES,
    COMPRESSED,
    DELETES,
    HEADER,
    INSERTS,
    PARTIAL_UPDATE,
    QUERY,
    ROWS,
    ROWS_2,
    TABLE_MAP,
    UPDATES,
    query_of,
)
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.position import Position
from streamhouse.connectors.mysql_cdc.server.table import TableDefinition
from streamhouse.connectors.mysql_cdc.server.types import MySqlColumn
from streamhouse.errors import ConnectError, DataLossError, SchemaChangeError

Row = tuple[Any, ...]

_STATEMENT = re.compile(
    r"^\s*(?:/\*.*?\*/\s*)*(TRUNCATE|DROP|RENAME|INSERT|UPDATE|DELETE|REPLACE|LOAD)\b",
    re.IGNORECASE | re.DOTALL,
)
_DROP_TABLE = re.compile(r"^.*?\bDROP\s+(TABLE|DATABASE|SCHEMA)\b", re.IGNORECASE | re.DOTALL)
_DROP_DATABASE = re.compile(r"\bDROP\s+(DATABASE|SCHEMA)\b", re.IGNORECASE)
_START_AGAIN = "start again with a new checkpoint"
_REDECLARE = (
    "declare the table's current columns and run the script again: it resumes from there "
    f"(if columns were added, {_START_AGAIN})"
)
_MAP_BODY = HEADER.size + 8
"""Where the names start in a TABLE_MAP event: after the table's number and flags."""


class Change(NamedTuple):
    """The change of one row; the images contain the captured columns in their order."""

    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class CapturedTable:
    """A table whose changes are captured, and the columns to read, in order.

    `relay`: the folder of a relay log that has the table's changes, if any.
    """

    options: MySqlOptions
    table: TableDefinition
    columns: tuple[MySqlColumn, ...]
    mariadb: bool = True
    relay: Path | None = None


class _Readers(NamedTuple):
    """The decoders of a row's columns, for one TABLE_MAP event's description of the table."""

    columns: list[decode.Read]
    column_indexes: list[int]


class ChangeDecoder:
    """Decodes events into changes of the followed table; remembers the last TABLE_MAP events.

    The first event must follow the end of a transaction. Raises `SchemaChangeError`,
    `DataLossError` or `ConnectError` for events that cannot be followed.
    """

    def __init__(self, captured: CapturedTable) -> None:
        self._captured = captured
        table = captured.table
        self._names = names_of(table.database, table.name)
        self._by_table_id: dict[bytes, _Readers] = {}
        self._by_map_body: dict[bytes, _Readers] = {}

    def wants(self, kind: int, data: bytes, at: int, end: int) -> bool:
        """Whether `take` needs this TABLE_MAP, QUERY or compressed event of a transaction."""
        return kind != TABLE_MAP or data.startswith(self._names, at + _MAP_BODY)

    def take(self, kind: int, data: bytes, at: int, end: int, where: Position) -> Iterable[Change]:
        """The changes in the event at bytes `at` to `end`, without its checksum.

        `where` is the event's position, for error messages.
        """
        if kind in ROWS:
            readers = self._by_table_id.get(table_number(data, at))
            return () if readers is None else self._rows(kind, readers, data, at, end)
        if kind == TABLE_MAP:
            self._map(data, at, end, where)
        elif kind == QUERY:
            self._check_statement(*query_of(data, at, end), where)
        elif kind in COMPRESSED or (
            kind == PARTIAL_UPDATE and table_number(data, at) in self._by_table_id
        ):
            raise ConnectError(
                f"the binlog of MySQL at {self._captured.options.address} contains compressed "
                "or partial row events, which are not supported; set log_bin_compress = OFF, "
                "binlog_transaction_compression = OFF, binlog_row_value_options = ''"
            )
        return ()

    def _map(self, data: bytes, at: int, end: int, where: Position) -> None:
        number = table_number(data, at)
        if not data.startswith(self._names, at + _MAP_BODY):
            self._by_table_id.pop(number, None)
            return
        body = data[at + _MAP_BODY : end]
        if body not in self._by_map_body:
            wires = _table_map_columns(data[at:end], self._captured.mariadb)
            self._by_map_body[body] = self._make_readers(wires, where)
        self._by_table_id[number] = self._by_map_body[body]

    def _rows(
        self, kind: int, readers: _Readers, data: bytes, at: int, end: int
    ) -> Iterator[Change]:
        at += HEADER.size + 8
        if kind in ROWS_2:
            at += int.from_bytes(data[at : at + 2], "little")
        count, at = _packed(data, at)
        size = (count + 7) // 8
        for _ in range(2 if kind in UPDATES else 1):
            if int.from_bytes(data[at : at + size], "little") + 1 < 1 << count:
                raise ConnectError(
                    f"the binlog of MySQL at {self._captured.options.address} contains "
                    f"incomplete rows of {self._captured.table.full_name}; set binlog_row_image "
                    "= FULL, "
                    "in sessions too, and start again with a new checkpoint"
                )
            at += size
        images = decode.rows(data, at, end, readers.columns, readers.column_indexes)
        if kind in INSERTS:
            return (Change(None, image) for image in images)
        if kind in DELETES:
            return (Change(image, None) for image in images)
        return (Change(a, b) for a, b in zip(images[::2], images[1::2], strict=True))

    def _make_readers(self, wires: list[Any], where: Position) -> _Readers:
        table = self._captured.table
        names = [wire.name for wire in wires]
        if not all(names):
            # Without binlog_row_metadata = FULL, columns are identified by their order alone.
            if len(names) != len(table.columns):
                raise SchemaChangeError(
                    f"MySQL table {table.full_name} has {len(table.columns)} columns, but "
                    f"{len(names)} in the binlog: it was altered; set binlog_row_metadata = "
                    "FULL, and start "
                    "again with a new checkpoint"
                )
            names = [column.name for column in table.columns]
        wanted = {column.name: column for column in self._captured.columns}
        for name in wanted:
            if name not in names:
                raise SchemaChangeError(
                    f"MySQL table {table.full_name} has no column '{name}' in the binlog at "
                    f"{where}, where it has {', '.join(names)}: it was added, dropped or renamed; "
                    + (_REDECLARE if self._captured.relay else _START_AGAIN)
                )
        readers = [
            decode.reader(wire, wanted[name]) if name in wanted else decode.skipper(wire)
            for name, wire in zip(names, wires, strict=True)
        ]
        return _Readers(readers, [names.index(column.name) for column in self._captured.columns])

    def _check_statement(self, schema: str, query: str, where: Position) -> None:
        match = _STATEMENT.match(query)
        table = self._captured.table
        if match is None or not _mentions(query, schema, table):
            return
        verb = match.group(1).upper()
        if verb in ("TRUNCATE", "DROP", "RENAME"):
            if verb == "DROP" and not _DROP_TABLE.match(query):
                return
            raise SchemaChangeError(
                f"MySQL table {table.full_name}: {verb} TABLE at {where} is not "
                "supported; start again with a new checkpoint"
            )
        raise DataLossError(
            f"MySQL table {table.full_name}: an {verb} at {where} was logged as a "
            "statement, not as rows; set binlog_format = ROW, in sessions too, and start again "
            "with a new checkpoint"
        )


def table_names(data: bytes, at: int) -> bytes:
    """The database and table names in a TABLE_MAP event, encoded as by `names_of`."""
    start = at + _MAP_BODY
    middle = start + data[start] + 2
    return data[start : middle + data[middle] + 2]


def names_of(database: str, table: str) -> bytes:
    """The names of a database and table, encoded as in a TABLE_MAP event."""
    return _name(database) + _name(table)


def table_number(data: bytes, at: int) -> bytes:
    """The table id in a TABLE_MAP or row event; a row event refers to a TABLE_MAP by it."""
    return data[at + HEADER.size : at + HEADER.size + 6]


def _name(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw + b"\0"


def _packed(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


class _Library:
    """The part of a connection object that `pymysqlreplication` needs to parse an event."""

    charset = "utf8mb4"

    def __init__(self, mariadb: bool) -> None:
        self._mariadb = mariadb

    def _get_dbms(self) -> str:
        return "mariadb" if self._mariadb else "mysql"


def _table_map_columns(event: bytes, mariadb: bool) -> list[Any]:
    """The columns that a TABLE_MAP event describes, parsed by `pymysqlreplication`."""
    # The library treats the last four bytes as a checksum, whether there is one or not.
    packet = MysqlPacket(b"\0" + event + bytes(CHECKSUM_BYTES), "utf8mb4")
    wrapper = BinLogPacketWrapper(
        packet,
        {},
        _Library(mariadb),
        (0, 0, 0),
        False,
        frozenset({TableMapEvent}),
        None,
        None,
        None,
        None,
        False,
        False,
        False,
        True,
        False,
    )
    columns: list[Any] = wrapper.event.columns
    return columns


def _mentions(query: str, schema: str, table: TableDefinition) -> bool:
    name = re.escape(table.name)
    database = re.escape(table.database)
    if re.search(rf"(?i)`?\b{database}\b`?\s*\.\s*`?{name}\b", query):
        return True
    if _DROP_DATABASE.search(query):
        return bool(re.search(rf"(?i)\b{database}\b", query))
    return schema == table.database and bool(re.search(rf"(?i)(?<![.`\w]){'`?'}{name}\b", query))
