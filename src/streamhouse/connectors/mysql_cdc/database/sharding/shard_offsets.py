"""The offsets of several tables that are read as one.

They have the keys of `DatabaseProgress`, except that `columns` is stored once for all tables with
the same columns: `schemas` is a list of columns, and `shards` has the database, the name and the
index in `schemas` of each table.
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
    """The stream's offset for an offset of `DatabaseProgress`; `tables`: by their ids."""
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
    """The offset of `DatabaseProgress` for the stream's offset."""
    kept = {key: value for key, value in offset.items() if key not in (SHARDS, _SCHEMAS)}
    columns = {id: offset[_SCHEMAS][shard[2]] for id, shard in offset[SHARDS].items()}
    return {**kept, _COLUMNS: columns} if columns else kept


def shards_of(offset: Offset) -> dict[str, TableNames]:
    """The names of the tables, by their ids."""
    return {id: (shard[0], shard[1]) for id, shard in offset[SHARDS].items()}
