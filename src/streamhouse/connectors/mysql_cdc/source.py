"""A declared table as a stream of MySQL's rows: a snapshot without locks, then the binlog."""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.startup import check_startup
from streamhouse.connectors.mysql_cdc.change_reader import close_readers
from streamhouse.connectors.mysql_cdc.database.declared_tables import (
    ONE,
    DeclaredTablePlanner,
    expressions,
)
from streamhouse.connectors.mysql_cdc.database.discovery import selected_names
from streamhouse.connectors.mysql_cdc.database.part_reader import (
    PartReader,
    TablePart,
    TableRows,
    in_order,
    key_group_count,
    kind_counts,
    metadata_values,
)
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.snapshot.chunk_reader import joined
from streamhouse.connectors.specs import declared_rows
from streamhouse.errors import DataLossError
from streamhouse.mysql.connection import FIRST_START_SECONDS, Session
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import MySqlOptions, parse
from streamhouse.mysql.position import START_AGAIN, BinlogPosition
from streamhouse.mysql.table import check_server
from streamhouse.source import Lag, Offset, Source, grouped
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

log = logging.getLogger("streamhouse.mysql")

_SNAPSHOT: Offset = {"snapshot": {}}


class Partition(NamedTuple):
    """What one task reads up to `end`."""

    parts: tuple[TablePart, ...]
    end: BinlogPosition


