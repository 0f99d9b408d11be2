"""Reads the rows of a batch's tables, on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.changes import Change
from streamhouse.connectors.mysql_cdc.database.changes import TableRange, read_many
from streamhouse.connectors.mysql_cdc.database.source import TablePart
from streamhouse.connectors.mysql_cdc.membership import Membership
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.position import Position
from streamhouse.connectors.mysql_cdc.server.table import Server
from streamhouse.connectors.mysql_cdc.server.values.rows import RowWriter
from streamhouse.connectors.mysql_cdc.snapshot import ChunkConnections, ChunkReader, all_chunks

_BATCH_ROWS = 65_536
_HELD_ROWS = 131_072


class TableRows(NamedTuple):
    """Rows of one part with their kinds; `seconds`: when each was changed, None in a snapshot."""

    part: int
    rows: pa.RecordBatch
    seconds: Sequence[int] | None


@dataclass
class _Gathered:
    """Changes of one table that have not been converted to a batch yet."""

    membership: Membership
    writer: RowWriter
    kinds: list[str] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    seconds: list[int] = field(default_factory=list)

    def add(self, change: Change) -> int:
        """Add a change; returns the number of rows."""
        membership, count = self.membership, len(self.rows)
        before = change.before if membership.counts(change.before) else None
        after = change.after if membership.counts(change.after) else None
        moved = membership.moved(before, after)
        for kind, row in (("-D" if moved else "-U", before), ("+I" if moved else "+U", after)):
            if row is not None:
                self.kinds.append(kind)
                self.rows.append(row)
                self.seconds.append(change.seconds)
        return len(self.rows) - count

    def taken(self, part: int) -> TableRows:
        """The rows, which are removed here."""
        result = TableRows(part, self.writer.changes(self.kinds, self.rows), self.seconds)
        self.kinds, self.rows, self.seconds = [], [], []
        return result


class PartReader:
    """Reads parts of a batch; `zone`: the server's, `relay`: the folder of the relay log."""

    def __init__(self, options: MySqlOptions, server: Server, zone: str, relay: Path) -> None:
        self._options, self._server, self._zone, self._relay = options, server, zone, relay
        self._connections = ChunkConnections(options)

    def close(self) -> None:
        """Close the connections of the snapshots."""
        self._connections.close()

    def changes(self, parts: Sequence[TablePart], end: Position) -> Iterator[TableRows]:
        """The changes of all parts up to `end`, those of one table in order."""
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
                one = gathered[index]
                held += one.add(change)
                if len(one.rows) >= _BATCH_ROWS:
                    held -= len(one.rows)
                    yield one.taken(changing[index][0])
                elif held >= _HELD_ROWS:
                    held = 0
                    yield from _all_taken(changing, gathered)
        finally:
            for one in gathered:
                one.membership.close()
        yield from _all_taken(changing, gathered)

    def snapshot(self, number: int, part: TablePart) -> Iterator[TableRows]:
        """The rows of the part's chunks; `number`: the part's index."""
        if not part.chunks or part.place is None:
            return
        captured = part.table.captured(self._options, self._server, self._relay)
        writer = part.table.writer(self._zone)
        reader = ChunkReader(captured, self._server, part.place, part.lookback, self._connections)
        for rows in all_chunks(reader, part.chunks):
            if rows.columns and len(rows.columns[0]):
                yield TableRows(number, writer.snapshot(rows.columns), None)
            if rows.values:
                kinds = ["+I"] * len(rows.values)
                yield TableRows(number, writer.changes(kinds, rows.values), None)


def _all_taken(
    changing: Sequence[tuple[int, TablePart]], gathered: Sequence[_Gathered]
) -> Iterator[TableRows]:
    for (number, _), one in zip(changing, gathered, strict=True):
        if one.rows:
            yield one.taken(number)
