"""The binlog as changes of one table, from one position to another."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatLogEvent,
    MariadbBinLogCheckPointEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    NotImplementedEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RotateEvent,
    StopEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from streamhouse.errors import ConnectError, DataLossError, SchemaChangeError
from streamhouse.mysql import decode
from streamhouse.mysql.connection import is_lost, open_connection, readable
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import Position
from streamhouse.mysql.table import FollowedTable
from streamhouse.mysql.types import MySqlColumn

# It warns on each connection about settings that this package does without.
logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)

Row = tuple[Any, ...]

_EVENTS = (
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatLogEvent,
    MariadbBinLogCheckPointEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    NotImplementedEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RotateEvent,
    StopEvent,
    XAPrepareEvent,
    XidEvent,
    WriteRowsEvent,
    UpdateRowsEvent,
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
)
_KINDS: dict[type, Literal["insert", "update", "delete"]] = {
    WriteRowsEvent: "insert",
    UpdateRowsEvent: "update",
    DeleteRowsEvent: "delete",
}
_COMPRESSED = frozenset({40, 165, 166, 167, 168, 169, 170, 171})
_EVENT_HEADER = 20
_HEARTBEAT_SECONDS = 1.0
_STALLED_SECONDS = 20.0
_READ_SECONDS = 60
_ATTEMPTS = 8

_STATEMENT = re.compile(
    r"^\s*(?:/\*.*?\*/\s*)*(TRUNCATE|DROP|RENAME|INSERT|UPDATE|DELETE|REPLACE|LOAD)\b",
    re.IGNORECASE | re.DOTALL,
)
_DROP_TABLE = re.compile(r"^.*?\bDROP\s+(TABLE|DATABASE|SCHEMA)\b", re.IGNORECASE | re.DOTALL)
_DROP_DATABASE = re.compile(r"\bDROP\s+(DATABASE|SCHEMA)\b", re.IGNORECASE)


class Change(NamedTuple):
    """One row's change; the images hold the wanted columns in their order."""

    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class Following:
    """What a binlog connection follows: a table and the columns wanted of it, in order."""

    options: MySqlOptions
    table: FollowedTable
    wanted: tuple[MySqlColumn, ...]


