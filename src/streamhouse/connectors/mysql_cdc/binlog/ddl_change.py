"""The effect of a statement on a followed table whose rows can be read again, as a sync does.

docs/decisions/195-schema-changes-of-a-sync.md says why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from streamhouse.connectors.mysql_cdc.binlog.alter_table import UNKNOWN, altered, refusal
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.query import Statement
from streamhouse.connectors.mysql_cdc.binlog.sql.alter import Alteration, ColumnChange
from streamhouse.connectors.mysql_cdc.binlog.sql.effects import Effect
from streamhouse.connectors.mysql_cdc.binlog.statements import StatementCheck
from streamhouse.errors import SchemaChangeError
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import PRIMARY, TableDefinition

ANY = "*"
"""Stands for all columns."""
_VERBS = ("ALTER", "CREATE", "DROP", "RENAME", "TRUNCATE")


@dataclass(frozen=True)
class DdlChange:
    """The effect of one statement on a table.

    `verb`: the statement's first word. `after`: the table's columns after it; None if these cannot
    be determined from the statement. `reload`: why the table's rows must be read again; None: the
    rows stay as they are. `renamed`: the new names of columns, by the old ones in lower case.
    `dropped`: the columns whose values are lost, in lower case, even if a new column has the same
    name; `ANY`: perhaps all columns. `is_new`: the statement has given the name to another table.
    `keeps_columns`: the columns and the key were the same before it, if the table is not new.
    """

    statement: str
    verb: str
    after: TableDefinition | None
    reload: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    is_new: bool = False
    keeps_columns: bool = False


class DdlChanges(StatementCheck):
    """Follows the statements about one table; `known` is the table at the current position."""

    def __init__(self, captured: CapturedTable, known: TableDefinition) -> None:
        super().__init__(captured, known)
        self._found: list[DdlChange] = []
        self.hidden_in = known.hidden_in
        """The sessions in which a temporary table has the table's name, after the statement."""

    def of(
        self, statement: Statement, where: BinlogPosition, exists: bool = True
    ) -> DdlChange | None:
        """The effect of the statement on the table; None: it has none.

        `exists`: the table exists, so that CREATE has no effect. Raises `DataLossError` for writes
        that were logged as statements.
        """
        self._found, known = [], self.known
        verb = _verb(statement)
        try:
            self.take(statement, where)
        except SchemaChangeError:
            return DdlChange(str(statement), verb, None, "it is not understood")
        finally:
            if self.known is not None:
                self.hidden_in = self.known.hidden_in
            self.known = known
        if not self._found and not exists and statement.creates(self._captured.parsed_name):
            why = "it creates the table again"
            return DdlChange(str(statement), verb, None, why, {}, frozenset({ANY}))
        if not self._found:
            return None
        first = self._found[0]
        if any(change != first for change in self._found):
            # The text can be decoded in several ways.
            return replace(first, after=None, reload="it is not understood", keeps_columns=False)
        return first

    def _replace(self, effect: Effect, statement: Statement, where: BinlogPosition) -> None:
        why, verb = "it changes the table without row events", _verb(statement)
        dropped, is_new = frozenset({ANY}), verb != "TRUNCATE"
        self._found.append(DdlChange(str(statement), verb, None, why, {}, dropped, is_new, True))

    def _alter(self, effect: Effect, statement: Statement, where: BinlogPosition) -> None:
        changes = self._changes(effect, statement, where)
        known = self.known
        assert known is not None
        strict = statement.strict and not effect.ignore
        reload = _reload(changes, known, strict, self._captured.text_keys)
        after = altered(changes, known, complete=True)
        unknown = after and any(column.data_type == UNKNOWN for column in after.columns)
        if changes.converted or unknown:
            after = None
        if after is None and reload is None:
            reload = "the statement does not tell the columns after it"
        # The index of another key may be new.
        keeps = self._captured.table.index == PRIMARY and changes.keeps_columns
        dropped = frozenset(one.old for one in changes.columns if one.old and not one.name)
        renamed = {
            change.old: change.name
            for change in changes.columns
            if change.old and change.name and (not change.spec or change.name.lower() != change.old)
        }
        self._found.append(
            DdlChange(str(statement), "ALTER", after, reload, renamed, dropped, False, keeps)
        )


def _reload(
    changes: Alteration, known: TableDefinition, strict: bool, text_keys: Collection[str]
) -> str | None:
    """Why the changes alter rows, dropped and renamed columns aside; None: they do not."""
    rest: list[ColumnChange] = []
    dropped = {change.old for change in changes.columns if change.name is None}
    key = [column.name.lower() for column in known.key]
    captured = {column.name.lower() for column in known.columns}
    added: set[str] = set()
    for change in changes.columns:
        name = (change.name or "").lower()
        if change.name is None:
            if change.old in key:
                return "it drops a column of the key"
        elif change.old is None:
            if name in dropped:
                return f"it drops column '{change.name}' and adds it again"
            added.add(name)
            rest.append(change)
        elif name in captured - {change.old}:
            return "it gives a column the name of another one"
        elif change.spec is not None:
            rest.append(replace(change, name=change.old))
    changes = replace(changes, columns=rest)
    found = refusal(changes, known, captured | added, key, strict, known.index, text_keys)
    return None if found is None else found.why


def _verb(statement: Statement) -> str:
    for token in statement.readings[0]:
        if token.text.upper() in _VERBS:
            return token.text.upper()
    return ""
