"""The offsets of many tables: one position of the binlog for all of them, and their snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.json_records import Names, from_json, to_json
from streamhouse.mysql.position import BinlogPosition, BinlogState, KeyJson
from streamhouse.mysql.table import PRIMARY
from streamhouse.source import Offset

UNKNOWN_STATEMENT = "a statement that came"
"""The start of `Stale.statement` if the statement has not been read yet."""
FOREIGN_KEY = "a foreign key that changes rows without row events"
"""The `Stale.statement` if there was no statement about the target's tables."""


@dataclass(frozen=True)
class Stale:
    """A target whose rows must be compared with MySQL's, because of `statement`.

    `deletes`: whether to delete rows that MySQL does not have. `renamed` and `dropped`: columns, as
    in `DdlChange`.
    """

    statement: str
    deletes: bool = True
    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: Names = frozenset()


class Shard(NamedTuple):
    """A table that a declared table reads, and the index of the key in whose order it reads it."""

    database: str
    name: str
    key: str = PRIMARY


_SHARDS, _SCHEMAS = "shards", "schemas"


@dataclass(frozen=True)
class DatabaseProgress:
    """How far a batch has read some tables, as of `position`.

    The tables are those of a `table_set` of a sync, or the `shards` of a declared table (0), by
    their ids.

    `snapshot`: for each table whose snapshot is not complete, the key up to which its rows have
    been read (None: no rows). `versions`: the tables that were altered since the table set was
    written, until a newer one has them. `columns`: those of shards, which the offset has once for
    all shards with the same columns. `stale`: targets that are not written until they are reloaded.
    `gone`: tables that MySQL does not have at the position. `zone`: the server's, if altered tables
    need it. `hidden`: by table, the sessions in which a temporary table has its name, as in
    `TableDefinition.hidden_in`. `rows`: about how many rows of a snapshot that is not complete have
    been read, by table.

    About the batch that ends here: `moved`, that it is only the same place on another server;
    `reloaded`, the targets that it reloads, with their `deletes`;
    `altered`, the tables that its statement is about; `statements`, texts about those it follows.
    """

    table_set: int
    position: BinlogPosition
    binlog_state: BinlogState
    snapshot: Mapping[str, KeyJson | None] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, FollowedTable] = field(default_factory=dict)
    stale: Mapping[str, Stale] = field(default_factory=dict)
    gone: Names = frozenset()
    reloaded: Mapping[str, bool] = field(default_factory=dict)
    altered: Names = frozenset()
    statements: tuple[str, ...] = ()
    zone: str | None = None
    hidden: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    moved: bool = False
    rows: Mapping[str, int] = field(default_factory=dict)
    shards: Mapping[str, Shard] = field(default_factory=dict)

    def at(self, table: FollowedTable) -> FollowedTable:
        """A table of the table set as it is at the position."""
        return self.versions.get(table.id, table).hidden_in(self.hidden.get(table.id, ()))

    def to_offset(self) -> Offset:
        """The progress as a JSON object."""
        offset: Offset = to_json(replace(self, columns={}))
        offset |= {**offset.pop("position"), **offset.pop("binlog_state", {})}
        if self.shards:
            schemas: list[Any] = []
            offset[_SHARDS], offset[_SCHEMAS] = {}, schemas
            for id, (database, name, key) in self.shards.items():
                own = self.columns.get(id, {})
                if own not in schemas:
                    schemas.append(own)
                keys = [] if key == PRIMARY else [key]
                offset[_SHARDS][id] = [database, name, schemas.index(own), *keys]
        return offset

    @staticmethod
    def from_offset(offset: Mapping[str, Any]) -> DatabaseProgress | None:
        """The progress at an offset; None before the first batch."""
        if "file" not in offset:
            return None
        shards: Mapping[str, list[Any]] = offset.get(_SHARDS, {})
        parts = {
            "position": offset,
            "binlog_state": offset,
            "columns": {id: offset[_SCHEMAS][shard[2]] for id, shard in shards.items()},
            "shards": {id: [*shard[:2], *shard[3:]] for id, shard in shards.items()},
        }
        return from_json(DatabaseProgress, {**offset, **parts})
