"""Decodes binlog events into row events of followed tables; skips events of other tables."""

from collections.abc import Sequence
from typing import TypeAlias

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    HEADER,
    PARTIAL_UPDATE,
    STATEMENTS,
    TABLE_MAP,
)
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import LoggedColumn, logged_columns
from streamhouse.connectors.mysql_cdc.binlog.query import Statement, statement_of
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import LoggedTable, RowEvent
from streamhouse.connectors.mysql_cdc.binlog.statements import REDECLARE, StatementCheck
from streamhouse.errors import ConnectError, SchemaChangeError
from streamhouse.mysql.position import START_AGAIN, BinlogPosition
from streamhouse.mysql.table import TableDefinition
from streamhouse.mysql.values.types import MySqlColumn

_MAP_BODY = HEADER.size + 8
"""Where the names start in a TABLE_MAP event: after the table's id and flags."""


TableEvent: TypeAlias = tuple[int, RowEvent]
"""A row event, and the index of its table."""


class _FollowedTable:
    """Describes a table's row events by its TABLE_MAP events and by statements about it."""

    def __init__(self, captured: CapturedTable) -> None:
        self._captured = captured
        self._statements = StatementCheck(captured, None)
        self._by_map_body: dict[bytes, LoggedTable] = {}

    def set_table(self, table: TableDefinition | None) -> None:
        """Set the table's columns at the position of the next event; None: they are not known."""
        if table != self._statements.known:
            self._statements.resume(table)
            self._by_map_body.clear()

    def take(self, statement: Statement, where: BinlogPosition) -> bool:
        """Check that the stream can continue; whether row events get another description."""
        if not self._statements.take(statement, where):
            return False
        self._by_map_body.clear()
        return True

    def logged(self, data: bytes, at: int, end: int, where: BinlogPosition) -> LoggedTable:
        """The description by the TABLE_MAP event at bytes `at` to `end`."""
        body = data[at + _MAP_BODY : end]
        table = self._by_map_body.get(body)
        if table is None:
            wires = logged_columns(data, at, end, self._captured.server.mariadb)
            table = self._by_map_body[body] = self._described(wires, where)
        return table

    def _described(self, wires: list[LoggedColumn], where: BinlogPosition) -> LoggedTable:
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
        wanted = [column.name for column in self._captured.columns]
        for name in wanted:
            if name not in names:
                raise SchemaChangeError(
                    f"MySQL table {table.full_name} has no column '{name}' in the binlog at "
                    f"{where}, where it has {', '.join(names)}: it was added, dropped or renamed; "
                    + (REDECLARE if self._captured.relay else START_AGAIN)
                )
        columns = logged or {column.name: column for column in table.columns}
        described = tuple(
            (wire, columns.get(name)) for name, wire in zip(names, wires, strict=True)
        )
        made = LoggedTable(self._captured, described, tuple(names.index(name) for name in wanted))
        _ = made.arrays, made.widths  # Raise the errors of columns that cannot be read.
        return made


class TablesDecoder:
    """Decodes events into row events of tables of one server, by the last TABLE_MAP events.

    Call `set_tables` before the first event, which must be the first one of a transaction. Raises
    `SchemaChangeError`, `DataLossError` or `ConnectError` for events that cannot be followed.
    """

    def __init__(self, tables: Sequence[CapturedTable]) -> None:
        self._captured = tables[0]
        self._all = [_FollowedTable(table) for table in tables]
        self._by_names = {
            self._names(names_of(table.table.database, table.table.name)): index
            for index, table in enumerate(tables)
        }
        self._by_table_id: dict[bytes, tuple[int, LoggedTable]] = {}

    def selects(self, kind: int, data: bytes, at: int, end: int) -> bool:
        """Whether `process` needs this event, which is not a row event."""
        return kind != TABLE_MAP or self._names(table_names(data, at)) in self._by_names

    def row_event(
        self, kind: int, data: bytes, at: int, end: int, skipped: int = 0
    ) -> TableEvent | None:
        """The row event at bytes `at` to `end`, without its checksum; None for other tables.

        `skipped`: how many of its first changes to leave out.
        """
        found = self._by_table_id.get(table_id(data, at))
        if found is None:
            return None
        return found[0], RowEvent(found[1], kind, data, at, end, skipped)

    def process(self, kind: int, data: bytes, at: int, end: int, file: str, pos: int) -> None:
        """Take an event that is not a row event; `file` and `pos`: its end, for messages."""
        if kind == TABLE_MAP:
            number = table_id(data, at)
            index = self._by_names.get(self._names(table_names(data, at)))
            if index is None:
                self._by_table_id.pop(number, None)
            else:
                table = self._all[index].logged(data, at, end, BinlogPosition(file, pos))
                self._by_table_id[number] = index, table
        elif kind in STATEMENTS:
            self._check_statement(kind, data, at, end, BinlogPosition(file, pos))
        elif kind == PARTIAL_UPDATE and table_id(data, at) in self._by_table_id:
            raise ConnectError(
                f"the binlog of MySQL at {self._captured.options.address} contains partial row "
                "events, which are not supported; set binlog_row_value_options = ''"
            )

    def set_tables(self, tables: Sequence[TableDefinition | None]) -> None:
        """Set the tables' columns at the position of the next event; None: they are not known."""
        for followed, table in zip(self._all, tables, strict=True):
            followed.set_table(table)

    def _check_statement(
        self, kind: int, data: bytes, at: int, end: int, where: BinlogPosition
    ) -> None:
        server = self._captured.server
        statement = statement_of(kind, data, at, end, server.mariadb, server.ignores_case)
        if statement is None:
            return
        altered = {index for index, table in enumerate(self._all) if table.take(statement, where)}
        if altered:
            kept = self._by_table_id.items()
            self._by_table_id = {id: found for id, found in kept if found[0] not in altered}

    def _names(self, names: bytes) -> bytes:
        return folded_names(names, self._captured.server.ignores_case)


def table_names(data: bytes, at: int) -> bytes:
    """The database and table names in a TABLE_MAP event, encoded as by `names_of`."""
    start = at + _MAP_BODY
    middle = start + data[start] + 2
    return data[start : middle + data[middle] + 2]


def names_of(database: str, table: str) -> bytes:
    """The names of a database and table, encoded as in a TABLE_MAP event."""
    return _name(database) + _name(table)


def folded_names(names: bytes, ignores_case: bool) -> bytes:
    """Names encoded as by `names_of`, in lower case if the server ignores case."""
    return names.decode("utf-8", "replace").lower().encode() if ignores_case else names


def table_id(data: bytes, at: int) -> bytes:
    """The table id in a TABLE_MAP or row event; a row event refers to a TABLE_MAP by it."""
    return data[at + HEADER.size : at + HEADER.size + 6]


def _name(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw + b"\0"
