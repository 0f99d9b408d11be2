"""Reads the rows of a batch's tables, on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.changes import Change
from streamhouse.connectors.mysql_cdc.database.changes import TableRange, read_many
from streamhouse.connectors.mysql_cdc.database.parts import TablePart
from streamhouse.connectors.mysql_cdc.membership import Membership
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.position import Position
from streamhouse.connectors.mysql_cdc.server.table import Server
from streamhouse.connectors.mysql_cdc.server.values.rows import RowWriter
from streamhouse.connectors.mysql_cdc.snapshot import ChunkConnections, ChunkReader, all_chunks

_HELD_ROWS = 131_072


class TableRows(NamedTuple):
    """Rows of one part with their kinds; `seconds`: when each was changed, None in a snapshot.

    `numbers`: the place of each row among those of all parts, in the order of the binlog.
    """

    part: int
    rows: pa.RecordBatch
    seconds: Sequence[int] | None
    numbers: Sequence[int] = ()


@dataclass
class _Gathered:
    """Changes of one table that have not been converted to a batch yet."""

    membership: Membership
    writer: RowWriter
    kinds: list[str] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    seconds: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(self, change: Change, number: int) -> int:
        """Add a change, whose rows are numbered from `number` on; returns how many it has."""
        membership, count = self.membership, len(self.rows)
        before = change.before if membership.counts(change.before) else None
        after = change.after if membership.counts(change.after) else None
        moved = membership.moved(before, after)
        for kind, row in (("-D" if moved else "-U", before), ("+I" if moved else "+U", after)):
            if row is not None:
                self.kinds.append(kind)
                self.rows.append(row)
                self.seconds.append(change.seconds)
                self.numbers.append(number + len(self.rows) - count - 1)
        return len(self.rows) - count

    def taken(self, part: int) -> TableRows:
        """The rows, which are removed here."""
        rows = self.writer.changes(self.kinds, self.rows)
        result = TableRows(part, rows, self.seconds, self.numbers)
        self.kinds, self.rows, self.seconds, self.numbers = [], [], [], []
        return result


class PartReader:
    """Reads parts of a batch; `zone`: the server's, `relay`: that of all tables' relay log."""

    def __init__(
        self, options: MySqlOptions, server: Server, zone: str, relay: Path | None
    ) -> None:
        self._options, self._server, self._zone, self._relay = options, server, zone, relay
        self._connections = ChunkConnections(options)

    def close(self) -> None:
        """Close the connections of the snapshots."""
        self._connections.close()

    def changes(self, parts: Sequence[TablePart], end: Position) -> Iterator[list[TableRows]]:
        """The changes of all parts up to `end`, in stretches of the binlog.

        A stretch has one entry for each part with changes in it; `in_order` restores their order.
        """
        changing = [(n, part) for n, part in enumerate(parts) if part.changes is not None]
        if not changing:
            return
        ranges, gathered, held = [], [], 0
        for _, part in changing:
            assert part.changes is not None
            captured = part.table.captured(self._options, self._server, self._relay)
            ranges.append(TableRange(captured, part.changes))
            membership = Membership(captured, part.up_to, captured.options)
            gathered.append(_Gathered(membership, part.table.writer(self._zone)))
        try:
            for index, change in read_many(ranges, end):
                held += gathered[index].add(change, held)
                if held >= _HELD_ROWS:
                    held = 0
                    yield _all_taken(changing, gathered)
        finally:
            for one in gathered:
                one.membership.close()
        if held:
            yield _all_taken(changing, gathered)

    def snapshot(self, number: int, part: TablePart) -> Iterator[TableRows]:
        """The rows of the part's chunks; `number`: the part's index."""
        if not part.chunks or part.place is None:
            return
        captured = part.table.captured(self._options, self._server, self._relay)
        writer = part.table.writer(self._zone)
        reader = ChunkReader(captured, self._server, part.place, part.lookback, self._connections)
        try:
            for rows in all_chunks(reader, part.chunks):
                if rows.columns and len(rows.columns[0]):
                    yield TableRows(number, writer.snapshot(rows.columns), None)
                if rows.values:
                    kinds = ["+I"] * len(rows.values)
                    yield TableRows(number, writer.changes(kinds, rows.values), None)
        finally:
            self._connections.end()


def in_order(
    batches: Sequence[tuple[pa.RecordBatch, Sequence[int]]],
) -> Iterator[pa.RecordBatch]:
    """The rows of several batches in the order of their numbers, as few batches.

    Batches with the same columns become one; else there is one for each run of rows.
    """
    if len(batches) == 1:
        yield batches[0][0]
        return
    groups: dict[tuple[str, ...], list[tuple[pa.RecordBatch, Sequence[int]]]] = {}
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
    batches: Sequence[tuple[pa.RecordBatch, Sequence[int]]],
) -> tuple[pa.RecordBatch, np.ndarray[Any, Any]]:
    """One batch of batches with the same columns, and its rows' numbers, sorted."""
    numbers = np.concatenate([np.asarray(own, dtype=np.int64) for _, own in batches])
    order = np.argsort(numbers)
    rows = batches[0][0] if len(batches) == 1 else pa.concat_batches([one for one, _ in batches])
    return rows.take(pa.array(order)), numbers[order]


def _all_taken(
    changing: Sequence[tuple[int, TablePart]], gathered: Sequence[_Gathered]
) -> list[TableRows]:
    pairs = zip(changing, gathered, strict=True)
    return [one.taken(number) for (number, _), one in pairs if one.rows]
