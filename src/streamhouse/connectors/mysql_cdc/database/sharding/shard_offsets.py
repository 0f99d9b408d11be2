"""The offsets of several tables that are read as one: with their names and columns.

Beside what `DatabaseProgress` has, `shards` has the names of each table and the number of its
columns in `schemas`: tables that are read as one mostly have the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamhouse.connectors.mysql_cdc.database.tables.discovery import TableNames
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.server.position import SHARDS
from streamhouse.source import Offset

_SCHEMAS, _COLUMNS = "schemas", "columns"


def encoded(plain: Offset, tables: Mapping[str, FollowedTable]) -> Offset:
    """The offset of a stream, from that of `DatabaseProgress` and the tables by their ids."""
    schemas: list[Any] = []
    shards: dict[str, list[Any]] = {}
    for id, table in tables.items():
        columns = plain.get(_COLUMNS, {}).get(id, {})
        if columns not in schemas:
            schemas.append(columns)
        shards[id] = [*table.names, schemas.index(columns)]
    kept = {key: value for key, value in plain.items() if key != _COLUMNS}
    return {**kept, SHARDS: shards, _SCHEMAS: schemas}


def decoded(offset: Offset) -> Offset:
    """The offset of `DatabaseProgress` in that of a stream."""
    kept = {key: value for key, value in offset.items() if key not in (SHARDS, _SCHEMAS)}
    columns = {id: offset[_SCHEMAS][shard[2]] for id, shard in offset[SHARDS].items()}
    return {**kept, _COLUMNS: columns} if columns else kept


def shards_of(offset: Offset) -> dict[str, TableNames]:
    """The names of the tables, by their ids."""
    return {id: (shard[0], shard[1]) for id, shard in offset[SHARDS].items()}
