"""Checks whether the stream of a table can continue after statements in the binlog.

docs/decisions/140-statements-in-the-binlog.md says why.
"""

import re
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NoReturn

from streamhouse.connectors.mysql_cdc.binlog.alter_table import UNKNOWN, altered, refusal
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.query import Statement
from streamhouse.connectors.mysql_cdc.binlog.sql.alter import Alteration, ColumnChange, alteration
from streamhouse.connectors.mysql_cdc.binlog.sql.effects import Effect, EffectKind, Effects
from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import TableName, UnclearStatement
from streamhouse.errors import DataLossError, SchemaChangeError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.metadata import metadata
from streamhouse.mysql.position import START_AGAIN, BinlogPosition
from streamhouse.mysql.table import ENGINES, PRIMARY, TABLES, TableDefinition

REDECLARE = (
    "declare the table's current columns and run the script again: it resumes from there "
    f"(if columns were added, {START_AGAIN})"
)
_ROW_FORMAT = f"set binlog_format = ROW, in sessions too, and {START_AGAIN}"
_FILTERS = frozenset({"UNIQUE", "CHECK", "PARTITION", "FOREIGN", "PRIMARY"})
"""Words in an ALTER IGNORE TABLE that may make it drop rows."""


_SYSTEM = frozenset({"mysql", "information_schema", "performance_schema"})
_GRANT = re.compile(r"GRANT (.+?) ON (\S+) TO ", re.IGNORECASE)
_TRIGGERS = """
SELECT trigger_name FROM information_schema.triggers
WHERE event_object_schema = %s AND event_object_table = %s
"""
_FUNCTIONS = """
SELECT routine_name FROM information_schema.routines
WHERE routine_type = 'FUNCTION' AND routine_schema <> 'sys'
"""


