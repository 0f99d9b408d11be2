"""The offsets of many tables: one position of the binlog for all of them, and their snapshots."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from streamhouse.connectors.json_records import Names, from_json, to_json
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.position import BinlogPosition, BinlogState, KeyJson
from streamhouse.mysql.table import PRIMARY, Size, TableDefinition
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
    """A table that a declared table reads.

    `key`: the index of the key in whose order it is read. `schema`: the index of its columns in
    `DatabaseProgress.schemas`; None: they are not known.
    """

    database: str
    name: str
    key: str = PRIMARY
    schema: int | None = None

    @property
    def names(self) -> TableNames:
        return self.database, self.name


@dataclass(frozen=True)
class DatabaseProgress:
    """How far a batch has read some tables, as of `position`.

    The tables are those of a `table_set` of a sync, or the `shards` of a declared table (0), by
    their ids.

    `snapshot`: for each table whose snapshot is not complete, the key up to which its rows have
    been read (None: no rows). `versions`: the tables that were altered since the table set was
    written, until a newer one has them. `stale`: targets that are not written until they are
    reloaded. `gone`: tables that MySQL does not have at the position. `zone`: the server's, if
    altered tables need it. `rows`: about how many rows of a snapshot that is not complete have been
    read, by table. `schemas`: the columns of shards, each once, as tables without names.

    About the batch that ends here: `moved`, that it is only the same place on another server;
    `reloaded`, the targets that it reloads, with their `deletes`;
    `altered`, the tables that its statement is about; `statements`, texts about those it follows.
    """

    table_set: int
    position: BinlogPosition
    binlog_state: BinlogState
    snapshot: Mapping[str, KeyJson | None] = field(default_factory=dict)
    versions: Mapping[str, FollowedTable] = field(default_factory=dict)
    stale: Mapping[str, Stale] = field(default_factory=dict)
    gone: Names = frozenset()
    reloaded: Mapping[str, bool] = field(default_factory=dict)
    altered: Names = frozenset()
    statements: tuple[str, ...] = ()
    zone: str | None = None
    moved: bool = False
    rows: Mapping[str, int] = field(default_factory=dict)
    shards: Mapping[str, Shard] = field(default_factory=dict)
    schemas: tuple[TableDefinition, ...] = ()

    def at(self, table: FollowedTable) -> FollowedTable:
        """A table of the table set as it is at the position."""
        return self.versions.get(table.id, table)

    def definition(self, shard: FollowedTable) -> TableDefinition | None:
        """A shard as it is at the position; None if its columns are not known."""
        schema, now = self.shards[shard.id].schema, shard.definition
        if schema is None:
            return None
        return replace(self.schemas[schema], database=now.database, name=now.name, size=now.size)

    def with_shards(
        self, tables: Iterable[FollowedTable], known: Mapping[str, TableDefinition]
    ) -> Self:
        """The progress of these shards; `known`: their definitions at the position, by id."""
        shards: dict[str, Shard] = {}
        schemas: dict[TableDefinition, int] = {}
        for table in tables:
            schema = None
            if table.id in known:
                nameless = replace(known[table.id], database="", name="", size=Size())
                schema = schemas.setdefault(nameless, len(schemas))
            shards[table.id] = Shard(*table.names, table.definition.index, schema)
        return replace(self, shards=shards, schemas=tuple(schemas))

    def to_offset(self) -> Offset:
        """The progress as a JSON object."""
        offset: Offset = to_json(self)
        offset |= {**offset.pop("position"), **offset.pop("binlog_state", {})}
        return offset

    @classmethod
    def from_offset(cls, offset: Offset) -> Self | None:
        """The progress at an offset; None before the first batch."""
        if "file" not in offset:
            return None
        return from_json(cls, {**offset, "position": offset, "binlog_state": offset})
