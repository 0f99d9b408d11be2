"""Reads the parts of a batch, on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import (
    MOST_BYTES,
    BatchDecoder,
    Seconds,
)
from streamhouse.connectors.mysql_cdc.binlog.rows.event import RowEvent
from streamhouse.connectors.mysql_cdc.change_reader import (
    TablePosition,
    TableRange,
    read_tables,
)
from streamhouse.connectors.mysql_cdc.database.table_part import KeyGroup, TablePart
from streamhouse.connectors.mysql_cdc.snapshot.chunk_reader import (
    ChunkConnections,
    ChunkReader,
    ChunkRows,
)
from streamhouse.connectors.mysql_cdc.snapshot.chunks import Chunk
from streamhouse.connectors.mysql_cdc.snapshot.key_filter import FilteredChanges, SnapshotFilter
from streamhouse.connectors.mysql_cdc.snapshot.keyless_reader import KeylessReader
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server
from streamhouse.mysql.values.rows import RowWriter
from streamhouse.mysql.values.table_errors import errors_of, naming

_INSERT = pa.scalar("+I")


def snapshot_batches(
    captured: CapturedTable,
    server: Server,
    writer: RowWriter,
    chunks: Sequence[Chunk],
    as_of: TablePosition,
    lookback: TablePosition | None = None,
    connections: ChunkConnections | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of the chunks as of a position; see `ChunkReader` for the parameters.

    `KeylessReader` reads a table without a key.
    """
    for rows in _rows(captured, server, chunks, as_of, lookback, connections):
        if rows.columns and len(rows.columns[0]):
            yield writer.snapshot(rows.columns)
        if rows.values:
            yield writer.changes(["+I"] * len(rows.values), rows.values)
        if rows.plain:
            yield writer.changed(pa.repeat(_INSERT, len(rows.plain[0])), rows.plain)


def _rows(
    captured: CapturedTable,
    server: Server,
    chunks: Sequence[Chunk],
    as_of: TablePosition,
    lookback: TablePosition | None,
    connections: ChunkConnections | None,
) -> Iterator[ChunkRows]:
    if not captured.table.key:
        keyless = KeylessReader(captured, server, as_of)
        try:
            yield from keyless.read()
        finally:
            keyless.close()
        return
    reader = ChunkReader(captured, server, as_of, lookback, connections)
    try:
        for chunk in chunks:
            yield from reader.read(chunk)
    finally:
        reader.close()


Numbers: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


class TableRows(NamedTuple):
    """Rows of a part, with their row kinds; `part`: its index.

    `seconds`: when each row changed (epoch seconds); None for rows of a snapshot. `numbers`: order
    the rows of all parts as in the binlog.
    """

    part: int
    rows: pa.RecordBatch
    seconds: Seconds | None
    numbers: Numbers = ()


class _TableEvents:
    """Collects row events of a table whose snapshot is complete."""

    def __init__(self, writer: RowWriter, key_group: KeyGroup | None) -> None:
        self._writer = writer
        self._events = BatchDecoder(key_group)

    @property
    def bytes(self) -> int:
        return self._events.bytes

    def add(self, event: RowEvent, number: int) -> None:
        """Add an event; `number`: its index among the events of all tables."""
        self._events.add(event, number)

    def drain(self, part: int) -> Iterator[TableRows]:
        """Decode and remove all events."""
        for rows in self._events.drain():
            batch = self._writer.changed(rows.kinds, rows.columns)
            yield TableRows(part, batch, rows.seconds, rows.numbers)

    def close(self) -> None: ...