class StatementCheck:
    """Follows the statements of the binlog.

    `known`: the table at the current position; None if that is not known. Raises
    `SchemaChangeError` or `DataLossError` for statements after which a stream cannot continue.
    """

    def __init__(self, captured: CapturedTable, known: TableDefinition | None) -> None:
        self._captured = captured
        self._temporary: set[tuple[str, int, TableName]] = set()
        self.resume(known)

    def resume(self, known: TableDefinition | None) -> None:
        """Set the table as it is before the next statement."""
        self.known = known
        if known is not None:
            name = self._captured.parsed_name
            self._temporary |= {(*session, name) for session in known.hidden_in}

    def take(self, statement: Statement, where: BinlogPosition) -> bool:
        """Check a statement; returns whether it concerns the table, so that `known` may differ."""
        name = self._captured.parsed_name
        concerned = statement.concerns(name)
        for parsed in statement.effects:
            if parsed is None:
                if concerned:
                    self._refuse(statement, where, "it is not of a form that is understood")
                continue
            reason = self._may_change(parsed, statement, where, name) if parsed.writes else None
            self._note_temporary(parsed, statement, where)
            if reason is not None:
                raise DataLossError(
                    f"MySQL table {self._captured.table.full_name}: '{statement}' at {where} was "
                    f"logged as a statement, not as rows, and {reason}; {_ROW_FORMAT}"
                )
            self._check_definition(parsed, statement, where, name)
        return concerned

    def _note_temporary(self, parsed: Effects, statement: Statement, where: BinlogPosition) -> None:
        for name in parsed.created:
            self._temporary.add((where.file, statement.thread, name))
        for name in parsed.dropped:
            self._temporary.discard((where.file, statement.thread, name))
        if self.known is not None and (parsed.created or parsed.dropped):
            # The sessions that hide the table: those of the current binlog file.
            hidden = sorted(
                (file, thread)
                for file, thread, other in self._temporary
                if other == self._captured.parsed_name and file == where.file
            )
            self.known = replace(self.known, hidden_in=tuple(hidden))

    def _is_temporary(self, name: TableName, statement: Statement, where: BinlogPosition) -> bool:
        return (where.file, statement.thread, name) in self._temporary

    def _check_definition(
        self, parsed: Effects, statement: Statement, where: BinlogPosition, name: TableName
    ) -> None:
        effects = parsed.on(name)
        if not effects or self._is_temporary(name, statement, where):
            return
        for effect in effects:
            repaired = effect.what is EffectKind.REPAIRED and not self._captured.table.consistent
            if effect.what is EffectKind.REPLACED or repaired:
                self._replace(effect, statement, where)
            elif effect.what is EffectKind.ALTERED:
                self._alter(effect, statement, where)

    def _replace(self, effect: Effect, statement: Statement, where: BinlogPosition) -> None:
        if is_online_swap(effect):
            if self._captured.options.online_schema_changes:
                # The tool has copied all rows; the next row events have the columns.
                self.known = None
                return
            raise SchemaChangeError(
                f"MySQL table {self._captured.table.full_name}: '{statement}' at {where} swaps it "
                "for another one; if that has the same rows, as the copy of an online schema "
                "change, set 'scan.parse.online.schema.changes.enabled' = 'true', and run the "
                f"script again: it resumes from there. Else {START_AGAIN}"
            )
        self._refuse(statement, where, "it changes the table without row events")

    def _changes(self, effect: Effect, statement: Statement, where: BinlogPosition) -> Alteration:
        charset = None if self.known is None else self.known.charset
        try:
            changes = alteration(effect.specs, charset, self._captured.server.mariadb)
        except UnclearStatement:
            self._refuse(statement, where, "it is not of a form that is understood")
        if statement.other_types:
            for change in changes.columns:
                if change.spec is not None:
                    change.spec.column = None
        words = {token.text.upper() for spec in effect.specs for token in spec}
        if effect.ignore and (changes != Alteration() or words & _FILTERS):
            changes.rows.append("may drop or change rows, as it says IGNORE")
        return changes

    def _alter(self, effect: Effect, statement: Statement, where: BinlogPosition) -> None:
        changes = self._changes(effect, statement, where)
        strict = statement.strict and not effect.ignore
        captured = {column.name.lower() for column in self._captured.columns}
        table, text_keys = self._captured.table, self._captured.text_keys
        found = refusal(changes, self.known, table, captured, strict, text_keys)
        after = None if self.known is None else altered(changes, self.known)
        if found is not None and found.missing is None:
            self._refuse(statement, where, found.why)
        if found is not None:
            names = "" if after is None else ", ".join(column.name for column in after.columns)
            raise SchemaChangeError(
                f"MySQL table {table.full_name} has no column '{found.missing}' after "
                f"'{statement}' in the binlog at {where}{names and f', where it has {names}'}: it "
                "was dropped or renamed; " + REDECLARE
            )
        self.known = after

    def _refuse(self, statement: Statement, where: BinlogPosition, why: str) -> NoReturn:
        raise SchemaChangeError(
            f"MySQL table {self._captured.table.full_name}: '{statement}' at {where} is not "
            f"supported: {why}; {START_AGAIN}"
        )

    def _may_change(
        self, parsed: Effects, statement: Statement, where: BinlogPosition, name: TableName
    ) -> str | None:
        """Why a statement may change the followed table; None if it does not."""
        target = parsed.target
        temporary = target is not None and (
            target in parsed.created or self._is_temporary(target, statement, where)
        )
        if target == name and not temporary:
            return "changes it"
        if statement.written is not None:
            fold = str.lower if self._captured.server.ignores_case else str
            if name.database not in {fold(written) for written in statement.written}:
                return None
        if target is None:
            return "may change it"
        words = {token.text.lower() for token in statement.readings[0]}
        with closing(Session(self._captured.options)) as session:
            table = None if temporary else (target.database, str(target.name))
            reason = side_effects(session, table, words)
        return None if reason is None else f"may change it: {reason}"


