"""Where the tables of a sync begin in the past of the binlog, and which of them were there.

An event of the binlog can only be decoded with the columns that its table had then. They are those
of now, unless a statement has altered them since; what they were before it is not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streamhouse.connectors.mysql_cdc.binlog.binlog_identity import BinlogIdentity
from streamhouse.connectors.mysql_cdc.binlog.ddl_change import KeptColumns
from streamhouse.connectors.mysql_cdc.binlog.startup import check_startup, startup_position
from streamhouse.connectors.mysql_cdc.binlog.statements import ParsedStatement
from streamhouse.connectors.mysql_cdc.change_reader import StartPoint, open_reader
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.schema_history import Found, StatementScan
from streamhouse.connectors.mysql_cdc.server.connection import Session
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.position import BinlogState, Position
from streamhouse.connectors.mysql_cdc.server.table import Server
from streamhouse.durable_files import replace_text
from streamhouse.errors import SchemaChangeError

_FILE = "start.json"
_SHOWN = 3


@dataclass(frozen=True)
class PastStart:
    """The position where the tables of a `catalogue` begin, and what is known of the binlog there.

    `gone`: the ids of tables that are not read before a statement creates them.
    """

    position: Position
    known: BinlogState
    catalogue: int = 0
    gone: frozenset[str] = frozenset()

    def write(self, checkpoint: Path) -> None:
        """Write it to the checkpoint of a sync, before its first catalogue."""
        text = {
            "file": self.position.file,
            "pos": self.position.pos,
            **self.known.to_json(),
            "tables": self.catalogue,
            "gone": sorted(self.gone),
        }
        checkpoint.mkdir(parents=True, exist_ok=True)
        replace_text(checkpoint / _FILE, json.dumps(text))

    @staticmethod
    def read(checkpoint: Path) -> PastStart | None:
        """What was written; None if nothing was."""
        try:
            parsed: Mapping[str, Any] = json.loads((checkpoint / _FILE).read_text())
        except FileNotFoundError:
            return None
        return PastStart(
            Position(parsed["file"], int(parsed["pos"])),
            BinlogState.from_offset(parsed),
            int(parsed["tables"]),
            frozenset(parsed["gone"]),
        )


def past_start(session: Session, options: MySqlOptions, server: Server) -> PastStart:
    """Where the options say that the tables begin.

    Raises `OptionError`, or `DataLossError` if the server no longer has the binlog from there on.
    """
    check_startup(session, options, server)
    position, skip = startup_position(session, options, server)
    identity = BinlogIdentity(session, options, server)
    try:
        known = replace(identity.known_at(position), prepared={}, skip=skip)
    finally:
        identity.close()
    return PastStart(position, known)


def absent_tables(
    start: PastStart,
    tables: Sequence[FollowedTable],
    session: Session,
    options: MySqlOptions,
    server: Server,
) -> frozenset[str]:
    """The ids of the tables that were created, dropped or renamed after the start.

    What they had before does not matter: at that statement all rows are read. `tables`: as they
    have been found. Raises `SchemaChangeError` if the columns of others at the
    start are not known, as they were altered since.
    """
    end = server.position(session)
    captured = {table.full_name: table.captured_table(options, server) for table in tables}
    scan = StatementScan(list(captured.values()))
    try:
        found = scan.between(start.position, end)
    finally:
        scan.close()
    by_table: dict[str, list[Found]] = {}
    for one in found:
        by_table.setdefault(one.table.table.full_name, []).append(one)
    absent, altered = set(), []
    for table in tables:
        own = by_table.get(table.full_name, [])
        kept = KeptColumns(captured[table.full_name])
        altering = [one for one in own if not kept.by(one.statement, one.after)]
        if kept.is_new or (own and _creates(own[0]) and not _has_changes(own[0], start)):
            absent.add(table.id)
        else:
            altered += altering[:1]
    if altered:
        raise _unknown_columns(start, options, altered)
    return frozenset(absent)


def _creates(found: Found) -> bool:
    parsed = ParsedStatement(found.statement, found.table.ignores_case)
    return parsed.creates(found.table.parsed_name)


def _has_changes(found: Found, start: PastStart) -> bool:
    """Whether the table has changes before the statement, as CREATE TABLE IF NOT EXISTS allows."""
    if not start.position < found.before:
        return False
    reader = open_reader(found.table, StartPoint(start.position, start.known))
    try:
        return any(True for _ in reader.row_events(found.before))
    except SchemaChangeError:
        return True
    finally:
        reader.close()


def _unknown_columns(
    start: PastStart, options: MySqlOptions, altered: Sequence[Found]
) -> SchemaChangeError:
    last = max(one.after for one in altered)
    texts = "; ".join(
        f"{one.table.table.full_name} by '{one.statement}' at {one.before}"
        for one in altered[:_SHOWN]
    )
    more = f"; and {len(altered) - _SHOWN} more" if len(altered) > _SHOWN else ""
    return SchemaChangeError(
        f"the sync would start at {start.position} ('scan.startup.mode' = "
        f"'{options.startup_mode}'), but the columns of {len(altered)} tables there are not known, "
        f"as they were altered since: {texts}{more}. Exclude these tables, start at {last} or "
        "later, or use 'scan.startup.mode' = 'initial'"
    )