class BinlogReader:
    """One binlog connection, at `position`; reads on to a known end.

    It never reconnects by itself: a stream taken up in the middle of a transaction would lose
    rows without a word.
    """

    def __init__(self, following: Following, start: Position) -> None:
        self.position = start
        self._following = following
        self._decoders: dict[int, tuple[Any, list[decode.Read], list[int]]] = {}
        self._connections = 0
        options = following.options
        self._stream = BinLogStreamReader(
            connection_settings={
                "charset": "utf8mb4",
                "read_timeout": _READ_SECONDS,
                "init_command": "SET net_write_timeout = 600",
            },
            server_id=options.server_id(),
            blocking=True,
            resume_stream=True,
            log_file=start.file,
            log_pos=start.pos,
            only_schemas=[following.table.database],
            only_tables=[following.table.name],
            only_events=_EVENTS,
            filter_non_implemented_events=False,
            freeze_schema=True,
            enable_logging=False,
            slave_heartbeat=_HEARTBEAT_SECONDS,
            pymysql_wrapper=self._connect,
        )

    def changes(self, end: Position) -> Iterator[Change]:
        """The table's changes from `position` to `end`, which must be an event's end."""
        progress, last = time.monotonic(), self.position
        while self.position < end:
            event = self._stream.fetchone()
            self.position = Position(self._stream.log_file, int(self._stream.log_pos))
            if self.position != last:
                progress, last = time.monotonic(), self.position
            elif time.monotonic() - progress > _STALLED_SECONDS:
                raise DataLossError(
                    f"the binlog of MySQL at {self._following.options.address} ends at {last}, "
                    f"before {end}: it was reset; start anew with a new checkpoint"
                )
            yield from self._changes_of(event)

    def close(self) -> None:
        """Drop the connections."""
        for name in ("_stream_connection", "_ctl_connection"):
            connection = getattr(self._stream, name, None)
            if connection is not None:
                connection._force_close()

    def _connect(self, **settings: Any) -> pymysql.Connection[Any]:
        self._connections += 1
        if self._connections > 2:
            raise pymysql.err.OperationalError(2013, "the binlog connection was lost")
        if "db" in settings:  # PyMySQL warns of this name
            settings["database"] = settings.pop("db")
        return open_connection(self._following.options, **settings)

    def _changes_of(self, event: Any) -> Iterator[Change]:
        kind = _KINDS.get(type(event))
        if kind is not None:
            yield from self._rows(kind, event)
        elif isinstance(event, QueryEvent):
            self._check_statement(event)
        elif isinstance(event, PartialUpdateRowsEvent) or (
            isinstance(event, NotImplementedEvent) and event.packet.event_type in _COMPRESSED
        ):
            raise ConnectError(
                f"the binlog of MySQL at {self._following.options.address} holds compressed or "
                "partial row events, which are not supported; set log_bin_compress = OFF, "
                "binlog_transaction_compression = OFF, binlog_row_value_options = ''"
            )

    def _rows(self, kind: str, event: Any) -> Iterator[Change]:
        readers, wanted = self._decoder(event)
        count = int(event.number_of_columns)
        for name in ("columns_present_bitmap", "columns_present_bitmap2"):
            bitmap = getattr(event, name, None)
            if bitmap is not None and int.from_bytes(bitmap, "little") + 1 < 1 << count:
                raise ConnectError(
                    f"the binlog of MySQL at {self._following.options.address} holds incomplete "
                    f"rows of {self._following.table.full_name}; set binlog_row_image = FULL, "
                    "in sessions too, and start anew with a new checkpoint"
                )
        packet = event.packet.packet
        end = _EVENT_HEADER + int(event.event_size)
        images = decode.rows(packet._data, packet._position, end, readers, wanted)
        if kind == "insert":
            return (Change(None, image) for image in images)
        if kind == "delete":
            return (Change(image, None) for image in images)
        return (Change(a, b) for a, b in zip(images[::2], images[1::2], strict=True))

    def _decoder(self, event: Any) -> tuple[list[decode.Read], list[int]]:
        known = self._decoders.get(event.table_id)
        if known is None or known[0] is not event.columns:
            known = (event.columns, *self._make_decoder(event.columns))
            self._decoders[event.table_id] = known
        return known[1], known[2]

    def _make_decoder(self, wires: list[Any]) -> tuple[list[decode.Read], list[int]]:
        table = self._following.table
        names = [wire.name for wire in wires]
        if not all(names):
            # Without binlog_row_metadata = FULL columns are known by their place alone.
            if len(names) != len(table.columns):
                raise SchemaChangeError(
                    f"MySQL table {table.full_name} has {len(table.columns)} columns, the binlog "
                    f"{len(names)}: it was altered; set binlog_row_metadata = FULL, and start "
                    "anew with a new checkpoint"
                )
            names = [column.name for column in table.columns]
        wanted = {column.name: column for column in self._following.wanted}
        for name in wanted:
            if name not in names:
                raise SchemaChangeError(
                    f"the binlog of MySQL table {table.full_name} at {self.position} has no "
                    f"column '{name}': it was added, dropped or renamed; start anew with a new "
                    "checkpoint"
                )
        readers = [
            decode.reader(wire, wanted[name]) if name in wanted else decode.skipper(wire)
            for name, wire in zip(names, wires, strict=True)
        ]
        return readers, [names.index(column.name) for column in self._following.wanted]

    def _check_statement(self, event: Any) -> None:
        match = _STATEMENT.match(event.query)
        table = self._following.table
        schema = event.schema.decode() if isinstance(event.schema, bytes) else event.schema
        if match is None or not _mentions(event.query, schema, table):
            return
        verb = match.group(1).upper()
        if verb in ("TRUNCATE", "DROP", "RENAME"):
            if verb == "DROP" and not _DROP_TABLE.match(event.query):
                return
            raise SchemaChangeError(
                f"MySQL table {table.full_name}: {verb} TABLE at {self.position} cannot be "
                "followed; start anew with a new checkpoint"
            )
        raise DataLossError(
            f"MySQL table {table.full_name}: an {verb} at {self.position} was logged as a "
            "statement, not as rows; set binlog_format = ROW, in sessions too, and start anew "
            "with a new checkpoint"
        )


def _mentions(query: str, schema: str, table: FollowedTable) -> bool:
    name = re.escape(table.name)
    database = re.escape(table.database)
    if re.search(rf"(?i)`?\b{database}\b`?\s*\.\s*`?{name}\b", query):
        return True
    if _DROP_DATABASE.search(query):
        return bool(re.search(rf"(?i)\b{database}\b", query))
    return schema == table.database and bool(re.search(rf"(?i)(?<![.`\w]){'`?'}{name}\b", query))


_READERS: dict[tuple[int, Following], BinlogReader] = {}


def read_changes(following: Following, start: Position, end: Position) -> Iterator[Change]:
    """The table's changes of a range that starts and ends between transactions.

    The connection is kept for the range that follows in the same process. A lost connection is
    opened again at the start, past the changes that were given already.
    """
    given, attempt = 0, 0
    while True:
        try:
            for number, change in enumerate(_read_once(following, start, end)):
                if number >= given:
                    given += 1
                    yield change
            return
        except (pymysql.err.MySQLError, OSError) as error:
            attempt += 1
            if not is_lost(error) or attempt >= _ATTEMPTS:
                raise readable(error, following.options) from None
            time.sleep(min(0.1 * 2**attempt, 5.0))


def _read_once(following: Following, start: Position, end: Position) -> Iterator[Change]:
    if not start < end:
        return
    # The process id: a forked worker must not share its parent's connection.
    key = (os.getpid(), following)
    reader = _READERS.pop(key, None)
    if reader is not None and reader.position != start:
        reader.close()
        reader = None
    if reader is None:
        reader = BinlogReader(following, start)
    done = False
    try:
        yield from reader.changes(end)
        done = reader.position == end
    finally:
        if done and key not in _READERS:
            _READERS[key] = reader
        else:
            reader.close()


def close_readers(following: Following) -> None:
    """Close the kept connection of this process."""
    reader = _READERS.pop((os.getpid(), following), None)
    if reader is not None:
        reader.close()