def is_online_swap(effect: Effect) -> bool:
    """Whether gh-ost or pt-online-schema-change replaces the table by its copy."""
    name, copy, old = effect.table.name, effect.old_name, effect.new_name
    if (
        name is None
        or copy is None
        or old is None
        or {copy.database, old.database} != {effect.table.database}
    ):
        return False
    name = name.lstrip("_")
    copies = {f"_{name}_gho": f"_{name}_del", f"_{name}_new": f"_{name}_old"}
    # pt-online-schema-change adds underscores if the names exist already.
    expected = copies.get(f"_{str(copy.name).lstrip('_')}")
    return expected is not None and f"_{str(old.name).lstrip('_')}" == expected


def side_effects(
    session: Session, target: tuple[str, str] | None, words: Collection[str]
) -> str | None:
    """Why a statement that writes `target` may change another table; None if it does not.

    `target` None: a temporary table. `words`: the statement's words and names in lower case. This
    checks the views, triggers and functions that the server has now. The reason completes a
    sentence.
    """
    listed = [str(row[0]) for row in session.rows("SHOW GRANTS")]
    grants = [match.groups() for grant in listed for match in _GRANT.finditer(grant)]
    reason = _functions(session, grants, words)
    if reason is not None or target is None or target[0].lower() in _SYSTEM:
        return reason
    displayed = f"{target[0]}.{target[1]}"
    (rows,) = metadata(session, [TABLES], [target])
    if not rows:
        return f"{displayed} is not a table that the server has now"
    kind, engine = rows[target][0][:2]
    if kind != "BASE TABLE" or str(engine).lower() not in ENGINES:
        return f"{displayed} is not an ordinary table"
    if session.rows(_TRIGGERS, target):
        return f"{displayed} has triggers"
    if not _granted(grants, "TRIGGER", target[0]):
        return f"{displayed} may have triggers, which are seen with the privilege TRIGGER only"
    return None


def _functions(
    session: Session, grants: Collection[tuple[str, ...]], words: Collection[str]
) -> str | None:
    functions = {str(row[0]).lower() for row in session.rows(_FUNCTIONS)}
    called = functions & set(words)
    if called:
        return f"it calls the function {min(called)}"
    if "select" in words and functions:
        return "it selects rows, perhaps from views that call functions"
    if not _granted(grants, "SELECT", None) and ("select" in words or "(" in words):
        return "it may call functions, which are seen with the privilege SELECT ON *.* only"
    return None


def _granted(grants: Collection[tuple[str, ...]], privilege: str, database: str | None) -> bool:
    places = {"*.*"} if database is None else {"*.*", f"`{database}`.*"}
    return any(
        place in places
        and {privilege, "ALL PRIVILEGES"} & {name.strip().upper() for name in listed.split(",")}
        for listed, place in grants
    )


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
    """Follows the statements about one table.

    `known`: the table as it was at first, with the sessions that hide it at the current position.
    """

    def __init__(self, captured: CapturedTable, known: TableDefinition) -> None:
        super().__init__(captured, known)
        self._found: list[DdlChange] = []

    def of(
        self, statement: Statement, where: BinlogPosition, exists: bool = True
    ) -> DdlChange | None:
        """The effect of the statement on the table; None: it has none.

        `exists`: the table exists, so that CREATE has no effect. Raises `DataLossError` for writes
        that were logged as statements.
        """
        self._found, verb = [], _verb(statement)
        try:
            self.take(statement, where)
        except SchemaChangeError:
            return DdlChange(str(statement), verb, None, "it is not understood")
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
        after = altered(changes, known)
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
    found = refusal(changes, known, known, captured | added, strict, text_keys)
    return None if found is None else found.why


def _verb(statement: Statement) -> str:
    for token in statement.readings[0]:
        if token.text.upper() in _VERBS:
            return token.text.upper()
    return ""
