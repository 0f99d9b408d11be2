"""Decodes binlog events into changes of one table; skips events of other tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from streamhouse.connectors.mysql_cdc.binlog.captured import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.format import decode
from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    DELETES,
    HEADER,
    INSERTS,
    PARTIAL_UPDATE,
    QUERY,
    ROWS,
    ROWS_2,
    STATEMENTS,
    TABLE_MAP,
    UPDATES,
    query_of,
)
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import (
    LoggedColumn,
    logged_columns,
    packed,
)
from streamhouse.connectors.mysql_cdc.binlog.format.temporal import Read
from streamhouse.connectors.mysql_cdc.binlog.query import (
    OLD_LOADS,
    statement_of,
)
from streamhouse.connectors.mysql_cdc.binlog.statements import (
    REDECLARE,
    StatementCheck,
)
from streamhouse.connectors.mysql_cdc.server.charsets import charsets_of
from streamhouse.connectors.mysql_cdc.server.position import START_AGAIN, Position
from streamhouse.connectors.mysql_cdc.server.table import TableDefinition
from streamhouse.connectors.mysql_cdc.server.values.types import MySqlColumn
from streamhouse.errors import ConnectError, DataLossError, SchemaChangeError

Row = tuple[Any, ...]

PASSING = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})
"""Statements of nearly every transaction."""
_MAP_BODY = HEADER.size + 8
"""Where the names start in a TABLE_MAP event: after the table's number and flags."""


class Change(NamedTuple):
    """The change of one row; the images contain the captured columns in their order.

    `seconds`: when the server executed it, since 1970 (UTC).
    """

    before: Row | None
    after: Row | None
    seconds: int


class _Readers(NamedTuple):
    """The decoders of a row's columns, for one TABLE_MAP event's description of the table."""

    columns: list[Read]
    column_indexes: list[int]


