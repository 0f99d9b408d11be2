"""Reads ahead in the server's binlog: statements about tables, and where a batch may end."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.dump import BinlogDump, RawEvent
from streamhouse.connectors.mysql_cdc.binlog.format.events import QUERY
from streamhouse.connectors.mysql_cdc.binlog.query import Statement, statement_of
from streamhouse.connectors.mysql_cdc.binlog.statements import DdlChanges
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition, log_view, open_reader
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.errors import SchemaChangeError
from streamhouse.mysql.connection import retried
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition

_SHOWN = 3
_NOWHERE = BinlogPosition("none.0", 0)


class FoundStatement(NamedTuple):
    """A statement that concerns a table, with the ends of transactions before and after it."""

    before: BinlogPosition
    statement: Statement
    after: BinlogPosition
    table: CapturedTable

    @property
    def name(self) -> str:
        """`database.table`."""
        return self.table.table.full_name


class StatementLog:
    """Finds the statements about followed tables; in a planner, on the driver.

    It asks the relay log in the folder `relay`, if there is one, which tables have statements, and
    scans the server's binlog for these. It keeps the statements of the last range, since a planner
    that is far behind asks for them again after each one, and first for the end of a batch.
    `captured_of` returns what readers of the binlog need of a table.
    """

    def __init__(
        self, captured_of: Callable[[FollowedTable], CapturedTable], relay: Path | None
    ) -> None:
        self._captured_of, self._relay = captured_of, relay
        self._tables: list[CapturedTable] = []
        self._dump: BinlogDump | None = None
        self._names: frozenset[str] = frozenset()
        self._start = self._end = _NOWHERE
        self._found: list[FoundStatement] = []

    def between(
        self,
        tables: Iterable[FollowedTable],
        start: BinlogPosition,
        end: BinlogPosition,
        wait: bool = False,
    ) -> list[FoundStatement]:
        """The statements about tables between two ends of transactions, in order.

        `wait`: up to 10 s for the relay log to reach `end`.
        """
        tables = list(tables)
        if not tables or not start < end:
            return []
        affected = list(self._affected(tables, start, end, wait))
        if not affected:
            return []
        names = frozenset(table.full_name for table in affected)
        if not (names <= self._names and self._start <= start and end <= self._end):
            self._scan(affected, start, end)
        return [
            event
            for event in self._found
            if start <= event.before and event.after <= end and event.name in names
        ]

    def bounded(
        self,
        tables: Sequence[FollowedTable],
        start: BinlogPosition,
        end: BinlogPosition,
        most_bytes: int,
    ) -> BinlogPosition:
        """The end of a batch of about `most_bytes` of the binlog, at most up to `end`.

        It is the end of a transaction, which is never split.
        """
        if start.file == end.file and end.pos - start.pos <= most_bytes:
            return end
        self._scan(tables, start, end, most_bytes)
        return self._end

    def _scan(
        self,
        tables: Sequence[FollowedTable],
        start: BinlogPosition,
        end: BinlogPosition,
        most_bytes: int | None = None,
    ) -> None:
        self._tables = [self._captured_of(table) for table in tables]
        options = self._tables[0].options
        found = retried(options, lambda: self._read(start, end, most_bytes), self.close)
        self._found, self._end = found
        self._names, self._start = frozenset(table.full_name for table in tables), start
        if self._relay is not None:
            self.close()  # The pipeline has one connection for all tables.

    def close(self) -> None:
        """Close the connection, which is kept for the next range."""
        dump, self._dump = self._dump, None
        if dump is not None:
            dump.close()

    def _read(
        self, start: BinlogPosition, end: BinlogPosition, most_bytes: int | None
    ) -> tuple[list[FoundStatement], BinlogPosition]:
        """The statements up to `end`, or to the first end of a transaction after `most_bytes`."""
        if self._dump is None or self._dump.track.position != start:
            self.close()
            self._dump = BinlogDump(self._tables[0].options, start)
        track = self._dump.track
        found: list[FoundStatement] = []
        opened: list[tuple[BinlogPosition, Statement, CapturedTable]] = []
        before, read = start, 0
        for event in self._dump.up_to(end):
            opened += [(before, *following) for following in self._statements(event, track.trailer)]
            read += event.size
            if track.between:
                before = track.position
                found += [FoundStatement(one, text, before, table) for one, text, table in opened]
                opened = []
                if most_bytes is not None and read > most_bytes and before > start:
                    break
        return found, before

    def _statements(self, event: RawEvent, trailer: int) -> list[tuple[Statement, CapturedTable]]:
        """The statement of an event, with each table that it concerns."""
        _, kind, size, _, data, at, _ = event
        if kind != QUERY:
            return []
        server, end = self._tables[0].server, at + size - trailer
        statement = statement_of(kind, data, at, end, server.mariadb, server.ignores_case)
        if statement is None:
            return []
        return [(statement, one) for one in self._tables if statement.is_about(one.parsed_name)]

    def _affected(
        self,
        tables: Iterable[FollowedTable],
        start: BinlogPosition,
        end: BinlogPosition,
        wait: bool,
    ) -> Iterable[FollowedTable]:
        """The tables that may have statements."""
        view = log_view(self._relay)
        begin = view.begin()
        if begin is None or start < begin or (wait and not view.reaches(end)):
            return tables
        state = view.state()
        if state is None or state.end < end:
            return tables
        return [
            table
            for table in tables
            if table.full_name not in state.changed
            or state.may_have_statements(table.full_name, start, end)
        ]


def absent_tables(
    start: DatabaseProgress,
    tables: Iterable[FollowedTable],
    found: Iterable[FoundStatement],
    options: MySqlOptions,
) -> frozenset[str]:
    """The ids of the tables that were created, dropped or renamed after the startup position.

    Their earlier changes do not matter: at that statement, the sync reads all of their rows.
    `tables`: as they are now. `found`: the statements about them since. Raises `SchemaChangeError`
    for other tables that were altered since: their events before can only be decoded with the
    columns of then, which are not known.
    """
    by_table: dict[str, list[FoundStatement]] = {}
    for event in found:
        by_table.setdefault(event.name, []).append(event)
    absent, altered = set(), []
    for table in tables:
        own = by_table.get(table.full_name, [])
        if not own:
            continue
        ddls = DdlChanges(own[0].table, table.definition)
        changes = [(event, ddls.of(event.statement, event.after)) for event in own]
        is_new = any(_creates(event) and not _is_conditional(event) for event in own)
        is_new |= any(change is not None and change.is_new for _, change in changes)
        if is_new or (_creates(own[0]) and not _has_changes(own[0], start)):
            absent.add(table.id)
            continue
        altering = (event for event, change in changes if change and not change.keeps_columns)
        altered += list(altering)[:1]
    if altered:
        raise _unknown_columns(start, options, altered)
    return frozenset(absent)


def _creates(found: FoundStatement) -> bool:
    return found.statement.creates(found.table.parsed_name)


def _is_conditional(found: FoundStatement) -> bool:
    return any(token.text.upper() == "EXISTS" for token in found.statement.readings[0])


def _has_changes(found: FoundStatement, start: DatabaseProgress) -> bool:
    """Whether the table has changes before the statement, a CREATE TABLE IF NOT EXISTS."""
    if not start.position < found.before:
        return False
    begin = TablePosition(start.position, start.binlog_state)
    with closing(open_reader({found.table: begin}, relayed=False)) as reader:
        try:
            return any(True for _ in reader.row_events(found.before))
        except SchemaChangeError:
            return True


def _unknown_columns(
    start: DatabaseProgress, options: MySqlOptions, altered: Sequence[FoundStatement]
) -> SchemaChangeError:
    last = max(event.after for event in altered)
    texts = "; ".join(
        f"{event.name} by '{event.statement}' at {event.before}" for event in altered[:_SHOWN]
    )
    more = f"; and {len(altered) - _SHOWN} more" if len(altered) > _SHOWN else ""
    return SchemaChangeError(
        f"the sync would start at {start.position} ('scan.startup.mode' = "
        f"'{options.startup_mode}'), but the columns of {len(altered)} tables there are not known, "
        f"as they were altered since: {texts}{more}. Exclude these tables, start at {last} or "
        "later, or use 'scan.startup.mode' = 'initial'"
    )
