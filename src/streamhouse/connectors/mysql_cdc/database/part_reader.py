"""Reads the parts of a batch, on executors."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.change_decoder import TableEvent
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import (
    MOST_BYTES,
    BatchDecoder,
    RowSelection,
    Seconds,
)
from streamhouse.connectors.mysql_cdc.change_reader import TablePosition, read_tables
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.snapshot.chunk_reader import (
    Chunk,
    ChunkConnections,
    ChunkReader,
)
from streamhouse.connectors.mysql_cdc.snapshot.keyless_reader import KeylessReader
from streamhouse.mysql.connection import Session
from streamhouse.mysql.keys import KeySpace
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition, KeyJson
from streamhouse.mysql.table import Server
from streamhouse.mysql.values.rows import RowWriter
from streamhouse.mysql.values.types import errors_of, naming
from streamhouse.paimon.write.bucket_hash import row_hashes
from streamhouse.source import ROW_KIND

DIVIDED_BYTES = 4 * 1024 * 1024
"""One task reads a range of the binlog with fewer bytes: starting another would take longer."""


TABLE, TIME, KIND = "table_name", "op_ts", "row_kind"
"""Keys of METADATA columns, which Flink CDC has, too; `database_name` is another one."""
ALL_ROWS = Chunk(None, None)
Numbers: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyGroup:
    """The rows whose key's hash modulo `count` is `number`: those of one of `count` tasks.

    Each task reads the whole range, but decodes only the rows of its group, so that the changes of
    one key keep their order.
    """

    number: int
    count: int

    def mask(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Which rows are in this group; `columns`: those of the key."""
        hashes = row_hashes(columns).astype(np.int64)
        mask: npt.NDArray[np.bool_] = hashes % self.count == self.number
        return mask


def key_group_count(start: BinlogPosition, end: BinlogPosition, parallelism: int) -> int:
    """Into how many key groups the changes in a range of the binlog are divided."""
    short = start.file == end.file and end.pos - start.pos < DIVIDED_BYTES
    return 1 if short else parallelism


@dataclass(frozen=True)
class TablePart:
    """The changes and rows that a batch reads of one table.

    `changes`: the position from which its changes are read, of keys up to `up_to` (None: of all
    keys); None: it has no changes. `chunks` of the snapshot are read `as_of` a position. `reload`:
    the batch compares the rows of all parts of the target with the target's, and deletes rows that
    MySQL does not have; False: it keeps these; None: it inserts the rows without comparing them.
    `key_group`: the keys whose changes are read, if several tasks read the table.
    """

    table: FollowedTable
    changes: TablePosition | None
    up_to: KeyJson | None
    chunks: tuple[Chunk, ...] = ()
    as_of: TablePosition | None = None
    reload: bool | None = None
    key_group: KeyGroup | None = None

    def divided(self, count: int) -> list[Self]:
        """The part as parts for `count` tasks; only one if it has more than changes, or no key."""
        only_changes = not self.chunks and self.up_to is None and self.reload is None
        if not only_changes or not self.table.definition.key or count == 1:
            return [self]
        return [replace(self, key_group=KeyGroup(number, count)) for number in range(count)]


class TableRows(NamedTuple):
    """Rows of a table, with their row kinds.

    `seconds`: when each row changed (epoch seconds); None for rows of a snapshot. `numbers`: order
    the rows of all tables as in the binlog.
    """

    table: FollowedTable
    rows: pa.RecordBatch
    seconds: Seconds | None
    numbers: Numbers = ()


def metadata_values(
    names: tuple[str, str], rows: pa.RecordBatch, seconds: Seconds | None, key: str
) -> pa.Array:
    """The values of a METADATA column, for rows with their kinds of the table `names`.

    `seconds`: when the changes were executed (since 1970, UTC); None for a snapshot.
    """
    if key == KIND:
        return rows.column(ROW_KIND)
    if key == TIME:
        times = pa.array([0] * rows.num_rows if seconds is None else seconds, pa.int64())
        return times.cast(pa.timestamp("s", "UTC"))
    return pa.repeat(pa.scalar(names[key == TABLE]), rows.num_rows)


class _TableEvents(NamedTuple):
    """Collects the row events of a table."""

    table: FollowedTable
    writer: RowWriter
    decoder: BatchDecoder

    def drain(self) -> Iterator[TableRows]:
        """Decode and remove all events."""
        for rows in self.decoder.drain():
            batch = self.writer.changed(rows.kinds, rows.columns)
            yield TableRows(self.table, batch, rows.seconds, rows.numbers)


