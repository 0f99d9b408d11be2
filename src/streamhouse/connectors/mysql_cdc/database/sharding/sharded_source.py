"""Several MySQL tables, named by regular expressions, as one stream."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.startup import check_startup, startup_position
from streamhouse.connectors.mysql_cdc.change_counts import ChangeCounts
from streamhouse.connectors.mysql_cdc.database.multi_table_reader import close_readers
from streamhouse.connectors.mysql_cdc.database.part_reader import PartReader, in_order
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.sharding.shard_offsets import (
    decoded,
    encoded,
    shards_of,
)
from streamhouse.connectors.mysql_cdc.database.sharding.shards import Shards
from streamhouse.connectors.mysql_cdc.database.sharding.shards_planner import ShardsPlanner
from streamhouse.connectors.mysql_cdc.database.table_part import TablePart
from streamhouse.connectors.mysql_cdc.database.tables.catalogue import Catalogue
from streamhouse.connectors.mysql_cdc.database.tables.discovery import FoundTable, TableNames
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.tables.table_filter import TableFilter
from streamhouse.connectors.mysql_cdc.lag import Snapshots, UnreadChanges, source_state
from streamhouse.connectors.mysql_cdc.metadata import MetadataColumns
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.position import SHARDS, START_AGAIN, BinlogPosition
from streamhouse.connectors.mysql_cdc.server.table import Server
from streamhouse.connectors.mysql_cdc.server.values.types import quote
from streamhouse.connectors.mysql_cdc.snapshot.chunks import grouped, joined
from streamhouse.connectors.mysql_cdc.source import inserted
from streamhouse.errors import DataLossError, TableError
from streamhouse.source import ROW_KIND, Lag, Offset
from streamhouse.sql.plan import Column

log = logging.getLogger("streamhouse.mysql")

_DISCOVERY_S = 1.0
_SNAPSHOT: Offset = {"phase": "snapshot"}


@dataclass(frozen=True)
class ShardsPart:
    """What one task reads; `relay`: the folder of the relay log with the changes, if any."""

    parts: tuple[TablePart, ...]
    end: BinlogPosition
    server: Server
    zone: str
    relay: Path | None


class _OffsetCatalogues:
    """The catalogues of the current offsets, by their numbers; a `CatalogueStore`."""

    def __init__(self) -> None:
        self._catalogues: dict[int, Catalogue] = {0: Catalogue(0, 0, "UTC", {})}
        self._latest = 0

    def latest(self) -> Catalogue:
        return self._catalogues[self._latest]

    def get(self, number: int) -> Catalogue:
        return self._catalogues[number]

    def set(self, number: int, tables: Iterable[FollowedTable], latest: bool = True) -> None:
        """Set the tables of a catalogue; `latest`: it is the newest one."""
        named = {table.id: table for table in tables}
        self._catalogues[number] = Catalogue(number, 0, "UTC", named)
        if latest:
            self._latest = number


class ShardedSource:
    """The tables of a MySQL or MariaDB server that `tables` selects, as one stream; a `Source`.

    All have one position in the binlog, so the order of their changes is kept, also that of a row
    that moves from one table to another. See `MySqlSource` for the parameters and the errors. A
    declared column that a table lacks is null in its rows; one that no table has is a `TableError`.

    An offset is that of `DatabaseProgress`, with the names and the columns of the tables.
    """

    ordered = False

    def __init__(
        self,
        options: MySqlOptions,
        tables: TableFilter,
        columns: Sequence[Column] | None = None,
        relay: Path | None = None,
    ) -> None:
        self._options, self._filter, self._declared = options, tables, columns
        self.changelog = not options.append_only
        self._relay = relay
        self._catalogues = _OffsetCatalogues()
        self._unread = UnreadChanges()
        self._counts = ChangeCounts()
        self._made: dict[TableNames, FollowedTable] = {}
        self._planner = ShardsPlanner(options, self._catalogues, relay, not options.has_snapshot)
        try:
            session = self._planner.session
            check_startup(session, options, self._planner.server)
            metadata = MetadataColumns.of(columns, options.database, options.table)
            stored = None if columns is None else metadata.stored
            self._shards = Shards(session, self._planner.server, options, tables, stored)
            self._found = {one.names: one for one in self._shards.found()}
            if not self._found:
                raise self._shards.none()
            self._fields = self._shards.fields(list(self._found.values()))
            self._like = self._first_usable()
            self._zone = self._shards.zone([self._like])
            stored_schema = self._fields or self._like.writer(self._zone).schema
            self._schema = metadata.schema(stored_schema)
            self._discovered = time.monotonic()
        except Exception:
            self._planner.close()
            raise

    def __repr__(self) -> str:
        return f"ShardedSource({self._options.name} at {self._options.address})"

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def initial_offset(self) -> Offset:
        return (
            dict(_SNAPSHOT) if self._options.has_snapshot else {"start": self._options.startup_mode}
        )

    def check_start(self) -> None:
        """Raise `TableError` for a table that cannot be read."""
        self._followed(self._found.values())

    def check(self, offset: Offset) -> None:
        """Raise an error if the tables of an offset cannot be read; log what is not read."""
        self._check_kind(offset)
        if _is_initial(offset):
            return
        tables = self._tables_of(offset)
        new = [names for names in self._found if names not in shards_of(offset).values()]
        if new and not self._options.new_tables:
            log.warning(
                "mysql-cdc: %s: not reading %s, which has been created since; set "
                "'scan.newly-added-table.enabled' = 'true' to read such tables, too",
                self._options.name,
                _listed(new),
            )
        kept = {table.names for table in tables}
        left = [names for names in shards_of(offset).values() if names not in kept]
        if left:
            log.warning(
                "mysql-cdc: %s: no longer reading %s; the rows read so far stay",
                self._options.name,
                _listed(left),
            )

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        self._check_kind(start)
        if _is_initial(start):
            return self._first(start, max_rows)
        number, tables = int(start["tables"]), self._tables_of(start)
        self._catalogues.set(number, tables, latest=False)
        new = self._new(tables)
        if new or len(tables) < len(shards_of(start)):
            number += 1
        self._catalogues.set(number, [*tables, *new])
        plain = decoded(start)
        end = self._planner.latest_offset(plain, max_rows)
        return start if end == plain else encoded(end, self._catalogues.latest().tables)

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Any]:
        if "start" in start or _is_initial(end):
            return []
        before: Offset = {}
        if not _is_initial(start):
            before = decoded(start)
            self._catalogues.set(int(start["tables"]), self._tables_of(start), latest=False)
        self._catalogues.set(int(end["tables"]), self._tables_of(end))
        parts = self._planner.parts(before, decoded(end))
        position = BinlogPosition(end["file"], int(end["pos"]))
        # One task reads all changes, to keep the order of rows that move between tables.
        only_snapshots = all(part.changes is None for part in parts)
        groups = (
            self._groups(parts, parallelism)
            if only_snapshots
            else [tuple(map(self._joined, parts))]
        )
        relay = self._planner.relay_folder()
        server = self._planner.server
        return [ShardsPart(group, position, server, self._zone, relay) for group in groups if group]

    def read(self, partition: ShardsPart) -> Iterator[pa.RecordBatch]:
        batches = self._read(partition)
        return batches if self.changelog else (inserted(batch) for batch in batches)

    def whole_table(self, parallelism: int = 1) -> Sequence[Any]:
        """Partitions that together contain the tables' current rows; driver only."""
        tables = self._followed(self._found.values())
        self._catalogues.set(1, tables)
        position, binlog_state, columns = self._planner.startup_position(self._catalogues.latest())
        progress = DatabaseProgress(1, position, binlog_state, {}, columns)
        end = encoded(progress.to_offset(), self._catalogues.latest().tables)
        return self.partitions(dict(_SNAPSHOT), end, parallelism)

    def hold(self) -> None:
        """Stop at the current end of the binlog (Spark's `AvailableNow`)."""
        self._planner.hold()

    def committed(self, end: Offset) -> None:
        pass

    def finished(self, offset: Offset) -> bool:
        if self._options.startup_mode != "snapshot" or _is_initial(offset):
            return False
        return not decoded(offset).get("snapshot")

    def caught_up(self, offset: Offset) -> bool:
        """Whether the server has no change of the tables after `offset`; driver only."""
        if _is_initial(offset):
            return False
        progress = DatabaseProgress.from_offset(decoded(offset))
        assert progress is not None
        tables = self._tables_of(offset)
        self._catalogues.set(int(offset["tables"]), tables)
        if progress.snapshot or self._new(tables):
            return False
        if self._planner.relay_state(progress) is None:
            return self.latest_offset(offset) == offset
        current = self._planner.server.position(self._planner.session)
        state = self._planner.relay_state(progress)
        if state is None or state.end < current:
            return False
        ends = [state.changed[table.full_name] for table in tables]
        return not any(progress.position < changed for changed in ends)

    def lag(self, offset: Offset) -> Lag:
        """As `MySqlSource.lag`, for the table with the last change."""
        size = self._options.chunk_size
        if _is_initial(offset):
            snapshots = Snapshots(len(self._found), self.rows_left(offset), size)
            return Lag(state=source_state(snapshots, None, None, [*map(".".join, self._found)]))
        progress = DatabaseProgress.from_offset(decoded(offset))
        assert progress is not None
        position, left = progress.position, self.rows_left(offset)
        snapshots = Snapshots(len(progress.snapshot), left, size)
        names = [".".join(names) for names in shards_of(offset).values()]
        self._catalogues.set(int(offset["tables"]), self._tables_of(offset))
        log_state = self._planner.relay_state(progress)
        known = source_state(snapshots, position, log_state, names)
        if progress.snapshot or log_state is None:
            return Lag(rows=left, state=known)
        changed = max(log_state.changed[name] for name in names)
        waited, unread = self._unread.behind(position, changed)
        return Lag(seconds=waited, bytes=unread, state=known)

    def changes_read(self) -> Mapping[str, int]:
        """How many changes were read since the last call, by row kind."""
        return self._counts.taken()

    def rows_left(self, offset: Offset) -> int | None:
        """About how many rows the tables have whose snapshots are not complete; None: none."""
        if _is_initial(offset):
            return sum(one.rows for one in self._found.values())
        unread = decoded(offset).get("snapshot", {})
        names = shards_of(offset)
        rows = [self._found[names[id]].rows for id in unread if names[id] in self._found]
        return sum(rows) if unread else None

    def close(self) -> None:
        close_readers(self._planner.captured_tables())
        self._planner.close()

    def _check_kind(self, offset: Offset) -> None:
        if not _is_initial(offset) and SHARDS not in offset:
            raise DataLossError(
                f"{self._options.name} was read as one table of that name so far; it is gone, and "
                "as a regular expression the name selects "
                f"{_listed(list(self._found))}; {START_AGAIN}"
            )

    # -- the tables

    def _first_usable(self) -> FollowedTable:
        """The first table by name that can be read, whose column types the stream has."""
        error: TableError | None = None
        for found in self._found.values():
            try:
                return self._shards.followed("", found)
            except TableError as first:
                error = error or first
        assert error is not None
        raise error

    def _followed(self, found: Iterable[FoundTable]) -> list[FollowedTable]:
        tables = []
        for one in found:
            if one.names not in self._made:
                made = self._shards.followed(_id(one.names), one, self._like)
                self._made[one.names] = made
            tables.append(self._made[one.names])
        return tables

    def _tables_of(self, offset: Offset) -> list[FollowedTable]:
        """The tables of an offset, without those that the expressions no longer select."""
        selected = [one for one in shards_of(offset).values() if self._filter.selects(*one)]
        if any(names not in self._found for names in selected):
            self._discover()
        for names in selected:
            if names not in self._found:
                raise TableError(
                    f"MySQL table {'.'.join(names)}, which {self._options.name} has read so far, "
                    "is missing, or user "
                    f"'{self._options.username}' cannot see it; choose a regular expression "
                    "without it to go on with the others (its rows stay), or " + START_AGAIN
                )
        return self._followed(self._found[names] for names in selected)

    def _new(self, tables: Sequence[FollowedTable]) -> list[FollowedTable]:
        """New tables that the expressions select, if the options say to read them."""
        if not self._options.new_tables:
            return []
        if time.monotonic() - self._discovered > _DISCOVERY_S:
            if not self._shards.names() <= self._found.keys():
                self._discover()
            self._discovered = time.monotonic()
        known = {table.names for table in tables}
        return self._followed(one for names, one in self._found.items() if names not in known)

    def _discover(self) -> None:
        self._found |= {one.names: one for one in self._shards.found(self._found)}

    # -- batches

    def _first(self, start: Offset, max_rows: int | None) -> Offset:
        """The end of the first batch."""
        tables = self._followed(self._found.values())
        self._catalogues.set(0, [], latest=False)
        self._catalogues.set(1, tables)
        newest = self._catalogues.latest()
        options, mode = self._options, start.get("start")
        if mode in (None, "latest-offset"):
            end = self._planner.latest_offset({}, max_rows)
        else:
            source = self._planner
            position, binlog_state = startup_position(
                source.session, options, source.server, source.binlog
            )
            end = DatabaseProgress(1, position, binlog_state).to_offset()
        return encoded(end, newest.tables)

    def _joined(self, part: TablePart) -> TablePart:
        return replace(part, chunks=tuple(joined(part.chunks, self._options.chunk_size)))

    def _groups(self, parts: Sequence[TablePart], most: int) -> list[tuple[TablePart, ...]]:
        """The chunks of the parts in up to `most` groups."""
        chunks = [replace(part, chunks=(chunk,)) for part in parts for chunk in part.chunks]
        result = []
        for group in grouped(chunks, most):
            tables: dict[str, TablePart] = {}
            for one in group:
                before = tables.get(one.table.id, replace(one, chunks=()))
                tables[one.table.id] = replace(before, chunks=(*before.chunks, *one.chunks))
            result.append(tuple(map(self._joined, tables.values())))
        return result

    def _read(self, partition: ShardsPart) -> Iterator[pa.RecordBatch]:
        reader = PartReader(self._options, partition.server, partition.zone, partition.relay)
        columns = [
            MetadataColumns.of(self._declared, *part.table.names) for part in partition.parts
        ]
        try:
            for rows_of_range in reader.changes(partition.parts, partition.end):
                for one in rows_of_range:
                    self._counts.add(one.rows)
                yield from in_order([
                    (columns[one.part].added(self._filled(one.rows), one.seconds), one.numbers)
                    for one in rows_of_range
                ])  # fmt: skip
            for number, part in enumerate(partition.parts):
                for rows in reader.snapshot(number, part):
                    yield columns[number].added(self._filled(rows.rows), rows.seconds)
        finally:
            reader.close()

    def _filled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with nulls in the declared columns that their table lacks."""
        if self._fields is None or rows.num_columns > len(self._fields):
            return rows
        schema = self._fields.append(rows.schema.field(ROW_KIND))
        names = set(rows.schema.names)
        arrays = [
            rows.column(field.name) if field.name in names else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        return pa.record_batch(arrays, schema=schema)


def _is_initial(offset: Mapping[str, Any]) -> bool:
    return "file" not in offset


def _id(names: TableNames) -> str:
    return ".".join(quote(name) for name in names)


def _listed(names: Sequence[TableNames]) -> str:
    displayed = ", ".join(".".join(one) for one in sorted(names)[:3])
    return f"{displayed} and {len(names) - 3} more" if len(names) > 3 else displayed
