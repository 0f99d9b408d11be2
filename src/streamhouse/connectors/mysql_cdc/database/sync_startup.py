"""The tables of a sync that begins at an earlier position of the binlog.

An event of the binlog can only be decoded with the columns that its table had then. These are the
current ones, unless a statement has altered the table since: what it had before is not known.
"""

from collections.abc import Sequence
from contextlib import closing

from streamhouse.connectors.mysql_cdc.binlog.statements import DdlChanges
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition, TableRange, open_reader
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.statement_scan import FoundStatement, StatementLog
from streamhouse.errors import SchemaChangeError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.table import Server

_SHOWN = 3


def absent_tables(
    start: DatabaseProgress,
    tables: Sequence[FollowedTable],
    session: Session,
    options: MySqlOptions,
    server: Server,
) -> frozenset[str]:
    """The ids of the tables that were created, dropped or renamed after the startup position.

    Their earlier changes do not matter: at that statement, the sync reads all of their rows.
    `tables`: as they are now. Raises `SchemaChangeError` for other tables that were altered since,
    so that their columns at the startup position are not known.
    """
    end = server.position(session)
    captured = {table.full_name: table.captured_table(options, server) for table in tables}
    log = StatementLog(lambda table: captured[table.full_name], None)
    with closing(log):
        found = log.between(tables, start.position, end)
    by_table: dict[str, list[FoundStatement]] = {}
    for event in found:
        by_table.setdefault(event.table.table.full_name, []).append(event)
    absent, altered = set(), []
    for table in tables:
        own = by_table.get(table.full_name, [])
        ddls = DdlChanges(captured[table.full_name], table.definition)
        changes = [(event, ddls.of(event.statement, event.after)) for event in own]
        is_new = any(_creates(event) and not _is_conditional(event) for event in own)
        is_new |= any(change is not None and change.is_new for _, change in changes)
        if is_new or (own and _creates(own[0]) and not _has_changes(own[0], start)):
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
    reader = open_reader(
        [TableRange(found.table, TablePosition(start.position, start.binlog_state))]
    )
    try:
        return any(True for _ in reader.row_events(found.before))
    except SchemaChangeError:
        return True
    finally:
        reader.close()


def _unknown_columns(
    start: DatabaseProgress, options: MySqlOptions, altered: Sequence[FoundStatement]
) -> SchemaChangeError:
    last = max(event.after for event in altered)
    texts = "; ".join(
        f"{event.table.table.full_name} by '{event.statement}' at {event.before}"
        for event in altered[:_SHOWN]
    )
    more = f"; and {len(altered) - _SHOWN} more" if len(altered) > _SHOWN else ""
    return SchemaChangeError(
        f"the sync would start at {start.position} ('scan.startup.mode' = "
        f"'{options.startup_mode}'), but the columns of {len(altered)} tables there are not known, "
        f"as they were altered since: {texts}{more}. Exclude these tables, start at {last} or "
        "later, or use 'scan.startup.mode' = 'initial'"
    )
