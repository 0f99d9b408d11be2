"""The statements about the tables of a sync: their positions in the binlog, and their effects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.ddl_change import DdlChange, DdlChanges
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress, Stale
from streamhouse.connectors.mysql_cdc.database.tables.discovery import FoundTable
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.connectors.mysql_cdc.statement_scan import FoundStatement, StatementScan
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server

_NOWHERE = BinlogPosition("none.0", 0)


class RelayBehindError(Exception):
    """The relay log has not reached a position yet, or has ended."""


@dataclass
class FollowedStatements:
    """The consequences of statements for a sync.

    `tables`: those with a new description. `stale`: targets to reload. `gone`: the ids of tables
    that no longer exist. `texts`: messages to the user.
    """

    tables: list[FollowedTable] = field(default_factory=list)
    stale: dict[str, Stale] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)


class StatementGroup(NamedTuple):
    """The effects of the statements of a group of events, by the ids of tables; the group's end.

    `hidden`: for tables for which that has changed, the sessions in which a temporary table has
    the table's name.
    """

    found: dict[str, DdlChange]
    hidden: dict[str, tuple[tuple[str, int], ...]]
    end: BinlogPosition


class PreparedReload(NamedTuple):
    """A target that can be reloaded: the tables as they are now, and messages to the user.

    `deletes`: rows that MySQL does not have are to be deleted.
    """

    tables: list[FollowedTable]
    deletes: bool
    texts: list[str] = []


class SchemaFollower(Protocol):
    """Decides the consequences of statements for the targets, and alters these."""

    def follow(
        self,
        tables: Mapping[str, FollowedTable],
        before: DatabaseProgress,
        found: Mapping[str, DdlChange],
    ) -> FollowedStatements:
        """Follow the statements in `found`, by the ids of the tables.

        `tables`: as they are `before` the statements. Raises `SchemaChangeError` for a statement
        that cannot be followed.
        """
        ...

    def compared(
        self, targets: Collection[str], tables: Iterable[FollowedTable]
    ) -> dict[str, Stale]:
        """Those of `targets` whose rows are compared with MySQL's before any is written.

        They are the targets that have rows of other queries. `tables`: all tables of the sync.
        """
        ...

    def prepare(
        self,
        target: str,
        stale: Stale,
        tables: Mapping[str, FollowedTable],
        found: Mapping[str, FoundTable],
    ) -> PreparedReload:
        """Alter a target so that it has the columns of its tables as `found`, by their ids."""
        ...


@dataclass(frozen=True)
class _ScannedRange:
    """The statements about tables in a range of the binlog."""

    names: frozenset[str]
    start: BinlogPosition
    end: BinlogPosition
    found: list[FoundStatement]

    def covers(self, names: frozenset[str], start: BinlogPosition, end: BinlogPosition) -> bool:
        return names == self.names and self.start <= start and end <= self.end

    def group(self, names: frozenset[str], start: BinlogPosition) -> list[FoundStatement]:
        """The statements of the group of events at a position; none if they are not known."""
        return [event for event in self.found if names == self.names and event.before == start]


class TableStatements:
    """Finds the statements about followed tables; in the planner."""

    def __init__(
        self,
        options: MySqlOptions,
        server: Server,
        relay: Path,
        view: Callable[[], RelayView | None],
    ) -> None:
        self._options, self._server, self._relay, self._view = options, server, relay, view
        self._outcomes: dict[str, DdlChanges] = {}
        self._scanned = _ScannedRange(frozenset(), _NOWHERE, _NOWHERE, [])

    def first(
        self, tables: Iterable[FollowedTable], start: BinlogPosition, end: BinlogPosition
    ) -> BinlogPosition | None:
        """The position of the first statement about one of the tables, from `start` up to `end`.

        Raises `RelayBehindError` if the relay log does not reach `end` within 10 s.
        """
        view = self._view()
        state = view.state() if view is not None and view.reaches(end) else None
        if state is None:
            raise RelayBehindError
        found: list[BinlogPosition] = []
        unknown: dict[str, BinlogPosition] = {}
        tables = list(tables)
        for table in tables:
            known = state.altered.get(table.full_name, ())
            if state.lacks_statements(table.full_name, start):
                unknown[table.full_name] = min(known[0], end)
            found += [at for at in known if start <= at < end]
        if unknown:
            for event in self._between(tables, start, max(unknown.values())):
                if start <= event.before < unknown.get(event.table.table.full_name, start):
                    found.append(event.before)
        return min(found, default=None)

    def at(
        self,
        tables: Iterable[FollowedTable],
        gone: Collection[str],
        start: BinlogPosition,
        until: BinlogPosition | None = None,
    ) -> StatementGroup:
        """The effects of the statements of the group at `start`.

        `until`: the caller asks for the statements up to there next.
        """
        tables = list(tables)
        if until is not None:
            self._between(tables, start, until)
        statements = self._scanned.group(_names(tables), start)
        if statements:
            end = statements[0].after
        else:
            scan = StatementScan([self._captured(table) for table in tables])
            statements, end = scan.group(start)
        by_names = {table.full_name: table for table in tables}
        found: dict[str, DdlChange] = {}
        hidden: dict[str, tuple[tuple[str, int], ...]] = {}
        for event in statements:
            table = by_names[event.table.table.full_name]
            before = hidden.get(table.id, table.definition.hidden_in)
            table = table.hidden_in(before)
            ddls = self._of(table)
            ddl = ddls.of(event.statement, event.after, table.id not in gone)
            if ddl is not None:
                found[table.id] = ddl
            if ddls.hidden_in != before:
                hidden[table.id] = ddls.hidden_in
        return StatementGroup(found, hidden, end)

    def _of(self, table: FollowedTable) -> DdlChanges:
        if table.id not in self._outcomes:
            self._outcomes[table.id] = DdlChanges(self._captured(table), table.definition)
        ddls = self._outcomes[table.id]
        ddls.set_table(self._captured(table))
        return ddls

    def _between(
        self, tables: Sequence[FollowedTable], start: BinlogPosition, end: BinlogPosition
    ) -> list[FoundStatement]:
        """The statements about tables between two ends of transactions.

        Keeps them: a sync that is far behind asks for them again after each statement, and each
        scan opens a connection to the server.
        """
        names = _names(tables)
        if not self._scanned.covers(names, start, end):
            with closing(StatementScan([self._captured(table) for table in tables])) as scan:
                found = scan.between(start, end)
            self._scanned = _ScannedRange(names, start, end, found)
        return self._scanned.found

    def _captured(self, table: FollowedTable) -> CapturedTable:
        return table.captured_table(self._options, self._server, self._relay)


def _names(tables: Iterable[FollowedTable]) -> frozenset[str]:
    return frozenset(table.full_name for table in tables)
