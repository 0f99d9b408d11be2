"""The columns of a table at positions of the binlog, which are part of a stream's offsets.

docs/decisions/140-statements-in-the-binlog.md says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, astuple, fields, replace
from typing import Any

from streamhouse.connectors.mysql_cdc.binlog.alter_table import UNKNOWN
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.query import Statement
from streamhouse.connectors.mysql_cdc.binlog.statements import ParsedStatement, StatementCheck
from streamhouse.connectors.mysql_cdc.change_reader import relay_view
from streamhouse.connectors.mysql_cdc.server.connection import Session
from streamhouse.connectors.mysql_cdc.server.position import START_AGAIN, BinlogPosition
from streamhouse.connectors.mysql_cdc.server.table import Server, TableDefinition, load_table
from streamhouse.connectors.mysql_cdc.server.values.types import MySqlColumn
from streamhouse.connectors.mysql_cdc.statement_scan import FoundStatement, StatementScan
from streamhouse.errors import DataLossError, SchemaChangeError, TableError
from streamhouse.source import Offset

_KEY = "table"
_DEFAULTS = [None if field.default is MISSING else field.default for field in fields(MySqlColumn)]


class SchemaHistory:
    """Knows the table's columns at the positions of offsets; driver only."""

    def __init__(self, captured: CapturedTable, session: Session, server: Server) -> None:
        self._captured, self._session, self._server = captured, session, server
        self._scan = StatementScan([captured])
        self._check = StatementCheck(captured, None)

    def close(self) -> None:
        self._scan.close()

    def next(
        self, start: Offset, begin: BinlogPosition, end: BinlogPosition, cut: bool = True
    ) -> tuple[BinlogPosition, dict[str, Any]]:
        """The end of a batch up to `end`, and the part of its offset about the columns there.

        With `cut`, the batch ends before a statement about the table, or consists of the statement
        alone.
        """
        if begin == end:
            return end, {_KEY: start[_KEY]} if _KEY in start else {}
        known = self.at(start, begin)
        found = self._statements(begin, end)
        if found and cut:
            end = found[0].before if begin < found[0].before else found[0].after
            found = [event for event in found if event.after <= end]
        known = self._after(known, found)
        if known is None:
            known = self._current_if_unaltered(end)
        elif any(column.data_type == UNKNOWN for column in known.columns):
            current = self._current_if_unaltered(end)
            known = known if current is None else replace(current, hidden_in=known.hidden_in)
        return end, offset_part(known, self._captured)

    def at(self, offset: Offset, position: BinlogPosition) -> TableDefinition | None:
        """The table as of an offset at `position`; None if that is not known.

        Offsets of an earlier release have no columns: then these are the table's current ones, if
        it was not altered since. If it was, and the server logs no names of columns, raises
        `SchemaChangeError`.
        """
        known = table_at(offset, self._captured.table)
        if known is not None or not self._captured.columns_by_index:
            return known
        known = self._current_if_unaltered(position)
        if known is None:
            raise SchemaChangeError(
                f"MySQL table {self._captured.table.full_name} was altered after {position}, and "
                "the server logs no names of columns; set binlog_row_metadata = FULL, and "
                f"{START_AGAIN}"
            )
        return known

    def now(self, position: BinlogPosition) -> dict[str, Any]:
        """The part of an offset about the columns at `position`, where a stream begins."""
        return offset_part(self._current_if_unaltered(position), self._captured)

    def _statements(self, start: BinlogPosition, end: BinlogPosition) -> list[FoundStatement]:
        view = relay_view(self._captured)
        state = None if view is None else view.state()
        begin = None if view is None or state is None else view.begin()
        if state is not None and begin is not None and begin <= start and end <= state.end:
            if not state.may_have_statements(self._captured.options.name, start, end):
                return []
        found = self._scan.between(start, end)
        if self._captured.relay is not None:
            self._scan.close()  # the pipeline has one connection for all tables
        return found

    def _after(
        self, known: TableDefinition | None, found: list[FoundStatement]
    ) -> TableDefinition | None:
        self._check.resume(known)
        for event in found:
            try:
                self._check.take(event.statement, event.after)
            except (SchemaChangeError, DataLossError):
                return known  # the reader of this batch raises it, too
        return self._check.known

    def _current_if_unaltered(self, position: BinlogPosition) -> TableDefinition | None:
        """The table's current columns; None if a statement altered it after `position`."""
        try:
            table = load_table(self._session, self._captured.options)
        except TableError:
            return None
        found = self._statements(position, self._server.position(self._session))
        return table if all(self._creates(event.statement) for event in found) else None

    def _creates(self, statement: Statement) -> bool:
        parsed = ParsedStatement(statement, self._captured.ignores_case)
        name = self._captured.parsed_name
        return parsed.creates(name) or (parsed.hides(name) and not parsed.concerns(name))


def offset_part(table: TableDefinition | None, captured: CapturedTable) -> dict[str, Any]:
    """The part of an offset that describes the columns.

    It has all columns if row events identify them by their order, else those that are read.
    """
    if table is None:
        return {}
    read = {column.name.lower() for column in captured.columns}
    columns = [
        column_to_json(column)
        for column in table.columns
        if captured.columns_by_index or column.name.lower() in read
    ]
    part: dict[str, Any] = {"columns": columns, "charset": table.charset}
    if table.hidden_in:
        part["hidden_in"] = [list(session) for session in table.hidden_in]
    return {_KEY: part}


def table_at(offset: Mapping[str, Any], table: TableDefinition) -> TableDefinition | None:
    """The columns of `table` as of an offset; None if the offset does not have them."""
    part = offset.get(_KEY)
    if part is None:
        return None
    columns = tuple(MySqlColumn(*values) for values in part["columns"])
    names = {column.name.lower(): column for column in columns}
    key = tuple(names.get(column.name.lower(), column) for column in table.key)
    hidden = tuple((str(file), int(thread)) for file, thread in part.get("hidden_in", ()))
    return replace(table, columns=columns, key=key, charset=part["charset"], hidden_in=hidden)


def column_to_json(column: MySqlColumn) -> list[Any]:
    """The values of the column's fields in their order, without default values at the end."""
    values = list(astuple(column))
    while values[-1] == _DEFAULTS[len(values) - 1]:
        values.pop()
    return values