class MySqlSource(Source):
    """A table of a MySQL or MariaDB server, or several as one, and their changes; a `Source`.

    `options` have Flink CDC's names, see `mysql.options`. `columns`: those
    of a declared table, matched by name and cast to the declared types; None: all columns of the
    table. `relay`: the folder of a shared relay log, if any. Connects on creation, and may raise
    `OptionError`, `ConnectError` or `TableError`.

    If the options name several tables by regular expressions, all have one position in the binlog,
    so the order of their changes is kept, also that of a row that moves from one table to another.
    A declared column that a table lacks is null in its rows; one that no table has is a
    `TableError`.

    An offset is that of `DatabaseProgress`: a position of the binlog, and for each table whose
    snapshot is not complete the key up to which its rows have been read, as of that position. The
    same two offsets give the
    same rows, whenever they are read, as long as the server keeps the binlog from the first one on;
    otherwise `DataLossError` is raised. A pickled copy only reads partitions.
    """

    changelog = True

    def __init__(
        self,
        options: Mapping[str, str],
        columns: Sequence[Column] | None = None,
        relay: Path | None = None,
    ) -> None:
        parsed, self._relay = parse(options), relay
        self._options = parsed
        self.changelog = not parsed.append_only
        self._counts = Counter[str]()
        # A pipeline waits longer for its server before it opens its sources (`Relays`).
        session = Session(parsed, FIRST_START_SECONDS)
        try:
            server = self._server = check_server(session, parsed)
            check_startup(session, parsed, server)
            stored = None if columns is None else [one for one in columns if one.metadata is None]
            tables = expressions(session, parsed)
            planner = DeclaredTablePlanner(parsed, session, server, relay, tables, stored)
            self._planner, fields = planner, planner.fields()
            self._zone = planner.zone()
            schema = fields or planner.like.writer(self._zone).schema
            self._columns = columns or ()
            self._schema = schema if columns is None else pa.schema([
                schema.field(column.name)
                if column.metadata is None
                else pa.field(column.name, arrow_type(column.type))
                for column in columns
            ])  # fmt: skip
        finally:
            session.close()  # It reconnects to plan; tasks, which only read, need none.

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def __repr__(self) -> str:
        return f"MySqlSource({self._options.name} at {self._options.address})"

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def keyed_by(self) -> tuple[str, ...]:
        """The key, if its columns are read: their values stay different (decision 222)."""
        if not self._planner.is_one:
            return ()  # Tables may have rows of the same key.
        table = self._planner.like
        key = tuple(column.name for column in table.definition.key)
        return key if {name for name, _ in table.columns}.issuperset(key) else ()

    def initial_offset(self) -> Offset:
        return (
            dict(_SNAPSHOT) if self._options.has_snapshot else {"start": self._options.startup_mode}
        )

    def check_start(self) -> None:
        """Raise `TableError` for a table that cannot be read."""
        self._planner.all()

    def check(self, offset: Offset) -> None:
        """Raise an error if the tables of an offset cannot be read; log what is not read."""
        progress = self._progress(offset)
        if progress is None:
            return
        known = {table.names for table in progress.versions.values()}
        kept = {table.names for table in self._planner.selected(known)}
        new = [names for names in self._planner.found if names not in known]
        if new and not self._options.new_tables:
            why = (
                "which has been created since; set 'scan.newly-added-table.enabled' = 'true' to "
                "read such tables, too"
            )
            log.warning("mysql-cdc: %s: not reading %s, %s", self._options.name, _listed(new), why)
        if known - kept:
            left, why = _listed(known - kept), "the rows read so far stay"
            log.warning("mysql-cdc: %s: no longer reading %s; %s", self._options.name, left, why)

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        self._progress(start)
        return self._planner.next_offset(start, max_rows)

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Any]:
        after = DatabaseProgress.from_offset(end)
        if "start" in start or after is None:
            return []
        parts, position = self._planner.parts(start, end), after.position
        groups = [tuple(map(self._joined, parts))]
        if self._planner.is_one or all(part.changes is None for part in parts):
            changes = [one for part in parts for one in self._changes(part, position, parallelism)]
            groups = [*((part,) for part in changes), *self._groups(parts, parallelism)]
        # Else one task reads all changes, to keep the order of rows that move between tables.
        return [Partition(group, position) for group in groups if group]

    def read(self, partition: Partition) -> Iterator[pa.RecordBatch]:
        batches = self._read(partition)
        return batches if self.changelog else (inserted(batch) for batch in batches)

    def _read(self, partition: Partition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, each with its row kind in the last column."""
        parts, end = partition
        with closing(PartReader(self._options, self._server, self._zone, self._relay)) as reader:
            for entries in reader.changes(parts, end):
                for entry in entries:
                    self._counts.update(kind_counts(entry.rows))
                yield from in_order([(self._completed(one), one.numbers) for one in entries])
            for part in parts:
                yield from map(self._completed, reader.snapshot(part))

    def _completed(self, entry: TableRows) -> pa.RecordBatch:
        metadata = partial(metadata_values, entry.table.names, entry.rows, entry.seconds)
        return declared_rows(entry.rows, self._columns, self._schema, metadata)

    def whole_table(self, parallelism: int = 1) -> Sequence[Any]:
        """Partitions that together contain the tables' current rows; driver only."""
        return self.partitions(dict(_SNAPSHOT), self._planner.whole(), parallelism)

    def hold(self) -> None:
        """Stop at the current end of the binlog (Spark's `AvailableNow`)."""
        self._planner.hold()

    def finished(self, offset: Offset) -> bool:
        progress = DatabaseProgress.from_offset(offset)
        ends = self._options.startup_mode == "snapshot"
        return ends and progress is not None and not progress.snapshot

    def caught_up(self, offset: Offset) -> bool:
        """Whether the server has no change of the tables after `offset`; driver only."""
        return self._planner.has_read_all(offset)

    def lag(self, offset: Offset) -> Lag:
        return self._planner.lag_at(DatabaseProgress.from_offset(offset))

    def changes_read(self) -> Mapping[str, int]:
        """How many changes were read since the last call, by row kind."""
        counts, self._counts = self._counts, Counter()
        return counts

    def rows_left(self, offset: Offset) -> int | None:
        return self._planner.rows_left_at(DatabaseProgress.from_offset(offset))

    def close(self) -> None:
        close_readers(self._planner.captured_tables())
        self._planner.close()

    def _progress(self, offset: Offset) -> DatabaseProgress | None:
        """The progress at an offset; None at the start. Raises an error if the names are others."""
        progress = DatabaseProgress.from_offset(offset)
        if progress is None:
            return None
        was_one = list(progress.versions) == [ONE]
        if was_one != self._planner.is_one:
            kinds = ["one table of that name", "several tables, as a regular expression"]
            before, now = kinds if was_one else reversed(kinds)
            raise DataLossError(
                f"{self._options.name} was read as {before} so far, and names {now} now "
                f"({_listed(self._planner.found)}): rename tables so that it is as before, or "
                + START_AGAIN
            )
        return progress

    # -- batches

    def _changes(self, part: TablePart, end: BinlogPosition, parallelism: int) -> list[TablePart]:
        """The changes of a part; those of a long range are divided by key groups."""
        if part.changes is None:
            return []
        count = 1
        if not self._options.append_only:
            count = key_group_count(part.changes.position, end, parallelism)
        return replace(part, chunks=(), as_of=None).divided(count)

    def _joined(self, part: TablePart) -> TablePart:
        return replace(part, chunks=tuple(joined(part.chunks, self._options.chunk_size)))

    def _groups(self, parts: Sequence[TablePart], most: int) -> list[tuple[TablePart, ...]]:
        """The chunks of the parts in up to `most` groups."""
        chunks = [(n, chunk) for n, part in enumerate(parts) for chunk in part.chunks]
        return [
            tuple(
                self._joined(replace(parts[n], changes=None, chunks=tuple(one for _, one in own)))
                for n, own in groupby(group, itemgetter(0))
            )
            for group in grouped(chunks, most)
        ]


def _listed(names: Collection[TableNames]) -> str:
    displayed = ", ".join(".".join(name) for name in sorted(names)[:3])
    return f"{displayed} and {len(names) - 3} more" if len(names) > 3 else displayed


def inserted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as inserted rows, without the row kind that their batch ends with."""
    return batch.select(range(batch.num_columns - 1))


def followed_tables(options: MySqlOptions, offset: Offset) -> list[TableNames]:
    """The tables whose changes the source with these options reads after an offset."""
    with closing(Session(options, FIRST_START_SECONDS)) as session:
        tables = expressions(session, options)
        if tables is None:
            return [(options.database, options.table)]
        progress = DatabaseProgress.from_offset(offset)
        read = {} if progress is None else progress.versions
        known = {table.names for table in read.values()}
        if not known or options.new_tables:
            known |= selected_names(session, tables, views=False)
        return sorted(known)
