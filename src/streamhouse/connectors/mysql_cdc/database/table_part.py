"""What the batches of a sync read of each table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from streamhouse.connectors.mysql_cdc.change_reader import TablePosition
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.tables.catalogue import Catalogue, Catalogues
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.tables.versions import TableVersions
from streamhouse.connectors.mysql_cdc.key_group import KeyGroup
from streamhouse.connectors.mysql_cdc.schema_history import table_at
from streamhouse.connectors.mysql_cdc.server.position import KeyJson
from streamhouse.connectors.mysql_cdc.snapshot import Chunk

WHOLE = Chunk(None, None)
"""All rows of a table."""


@dataclass(frozen=True)
class TablePart:
    """What a batch reads of one table.

    `changes`: from where its changes are read, of keys up to `up_to` (None: of all keys); None: it
    has none. `chunks` of the snapshot are read as of `place`; for `lookback` see `ChunkReader`.
    `reload`: the rows of all parts of the target are compared with those of the target; False:
    those that MySQL does not have stay; None: they are inserted. `key_group`: the keys
    whose changes are read, if several tasks read the table.
    """

    table: FollowedTable
    changes: TablePosition | None
    up_to: KeyJson | None
    chunks: tuple[Chunk, ...] = ()
    place: TablePosition | None = None
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


class TablesAt:
    """The followed tables as they are at an offset."""

    def __init__(self, catalogues: Catalogues, versions: TableVersions) -> None:
        self._catalogues, self._versions = catalogues, versions

    def all(self, progress: DatabaseProgress, catalogue: Catalogue) -> dict[str, FollowedTable]:
        """All tables of a catalogue, by their ids."""
        return {id: self.one(progress, table) for id, table in catalogue.tables.items()}

    def one(self, progress: DatabaseProgress, table: FollowedTable) -> FollowedTable:
        """The table at the position of `progress`."""
        return self._columns(progress, table).hidden_in(progress.hidden.get(table.id, ()))

    def _columns(self, progress: DatabaseProgress, table: FollowedTable) -> FollowedTable:
        if table.id in progress.versions:
            return self._versions.get(progress.versions[table.id])
        if table.id in progress.columns:
            known = table_at(progress.columns[table.id], table.definition)
            return table if known is None else table.with_definition(known)
        return table

    def parts(
        self,
        before: DatabaseProgress | None,
        after: DatabaseProgress,
        changed: Collection[str] | None,
        skip_snapshot: bool,
        chunks: Callable[[FollowedTable, KeyJson | None, KeyJson | None], list[Chunk]],
    ) -> Iterator[TablePart]:
        """The parts of a batch; `changed`: tables with changes in it, None: perhaps all.

        `chunks` divides a range of a table's keys.
        """
        newest = self._catalogues.latest().tables
        old: Mapping[str, FollowedTable] = {}
        if before is not None:
            old = self._catalogues.get(before.catalogue).tables
        for table in self._catalogues.get(after.catalogue).tables.values():
            if table.id not in newest:
                continue  # It was removed from the sync after the batch was planned.
            own = before if table.id in old else None
            whole = before is None and skip_snapshot
            part = self._part(table, own, after, changed, whole, chunks)
            if part is not None:
                yield part

    def _part(
        self,
        table: FollowedTable,
        before: DatabaseProgress | None,
        after: DatabaseProgress,
        changed: Collection[str] | None,
        whole: bool,
        chunks: Callable[[FollowedTable, KeyJson | None, KeyJson | None], list[Chunk]],
    ) -> TablePart | None:
        now = self.one(after, table)
        if table.target in after.reloaded:
            return self._reloaded(now, before, after)
        if table.target in after.stale or table.id in after.gone:
            return None
        begin = None if before is None else self._point(self.one(before, table), before)
        low = None if before is None else before.snapshot.get(table.id)
        whole = whole or (before is not None and table.id not in before.snapshot)
        altered = table.id in after.altered
        changes = None
        if begin is not None and begin.position < after.position and (whole or low is not None):
            # A batch that ends behind a statement about the table has nothing else of it.
            unread = changed is None or table.full_name in changed
            changes = begin if unread and not altered else None
        own: list[Chunk] = []
        if not whole and (table.id not in after.snapshot or after.snapshot[table.id] != low):
            own = chunks(now, low, after.snapshot.get(table.id))
        if changes is None and not own:
            return None
        place = self._point(now, after) if own else None
        return TablePart(
            now, changes, None if whole else low, tuple(own), place, begin if own else None
        )

    def _reloaded(
        self, table: FollowedTable, before: DatabaseProgress | None, after: DatabaseProgress
    ) -> TablePart:
        """All rows of a table; none if MySQL no longer has it."""
        deletes = after.reloaded[table.target]
        if table.id in after.gone:
            return TablePart(table, None, None, reload=deletes)
        place = self._point(table, after)
        lookback = None if before is None else self._point(table, before)
        return TablePart(table, None, None, (WHOLE,), place, lookback, deletes)

    def _point(self, table: FollowedTable, progress: DatabaseProgress) -> TablePosition:
        return TablePosition(progress.position, progress.binlog_state, table.definition)