class PartReader:
    """Reads parts of a batch.

    `zone`: the server's time zone. `relay`: the folder of the relay log of all tables, if any.
    """

    def __init__(
        self, options: MySqlOptions, server: Server, zone: str, relay: Path | None
    ) -> None:
        self._options, self._server, self._zone, self._relay = options, server, zone, relay
        self._connections = ChunkConnections(options)

    def close(self) -> None:
        """Close the connections of the snapshots."""
        self._connections.close()

    def changes(self, parts: Sequence[TablePart], end: BinlogPosition) -> Iterator[list[TableRows]]:
        """The changes of all parts up to `end`, in successive ranges of the binlog.

        A range has one or more entries for each part with changes in it. `in_order` restores the
        order of their rows.
        """
        ranges: dict[CapturedTable, TablePosition] = {}
        tables: list[_TableEvents] = []
        for part in parts:
            if part.changes is None:
                continue
            captured = part.table.captured_table(self._options, self._server, self._relay)
            ranges[captured] = part.changes
            selection: RowSelection | None = None
            if part.up_to is not None:
                selection = _keys_up_to(part.up_to, captured, self._connections.session)
            elif part.key_group is not None:
                selection = part.key_group.mask
            writer = part.table.writer(self._zone, self._options.zero_dates)
            tables.append(_TableEvents(part.table, writer, BatchDecoder(selection)))
        if ranges:
            yield from _collected(tables, read_tables(ranges, end))

    def snapshot(self, part: TablePart) -> Iterator[TableRows]:
        """The rows of the part's chunks."""
        if not part.chunks or part.as_of is None:
            return
        try:
            for rows in naming(part.table.full_name, self._chunks(part, part.as_of)):
                if rows.num_rows:
                    yield TableRows(part.table, rows, None)
        finally:
            self._connections.end()

    def _chunks(self, part: TablePart, as_of: TablePosition) -> Iterator[pa.RecordBatch]:
        captured = part.table.captured_table(self._options, self._server, self._relay)
        writer = part.table.writer(self._zone, self._options.zero_dates)
        if not captured.table.key:
            with closing(KeylessReader(captured, as_of, writer)) as keyless:
                yield from keyless.read()
            return
        chunks = ChunkReader(captured, as_of, self._connections, writer)
        with closing(chunks) as reader:
            for chunk in part.chunks:
                yield from reader.read(chunk)


def kind_counts(rows: pa.RecordBatch) -> dict[str, int]:
    """How many rows there are of each row kind."""
    counted = pc.value_counts(rows.column(ROW_KIND)).to_pylist()
    return {one["values"]: one["counts"] for one in counted}


def in_order(
    batches: Sequence[tuple[pa.RecordBatch, Numbers]],
) -> Iterator[pa.RecordBatch]:
    """The rows of several batches in the order of their numbers, as few batches.

    Batches with the same columns become one; else there is one for each run of rows.
    """
    if len(batches) <= 1:
        # None if all events were of keys that the snapshots have not read yet.
        yield from (batch for batch, _ in batches)
        return
    columns = list(dict.fromkeys(tuple(batch.schema.names) for batch, _ in batches))
    places = np.argsort(np.concatenate([np.asarray(own, np.int64) for _, own in batches]))
    kinds = [columns.index(tuple(batch.schema.names)) for batch, _ in batches]
    kind_of = np.repeat(kinds, [batch.num_rows for batch, _ in batches])[places]
    # Columns that a row does not have are null only until its run is taken.
    tables = [pa.Table.from_batches([batch]) for batch, _ in batches]
    rows = pa.concat_tables(tables, promote_options="permissive").take(pa.array(places))
    rows = rows.combine_chunks()
    starts = np.flatnonzero(np.diff(kind_of, prepend=-1)).tolist()
    for start, end in pairwise([*starts, rows.num_rows]):
        run = rows.slice(start, end - start)
        yield from run.select(list(columns[kind_of[start]])).to_batches()


def _collected(
    tables: Sequence[_TableEvents], events: Iterable[TableEvent]
) -> Iterator[list[TableRows]]:
    """The rows of the events, in ranges of about `MOST_BYTES`."""
    held = 0
    for number, (index, event) in enumerate(events):
        with errors_of(tables[index].table.full_name):
            tables[index].decoder.add(event, number)
        held += event.end - event.at
        if held >= MOST_BYTES:
            held = 0
            yield _drained(tables)
    if held:
        yield _drained(tables)


def _drained(tables: Sequence[_TableEvents]) -> list[TableRows]:
    return [rows for one in tables for rows in naming(one.table.full_name, one.drain())]


def _keys_up_to(up_to: KeyJson, captured: CapturedTable, session: Session) -> RowSelection:
    """Selects the rows that the snapshot has read; `session` compares texts."""
    space = KeySpace(captured.table)

    def mask(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        keys = captured.keys(columns)
        some = list(dict.fromkeys(keys))
        selected = dict(zip(some, space.within(some, None, up_to, session), strict=True))
        return np.array([selected[key] for key in keys], np.bool_)

    return mask
