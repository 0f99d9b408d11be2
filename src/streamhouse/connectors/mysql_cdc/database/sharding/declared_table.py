"""Opens the source of a declared table: one MySQL table, or all that its name matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from streamhouse.connectors.mysql_cdc.database.sharding.shard_offsets import shards_of
from streamhouse.connectors.mysql_cdc.database.sharding.sharded_source import ShardedSource
from streamhouse.connectors.mysql_cdc.database.sharding.shards import expressions, may_be_expression
from streamhouse.connectors.mysql_cdc.database.tables.discovery import Discovery
from streamhouse.connectors.mysql_cdc.database.tables.table_filter import TableFilter
from streamhouse.connectors.mysql_cdc.relay.log import RelayTable
from streamhouse.connectors.mysql_cdc.server.connection import FIRST_START_SECONDS, Session
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions, parse
from streamhouse.connectors.mysql_cdc.server.position import SHARDS
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.source import Offset
from streamhouse.sql.plan import Column

DeclaredSource: TypeAlias = MySqlSource | ShardedSource


def open_source(
    options: Mapping[str, str],
    columns: Sequence[Column] | None = None,
    relay: Path | None = None,
) -> DeclaredSource:
    """The source of the tables that the options name; see `MySqlSource` for the parameters."""
    parsed = parse(options)
    tables = _expressions(parsed)
    if tables is None:
        return MySqlSource(options, columns, relay)
    return ShardedSource(parsed, tables, columns, relay)


def followed_tables(options: MySqlOptions, offset: Offset) -> list[RelayTable]:
    """The tables whose changes the source with these options reads after an offset."""
    tables = _expressions(options)
    if tables is None:
        return [RelayTable(options.database, options.table)]
    known = set(shards_of(offset).values()) if SHARDS in offset else set()
    if not known or options.new_tables:
        session = Session(options, FIRST_START_SECONDS)
        try:
            known |= Discovery(session, options, tables, views=False).names()
        finally:
            session.close()
    return [RelayTable(*names) for names in sorted(known)]


def _expressions(options: MySqlOptions) -> TableFilter | None:
    if not may_be_expression(options):
        return None
    session = Session(options, FIRST_START_SECONDS)
    try:
        return expressions(session, options)
    finally:
        session.close()
