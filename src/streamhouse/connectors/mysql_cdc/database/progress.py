"""The offsets of many tables: one position of the binlog for all of them, and their snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamhouse.mysql.position import BinlogPosition, BinlogState, KeyJson
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
    dropped: frozenset[str] = frozenset()

    def to_json(self) -> list[Any]:
        """The form in an offset."""
        return [self.statement, self.deletes, dict(self.renamed), sorted(self.dropped)]

    @staticmethod
    def from_json(parts: list[Any]) -> Stale:
        statement, deletes, renamed, dropped = parts
        return Stale(statement, deletes, renamed, frozenset(dropped))


@dataclass(frozen=True)
class DatabaseProgress:
    """How far a batch has read the tables of a `table_set`, as of `position`.

    `snapshot`: for each table whose snapshot is not complete, the key up to which its rows have
    been read (None: no rows). `versions`: for tables that were altered since the table set was
    written, the name of their description in `TableVersions`. `columns`: the columns of such tables
    in shards. `stale`: targets that are not written until they
    are reloaded. `gone`: tables that MySQL does not have at the position. `zone`: the server's, if
    altered tables need it. `hidden`: by table, the sessions in which a temporary table has its
    name, as in `TableDefinition.hidden_in`. `rows`: about how many rows of a
    snapshot that is not complete have been read, by table.

    About the batch that ends here: `moved`, that it is only the same place on another server;
    `reloaded`, the targets that it reloads, with their `deletes`;
    `altered`, the tables that its statement is about; `statements`, texts about those it follows.
    """

    table_set: int
    position: BinlogPosition
    binlog_state: BinlogState
    snapshot: Mapping[str, KeyJson | None] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    stale: Mapping[str, Stale] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    reloaded: Mapping[str, bool] = field(default_factory=dict)
    altered: frozenset[str] = frozenset()
    statements: tuple[str, ...] = ()
    zone: str | None = None
    hidden: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    moved: bool = False
    rows: Mapping[str, int] = field(default_factory=dict)

    def to_offset(self) -> Offset:
        """The progress as a JSON object."""
        offset: Offset = {
            "tables": self.table_set,
            "file": self.position.file,
            "pos": self.position.pos,
            **self.binlog_state.to_json(),
        }
        if self.snapshot:
            offset["snapshot"] = {
                table: None if key is None else list(key) for table, key in self.snapshot.items()
            }
        if self.columns:
            offset["columns"] = dict(self.columns)
        if self.versions:
            offset["versions"] = dict(self.versions)
        if self.stale:
            offset["stale"] = {name: table.to_json() for name, table in self.stale.items()}
        if self.gone:
            offset["gone"] = sorted(self.gone)
        if self.reloaded:
            offset["reloaded"] = dict(self.reloaded)
        if self.altered:
            offset["altered"] = sorted(self.altered)
        if self.zone is not None:
            offset["zone"] = self.zone
        if self.hidden:
            offset["hidden"] = {id: [list(part) for part in own] for id, own in self.hidden.items()}
        if self.statements:
            offset["statements"] = list(self.statements)
        if self.moved:
            offset["moved"] = True
        if self.rows:
            offset["rows"] = dict(self.rows)
        return offset

    @staticmethod
    def from_offset(offset: Mapping[str, Any]) -> DatabaseProgress | None:
        """The progress at an offset; None before the first batch."""
        if not offset:
            return None
        return DatabaseProgress(
            int(offset["tables"]),
            BinlogPosition(offset["file"], int(offset["pos"])),
            BinlogState.from_offset(offset),
            {
                table: None if key is None else tuple(key)
                for table, key in offset.get("snapshot", {}).items()
            },
            offset.get("columns", {}),
            offset.get("versions", {}),
            {name: Stale.from_json(parts) for name, parts in offset.get("stale", {}).items()},
            frozenset(offset.get("gone", ())),
            offset.get("reloaded", {}),
            frozenset(offset.get("altered", ())),
            tuple(offset.get("statements", ())),
            offset.get("zone"),
            {
                id: tuple((str(file), int(thread)) for file, thread in own)
                for id, own in offset.get("hidden", {}).items()
            },
            bool(offset.get("moved")),
            offset.get("rows", {}),
        )