class ChangeDecoder:
    """Decodes events into changes of the followed table; remembers the last TABLE_MAP events.

    The first event must follow the end of a transaction. Raises `SchemaChangeError`,
    `DataLossError` or `ConnectError` for events that cannot be followed.
    """

    def __init__(self, captured: CapturedTable, known: TableDefinition | None = None) -> None:
        self._captured = captured
        table = captured.table
        self._names = names_of(table.database, table.name)
        self._names_folded = self._names.decode().lower()
        self._statements = StatementCheck(captured, known)
        self._by_table_id: dict[bytes, _Readers] = {}
        self._by_map_body: dict[bytes, _Readers] = {}

    def wants(self, kind: int, data: bytes, at: int, end: int) -> bool:
        """Whether `take` needs this event, which is none of rows, of a transaction."""
        return kind != TABLE_MAP or self._is_followed(data, at)

    def take(self, kind: int, data: bytes, at: int, end: int, where: Position) -> Iterable[Change]:
        """The changes in the event at bytes `at` to `end`, without its checksum.

        `where` is the event's position, for error messages.
        """
        if kind in ROWS:
            readers = self._by_table_id.get(table_number(data, at))
            return () if readers is None else self._rows(kind, readers, data, at, end)
        if kind == TABLE_MAP:
            self._map(data, at, end, where)
        elif kind in STATEMENTS:
            self._check_statement(kind, data, at, end, where)
        elif kind in OLD_LOADS:
            raise DataLossError(
                f"MySQL table {self._captured.table.full_name}: the binlog has a LOAD DATA at "
                f"{where} in the form of MySQL 4; {START_AGAIN}"
            )
        elif kind == PARTIAL_UPDATE and table_number(data, at) in self._by_table_id:
            raise ConnectError(
                f"the binlog of MySQL at {self._captured.options.address} contains partial row "
                "events, which are not supported; set binlog_row_value_options = ''"
            )
        return ()

    def know(self, table: TableDefinition | None) -> None:
        """Set the table's columns at the position of the next event; None: they are not known."""
        if table != self._statements.known:
            self._statements.known = table
            self._by_map_body.clear()

    def _map(self, data: bytes, at: int, end: int, where: Position) -> None:
        number = table_number(data, at)
        if not self._is_followed(data, at):
            self._by_table_id.pop(number, None)
            return
        body = data[at + _MAP_BODY : end]
        if body not in self._by_map_body:
            wires = logged_columns(data, at, end, self._captured.mariadb)
            self._by_map_body[body] = self._make_readers(wires, where)
        self._by_table_id[number] = self._by_map_body[body]

    def _is_followed(self, data: bytes, at: int) -> bool:
        if self._captured.ignores_case:
            return table_names(data, at).decode("utf-8", "replace").lower() == self._names_folded
        return data.startswith(self._names, at + _MAP_BODY)

    def _rows(
        self, kind: int, readers: _Readers, data: bytes, at: int, end: int
    ) -> Iterator[Change]:
        seconds = int.from_bytes(data[at : at + 4], "little")
        at += HEADER.size + 8
        if kind in ROWS_2:
            at += int.from_bytes(data[at : at + 2], "little")
        count, at = packed(data, at)
        size = (count + 7) // 8
        for _ in range(2 if kind in UPDATES else 1):
            if int.from_bytes(data[at : at + size], "little") + 1 < 1 << count:
                raise ConnectError(
                    f"the binlog of MySQL at {self._captured.options.address} contains "
                    f"incomplete rows of {self._captured.table.full_name}; set binlog_row_image "
                    "= FULL, in sessions too, and start again with a new checkpoint"
                )
            at += size
        images = decode.rows(data, at, end, readers.columns, readers.column_indexes)
        if kind in INSERTS:
            return (Change(None, image, seconds) for image in images)
        if kind in DELETES:
            return (Change(image, None, seconds) for image in images)
        return (Change(a, b, seconds) for a, b in zip(images[::2], images[1::2], strict=True))

    def _make_readers(self, wires: list[LoggedColumn], where: Position) -> _Readers:
        table = self._captured.table
        names = [wire.name or "" for wire in wires]
        logged: dict[str, MySqlColumn] = {}
        if not all(names):
            # Without binlog_row_metadata = FULL, columns are identified by their order alone.
            known = self._statements.known
            if known is None or len(names) != len(known.columns):
                count = "unknown" if known is None else len(known.columns)
                raise SchemaChangeError(
                    f"MySQL table {table.full_name} has {count} columns, but {len(names)} in the "
                    f"binlog at {where}, which has no names of columns: it was altered; set "
                    f"binlog_row_metadata = FULL, and {START_AGAIN}"
                )
            names = [column.name for column in known.columns]
            logged = {column.name: column for column in known.columns}
        wanted = {column.name: column for column in self._captured.columns}
        wanted |= {name: column for name, column in logged.items() if name in wanted}
        for name in wanted:
            if name not in names:
                raise SchemaChangeError(
                    f"MySQL table {table.full_name} has no column '{name}' in the binlog at "
                    f"{where}, where it has {', '.join(names)}: it was added, dropped or renamed; "
                    + (REDECLARE if self._captured.relay else START_AGAIN)
                )
        charsets = charsets_of(self._captured.options)
        in_key = {column.name for column in table.key}
        columns = logged or {column.name: column for column in table.columns}
        readers = [
            decode.reader(wire, wanted[name], decode.Context(charsets, name in in_key))
            if name in wanted
            else decode.skipper(wire, columns.get(name))
            for name, wire in zip(names, wires, strict=True)
        ]
        return _Readers(readers, [names.index(column.name) for column in self._captured.columns])

    def _check_statement(self, kind: int, data: bytes, at: int, end: int, where: Position) -> None:
        if kind == QUERY and query_of(data, at, end)[1] in PASSING:
            return
        statement = statement_of(kind, data, at, end, self._captured.mariadb)
        if self._statements.take(statement, where):
            self._by_map_body.clear()
            self._by_table_id.clear()


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
