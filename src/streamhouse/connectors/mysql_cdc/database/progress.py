"""The offsets of many tables: one position of the binlog for all of them, and their snapshots."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from streamhouse.connectors.json_records import Names, from_json, to_json
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.mysql.position import BinlogPosition, BinlogState, KeyJson
from streamhouse.mysql.table import Size, TableDefinition
from streamhouse.source import Offset

UNKNOWN_STATEMENT = "a statement that came"
"""The start of `Stale.statement` if the statement has not been read yet."""
_VERSIONS, _SCHEMAS, _SCHEMA = "versions", "schemas", "schema"
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


@dataclass(frozen=True)
class DatabaseProgress:
    """How far a batch has read some tables, as of `position`.

    The tables are those of a `table_set` of a sync, or those of a declared table (0), by their ids.

    `snapshot`: for each table whose snapshot is not complete, the key up to which its rows have
    been read (None: no rows). `versions`: tables as they are at the position. Those of a sync are
    the ones that were altered since the table set was written, until a newer one has them. A
    declared table has all of its tables there, as `described_table` returns them. `stale`: targets
    that are not written until they are reloaded. `gone`: tables that MySQL does not have at the
    position. `zone`: the server's, if altered tables need it. `rows`: about how many rows of a
    snapshot that is not complete have been read, by table.

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

    def at(self, table: FollowedTable) -> FollowedTable:
        """A table of the table set as it is at the position."""
        return self.versions.get(table.id, table)

    def to_offset(self) -> Offset:
        """The progress as a JSON object; definitions that differ only in their names are shared."""
        schemas: dict[TableDefinition, int] = {}
        versions = {}
        for id, table in self.versions.items():
            names = TableDefinition(*table.names, size=table.definition.size)
            schema = replace(table.definition, database="", name="", size=Size())
            number = schemas.setdefault(schema, len(schemas))
            versions[id] = {**to_json(replace(table, definition=names)), _SCHEMA: number}
        offset: Offset = to_json(replace(self, versions={}))
        offset |= {**offset.pop("position"), **offset.pop("binlog_state", {})}
        return offset | (
            {_VERSIONS: versions, _SCHEMAS: list(map(to_json, schemas))} if versions else {}
        )

    @classmethod
    def from_offset(cls, offset: Offset) -> Self | None:
        """The progress at an offset; None before the first batch."""
        if "file" not in offset:
            return None
        schemas = from_json(list[TableDefinition], offset.get(_SCHEMAS, []))
        versions = {}
        for id, given in offset.get(_VERSIONS, {}).items():
            table, schema = from_json(FollowedTable, given), schemas[given[_SCHEMA]]
            database, name = table.names
            named = replace(schema, database=database, name=name, size=table.definition.size)
            versions[id] = replace(table, definition=named)
        read = {**offset, "position": offset, "binlog_state": offset, _VERSIONS: versions}
        return from_json(cls, read)


def described_table(table: FollowedTable, known: TableDefinition | None) -> FollowedTable:
    """A declared table's MySQL table in an offset: the script has the columns to read.

    `known`: the table at the position; None: it has no columns, since they are not known. The index
    is that of the key in whose order rows are read.
    """
    index = table.definition.index
    unknown = TableDefinition(*table.names, index=index)
    definition = replace(known, index=index, size=Size()) if known else unknown
    return FollowedTable(table.id, definition)