class _FilteredEvents:
    """Collects row events of a table, of keys that its snapshot has read."""

    def __init__(self, writer: RowWriter, snapshot_filter: SnapshotFilter) -> None:
        self._writer, self._filter = writer, snapshot_filter
        self._changes = FilteredChanges(snapshot_filter)
        self.bytes = 0

    def add(self, event: RowEvent, number: int) -> None:
        """Add an event; `number`: its index among the events of all tables."""
        self._changes.add(event, number)
        self.bytes += event.end - event.at

    def drain(self, part: int) -> Iterator[TableRows]:
        """Return and remove all rows."""
        changes = self._changes
        if changes.rows:
            rows = self._writer.changes(changes.kinds, changes.rows)
            yield TableRows(part, rows, changes.seconds, changes.numbers)
        changes.clear()
        self.bytes = 0

    def close(self) -> None:
        self._filter.close()


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
        changing = [(n, part) for n, part in enumerate(parts) if part.changes is not None]
        if not changing:
            return
        ranges: list[TableRange] = []
        collected: list[_TableEvents | _FilteredEvents] = []
        for _, part in changing:
            assert part.changes is not None
            captured = part.table.captured_table(self._options, self._server, self._relay)
            ranges.append(TableRange(captured, part.changes))
            collected.append(self._collector(part, captured))
        held = 0
        try:
            for number, (index, event) in enumerate(read_tables(ranges, end)):
                with errors_of(changing[index][1].table.full_name):
                    collected[index].add(event, number)
                held += event.end - event.at
                if held >= MOST_BYTES:
                    held = 0
                    yield _drained(changing, collected)
            if held:
                yield _drained(changing, collected)
        finally:
            for rows in collected:
                rows.close()

    def _collector(
        self, part: TablePart, captured: CapturedTable
    ) -> _TableEvents | _FilteredEvents:
        writer = part.table.writer(self._zone, self._options.zero_dates)
        if part.up_to is None:
            return _TableEvents(writer, part.key_group)
        return _FilteredEvents(writer, SnapshotFilter(captured, part.up_to, captured.options))

    def snapshot(self, number: int, part: TablePart) -> Iterator[TableRows]:
        """The rows of the part's chunks; `number`: the part's index."""
        if not part.chunks or part.as_of is None:
            return
        try:
            yield from naming(part.table.full_name, self._chunks(number, part, part.as_of))
        finally:
            self._connections.end()

    def _chunks(self, number: int, part: TablePart, as_of: TablePosition) -> Iterator[TableRows]:
        captured = part.table.captured_table(self._options, self._server, self._relay)
        writer = part.table.writer(self._zone, self._options.zero_dates)
        batches = snapshot_batches(
            captured, self._server, writer, part.chunks, as_of, part.lookback, self._connections
        )
        for rows in batches:
            yield TableRows(number, rows, None)


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
    groups: dict[tuple[str, ...], list[tuple[pa.RecordBatch, Numbers]]] = {}
    for batch, numbers in batches:
        groups.setdefault(tuple(batch.schema.names), []).append((batch, numbers))
    merged = [_merged(group) for group in groups.values()]
    if len(merged) == 1:
        yield merged[0][0]
        return
    places = np.concatenate([own for _, own in merged])
    group_of = np.repeat(np.arange(len(merged)), [len(own) for _, own in merged])
    group_of = group_of[np.argsort(places)]
    starts = np.flatnonzero(np.diff(group_of, prepend=-1))
    taken = [0] * len(merged)
    for start, end in zip(starts, [*starts[1:], len(group_of)], strict=True):
        group, count = int(group_of[start]), int(end - start)
        yield merged[group][0].slice(taken[group], count)
        taken[group] += count


def _merged(
    batches: Sequence[tuple[pa.RecordBatch, Numbers]],
) -> tuple[pa.RecordBatch, np.ndarray[Any, Any]]:
    """One batch of batches with the same columns, and its rows' numbers, sorted."""
    numbers = np.concatenate([np.asarray(own, dtype=np.int64) for _, own in batches])
    order = np.argsort(numbers)
    rows = (
        batches[0][0] if len(batches) == 1 else pa.concat_batches([batch for batch, _ in batches])
    )
    return rows.take(pa.array(order)), numbers[order]


def _drained(
    changing: Sequence[tuple[int, TablePart]], collected: Sequence[_TableEvents | _FilteredEvents]
) -> list[TableRows]:
    pairs = zip(changing, collected, strict=True)
    return [
        rows
        for (number, part), batch in pairs
        for rows in naming(part.table.full_name, batch.drain(number))
    ]
