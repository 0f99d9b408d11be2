"""Checks whether the stream of a table can continue after statements in the binlog.

docs/decisions/140-statements-in-the-binlog.md says why.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from typing import NoReturn

from streamhouse.connectors.mysql_cdc.binlog.alter_table import Refusal, altered, refusal
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.query import Statement
from streamhouse.connectors.mysql_cdc.binlog.sql.alter import Alteration, alteration
from streamhouse.connectors.mysql_cdc.binlog.sql.effects import Effect, EffectKind, Effects
from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import TableName, UnclearStatement
from streamhouse.errors import DataLossError, SchemaChangeError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.metadata import metadata
from streamhouse.mysql.position import START_AGAIN, BinlogPosition
from streamhouse.mysql.table import ENGINES, TABLES, TableDefinition

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
        key = [column.name.lower() for column in self._captured.table.key]
        index, text_keys = self._captured.table.index, self._captured.text_keys
        found = refusal(changes, self.known, captured, key, strict, index, text_keys)
        after = (
            None
            if self.known is None
            else altered(changes, self.known, complete=not self._captured.server.logs_names)
        )
        if found is not None:
            self._refuse_alter(found, after, statement, where)
        self.known = after

    def _refuse_alter(
        self,
        found: Refusal,
        after: TableDefinition | None,
        statement: Statement,
        where: BinlogPosition,
    ) -> NoReturn:
        if found.missing is None:
            self._refuse(statement, where, found.why)
        now = "" if after is None else f", where it has {', '.join(c.name for c in after.columns)}"
        raise SchemaChangeError(
            f"MySQL table {self._captured.table.full_name} has no column '{found.missing}' after "
            f"'{statement}' in the binlog at {where}{now}: it was dropped or renamed; " + REDECLARE
        )

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
