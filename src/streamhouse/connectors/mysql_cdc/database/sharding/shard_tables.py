"""The shards that a stream reads: those of its offset, and new ones."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Iterable

from streamhouse.connectors.mysql_cdc.database.sharding.shards import Shards
from streamhouse.connectors.mysql_cdc.database.tables.discovery import FoundTable, TableNames
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.errors import TableError
from streamhouse.mysql.position import START_AGAIN
from streamhouse.mysql.values.types import quote

ONE = ""
"""The id of the table, if there is one that is no shard."""
_DISCOVERY_S = 1.0


class ShardTables:
    """Keeps the tables that `shards` finds; driver only. Raises `TableError` if there is none.

    `found`: the tables found so far, also those that cannot be read. `is_one`: there is one table,
    which is no shard.
    """

    def __init__(self, shards: Shards) -> None:
        self._shards, self._options, self.is_one = shards, shards.options, shards.filter is None
        self.found = {shard.names: shard for shard in shards.found()}
        if not self.found:
            raise shards.none()
        self._followed: dict[TableNames, FollowedTable] = {}
        self._discovered = time.monotonic()

    @functools.cached_property
    def like(self) -> FollowedTable:
        """The first table by name that can be read; it decides the types of the columns."""
        error: TableError | None = None
        for found in self.found.values():
            try:
                return self._shards.followed("", found)
            except TableError as first:
                error = error or first
        assert error is not None
        raise error

    def all(self) -> list[FollowedTable]:
        """All tables found so far; raises `TableError` for one that cannot be read."""
        return self._described(self.found.values())

    def selected(self, names: Iterable[TableNames]) -> list[FollowedTable]:
        """The tables with these names, without those that the expressions no longer select."""
        selected = [name for name in names if self._shards.selects(name)]
        if any(name not in self.found for name in selected):
            self._discover()
        for name in selected:
            if name not in self.found:
                raise TableError(
                    f"MySQL table {'.'.join(name)}, which {self._options.name} has read so far, "
                    "is missing, or user "
                    f"'{self._options.username}' cannot see it; choose a regular expression "
                    "without it to go on with the others (its rows stay), or " + START_AGAIN
                )
        return self._described(self.found[name] for name in selected)

    def new(self, tables: Iterable[FollowedTable]) -> list[FollowedTable]:
        """The tables that are not among `tables`, if the options say to read new ones."""
        if not self._options.new_tables:
            return []
        if time.monotonic() - self._discovered > _DISCOVERY_S:
            if not self._shards.names() <= self.found.keys():
                self._discover()
            self._discovered = time.monotonic()
        known = {table.names for table in tables}
        return self._described(shard for names, shard in self.found.items() if names not in known)

    def rows(self, names: Collection[TableNames]) -> int:
        """About how many rows these tables have."""
        return sum(self.found[name].rows for name in names if name in self.found)

    def _described(self, found: Iterable[FoundTable]) -> list[FollowedTable]:
        tables = []
        for shard in found:
            if shard.names not in self._followed:
                id = ONE if self.is_one else ".".join(quote(name) for name in shard.names)
                self._followed[shard.names] = self._shards.followed(id, shard, self.like)
            tables.append(self._followed[shard.names])
        return tables

    def _discover(self) -> None:
        self.found |= {shard.names: shard for shard in self._shards.found(self.found)}
