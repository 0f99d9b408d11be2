"""The parts of a batch: which changes and rows to read of each of many tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from streamhouse.connectors.mysql_cdc.change_reader import TablePosition
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.tables.table_sets import TableSet, TableSets
from streamhouse.connectors.mysql_cdc.database.tables.versions import TableVersions
from streamhouse.connectors.mysql_cdc.key_group import KeyGroup
from streamhouse.connectors.mysql_cdc.schema_history import table_at
from streamhouse.connectors.mysql_cdc.server.position import KeyJson
from streamhouse.connectors.mysql_cdc.snapshot.chunks import Chunk

_ALL_ROWS = Chunk(None, None)


@dataclass(frozen=True)
class TablePart:
    """The changes and rows that a batch reads of one table.

    `changes`: the position from which its changes are read, of keys up to `up_to` (None: of all
    keys); None: it has no changes. `chunks` of the snapshot are read `as_of` a position; for
    `lookback` see `ChunkReader`. `reload`: the batch compares the rows of all parts of the target
    with the target's, and deletes rows that MySQL does not have; False: it keeps these; None: it
    inserts the rows without comparing them. `key_group`: the keys whose changes are read, if
    several tasks read the table.
    """

    table: FollowedTable
    changes: TablePosition | None
    up_to: KeyJson | None
    chunks: tuple[Chunk, ...] = ()
    as_of: TablePosition | None = None
    lookback: TablePosition | None = None
    reload: bool | None = None
    key_group: KeyGroup | None = None

    def divided(self, count: int) -> list[TablePart]:
        """The part as parts for `count` tasks; only one if it has more than changes, or no key."""
        key = self.table.key_indexes
        only_changes = not self.chunks and self.up_to is None and self.reload is None
        if not only_changes or not key or count == 1:
            return [self]
        return [replace(self, key_group=KeyGroup(key, number, count)) for number in range(count)]


class Unread(NamedTuple):
    """The unread part of a table between two offsets.

    `changes`: whether there may be changes, of keys up to `up_to` (None: of all keys). `keys`: the
    range of the snapshot; None: no rows of it.
    """

    changes: bool
    up_to: KeyJson | None
    keys: Chunk | None


def unread_of(
    table: FollowedTable,
    before: DatabaseProgress | None,
    after: DatabaseProgress,
    changed: Collection[str] | None,
    skip_snapshot: bool,
) -> Unread:
    """The unread part of a table in the batch between two offsets.

    `before`: None if the table is new in the batch. `changed`: the names of tables with changes in
    the batch; None: perhaps all tables. `skip_snapshot`: the table is new, but its existing rows
    are not read.
    """
    low = None if before is None else before.snapshot.get(table.id)
    complete = skip_snapshot or (before is not None and table.id not in before.snapshot)
    changes = before is not None and before.position < after.position
    changes = changes and (complete or low is not None)
    changes = changes and (changed is None or table.full_name in changed)
    keys = None
    if not complete and (table.id not in after.snapshot or after.snapshot[table.id] != low):
        keys = Chunk(low, after.snapshot.get(table.id))
    return Unread(changes, None if complete else low, keys)


class TablesAt:
    """The followed tables of a sync as they are at an offset."""

    def __init__(self, table_sets: TableSets, versions: TableVersions) -> None:
        self._table_sets, self._versions = table_sets, versions

    def all(self, progress: DatabaseProgress, table_set: TableSet) -> dict[str, FollowedTable]:
        """All tables of a table set, by their ids."""
        return {id: self.one(progress, table) for id, table in table_set.tables.items()}

    def one(self, progress: DatabaseProgress, table: FollowedTable) -> FollowedTable:
        """The table at the position of `progress`."""
        return self._columns(progress, table).hidden_in(progress.hidden.get(table.id, ()))

    def _columns(self, progress: DatabaseProgress, table: FollowedTable) -> FollowedTable:
        if table.id in progress.versions:
            return self._versions.get(progress.versions[table.id])
        if table.id in progress.columns:
            definition = table_at(progress.columns[table.id], table.definition)
            return table if definition is None else table.with_definition(definition)
        return table

    def parts(
        self,
        before: DatabaseProgress | None,
        after: DatabaseProgress,
        changed: Collection[str] | None,
        skip_snapshot: bool,
        chunks: Callable[[FollowedTable, Chunk], list[Chunk]],
    ) -> Iterator[TablePart]:
        """The parts of a batch; `changed` as of `unread_of`; `chunks` divides a range of keys."""
        newest = self._table_sets.latest().tables
        old: Mapping[str, FollowedTable] = {}
        if before is not None:
            old = self._table_sets.get(before.table_set).tables
        for table in self._table_sets.get(after.table_set).tables.values():
            if table.id not in newest:
                continue  # It was removed from the sync after the batch was planned.
            own = before if table.id in old else None
            skips = before is None and skip_snapshot
            part = self._part(table, own, after, changed, skips, chunks)
            if part is not None:
                yield part

    def _part(
        self,
        table: FollowedTable,
        before: DatabaseProgress | None,
        after: DatabaseProgress,
        changed: Collection[str] | None,
        skip_snapshot: bool,
        chunks: Callable[[FollowedTable, Chunk], list[Chunk]],
    ) -> TablePart | None:
        now = self.one(after, table)
        if table.target in after.reloaded:
            return self._reloaded(now, before, after)
        if table.target in after.stale or table.id in after.gone:
            return None
        begin = None if before is None else _position(self.one(before, table), before)
        unread = unread_of(table, before, after, changed, skip_snapshot)
        # A batch that ends after a statement about the table has nothing else of the table.
        changes = begin if unread.changes and table.id not in after.altered else None
        own = [] if unread.keys is None else chunks(now, unread.keys)
        if changes is None and not own:
            return None
        as_of = _position(now, after) if own else None
        lookback = begin if own else None
        return TablePart(now, changes, unread.up_to, tuple(own), as_of, lookback)

    def _reloaded(
        self, table: FollowedTable, before: DatabaseProgress | None, after: DatabaseProgress
    ) -> TablePart:
        """All rows of a table; none if MySQL no longer has it."""
        deletes = after.reloaded[table.target]
        if table.id in after.gone:
            return TablePart(table, None, None, reload=deletes)
        lookback = None if before is None else _position(table, before)
        as_of = _position(table, after)
        return TablePart(table, None, None, (_ALL_ROWS,), as_of, lookback, deletes)


def _position(table: FollowedTable, progress: DatabaseProgress) -> TablePosition:
    return TablePosition(progress.position, progress.binlog_state, table.definition)
