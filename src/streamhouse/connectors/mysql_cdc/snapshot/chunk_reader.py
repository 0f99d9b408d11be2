"""Reads chunks of a table exactly as of a binlog position (docs/decisions/001-mysql-chunks.md).

A SELECT sees the table at some later time. Changes since the position are in the binlog, with
before images: the before image of a key's first change is its row at the position.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pymysql
from pymysql.constants import ER

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.dump import reset_error
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import ChangedRows
from streamhouse.connectors.mysql_cdc.change_reader import (
    Reader,
    RelayReader,
    TablePosition,
    changed_rows,
    open_reader,
)
from streamhouse.errors import ConnectError
from streamhouse.mysql.connection import Backoff, Session, close_quietly, connect, retried, run
from streamhouse.mysql.keys import KeySpace, check_key, escaped, key_select
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.pending_commits import await_commits
from streamhouse.mysql.position import BinlogPosition, KeyJson
from streamhouse.mysql.values.result_rows import Columns, stream_columns
from streamhouse.mysql.values.rows import RowWriter
from streamhouse.mysql.values.types import from_values, key_of_text, quote, to_values
from streamhouse.paimon.read.key_set import KeySet

_TRANSACTION_ROWS = 65_536
"""About how many rows to read in one transaction, if chunks are smaller."""


@dataclass(frozen=True)
class Chunk:
    """The rows with a key greater than `low` and up to `high`; None: no bound."""

    low: KeyJson | None
    high: KeyJson | None


def split(
    session: Session, captured: CapturedTable, keys: Chunk, size: int, most: int | None = None
) -> list[Chunk]:
    """Split a range of keys into chunks of about `size` rows, in order; up to `most` of them.

    The last one of the range may have fewer rows, perhaps none. A table without a key is one chunk.
    """
    if not captured.table.key:
        return [keys]
    chunks: list[Chunk] = []
    low = keys.low
    while most is None or len(chunks) < most:
        end = _last_key(session, captured, Chunk(low, keys.high), size) or keys.high
        chunks.append(Chunk(low, end))
        if end == keys.high:
            break
        low = end
    return chunks


def _last_key(session: Session, captured: CapturedTable, keys: Chunk, size: int) -> KeyJson | None:
    """The key of the row number `size` in a range of keys; None if the range has fewer rows."""
    space = KeySpace(captured.table)
    limit = f"LIMIT 1 OFFSET {size - 1}"
    rows = session.rows(*chunk_select(captured, space.selects, keys, limit), raw=True)
    return space.key(rows[0]) if rows else None


def joined(chunks: Sequence[Chunk], size: int) -> list[Chunk]:
    """The same range of keys in fewer chunks, for fewer transactions; `size`: rows per chunk."""
    step = max(1, _TRANSACTION_ROWS // size)
    groups = [chunks[first : first + step] for first in range(0, len(chunks), step)]
    return [Chunk(group[0].low, group[-1].high) for group in groups]


def chunk_select(
    captured: CapturedTable, columns: str, chunk: Chunk, limit: str = ""
) -> tuple[str, list[Any]]:
    """The SELECT of a chunk's rows in the order of the key, with its arguments.

    `columns`: SQL with doubled percent signs.
    """
    table, keys = captured.table, KeySpace(captured.table)
    name = escaped(f"{quote(table.database)}.{quote(table.name)}")
    condition, arguments = keys.condition(chunk.low, chunk.high)
    sql = (
        f"SELECT {columns} FROM {name} FORCE INDEX ({escaped(quote(table.index))}) "
        f"WHERE {condition} ORDER BY {keys.names} {limit}"
    )
    return (sql if arguments else sql % ()), arguments


_VISIBLE_SECONDS = 30.0
Row: TypeAlias = tuple[Any, ...]
"""The values of a row, as `to_values` returns them."""


class ChunkConnections:
    """The connections that read chunks; readers of several tables can share them."""

    def __init__(self, options: MySqlOptions) -> None:
        self._options, self.session = options, Session(options)
        self.snapshot: pymysql.Connection[Any] | None = None
        self._visible: BinlogPosition | None = None

    def await_commits(self, position: BinlogPosition, deadline: float) -> None:
        """Wait until SELECTs see all commits that MySQL's binlog had at a position in the past."""
        if position == self._visible:
            return
        await_commits(self.session, self._options, position, deadline)
        self._visible = position

    def end(self) -> None:
        """End the transaction, which keeps statements from altering the tables it has read."""
        if self.snapshot is not None:
            try:
                self.snapshot.rollback()
            except (pymysql.err.MySQLError, OSError):
                self.disconnect()

    def disconnect(self) -> None:
        """Close the connection of the consistent snapshot."""
        connection, self.snapshot = self.snapshot, None
        close_quietly(connection)

    def close(self) -> None:
        self.session.close()
        self.disconnect()


class ChunkReader:
    """Reads chunks as of a position, on an executor; keeps rows of the binlog between chunks.

    `connections`: shared with other readers. `writer` converts the rows.
    """

    def __init__(
        self,
        captured: CapturedTable,
        as_of: TablePosition,
        connections: ChunkConnections,
        writer: RowWriter,
    ) -> None:
        self._captured, self._writer = captured, writer
        self._server = captured.server
        self._as_of = as_of
        self._position = as_of.position
        self._keys = KeySpace(captured.table)
        self._connections = connections
        self._session = self._connections.session
        self._key_at = captured.key_indexes
        self._rows_at_position: dict[KeyJson, Row | None] = {}
        self._changed_keys: KeySet | None = None
        self._reader: Reader | None = None
        self._relayed = True

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The chunk's rows as of the position, in pieces; a chunk of any size takes little memory.

        After a lost connection, it continues after the last row, in another transaction. So that no
        row is returned twice, the rows of the binlog up to that row are those that were known in
        the first transaction.
        """
        low = chunk.low
        backoff = Backoff(self._captured.options)
        while True:
            done = low
            try:
                for rows in self._pieces(Chunk(low, chunk.high)):
                    key = [
                        (column, rows[at])
                        for column, at in zip(self._captured.table.key, self._key_at, strict=True)
                    ]
                    for column, values in key:
                        check_key(column, values)
                    done = tuple(key_of_text(column, values[-1].as_py()) for column, values in key)
                    yield self._writer.snapshot(self._unchanged(rows))
                break
            except (pymysql.err.MySQLError, OSError) as error:
                self._connections.disconnect()
                # An ALTER TABLE since the transaction began hides the table from it.
                backoff.retry(error, ER.TABLE_DEF_CHANGED)
            if done != low:
                yield from self._changed(Chunk(low, done))
                low, backoff = done, Backoff(self._captured.options)
        yield from self._changed(Chunk(low, chunk.high))

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _pieces(self, chunk: Chunk) -> Iterator[Columns]:
        """The rows of the SELECT, after reading from the binlog which of them changed since."""
        if self._connections.snapshot is None:
            self._connections.snapshot = connect(self._captured.options)
        connection = self._connections.snapshot
        self._await_visible(connection, time.monotonic() + _VISIBLE_SECONDS)
        key = self._captured.table.key
        columns = ", ".join(
            key_select(column) if column in key else column.select
            for column in self._captured.columns
        )
        statement, arguments = chunk_select(self._captured, escaped(columns), chunk)
        # From here on, no statement can alter the table until the transaction ends.
        run(connection, chunk_select(self._captured, "1", Chunk(None, None), "LIMIT 0")[0])
        pieces: Iterable[Columns] = stream_columns(connection, statement, arguments)
        if not self._captured.table.consistent:
            # No snapshot hides what commits after the rows are read.
            pieces = list(pieces)
        end = self._server.position(self._session)
        retried(self._captured.options, lambda: self._read_up_to(end), self._lost)
        yield from pieces

    def _changed(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The rows as of the position of the chunk's keys that changed after it."""
        rows = [(key, row) for key, row in self._rows_at_position.items() if row is not None]
        inside = self._keys.within([key for key, _ in rows], chunk.low, chunk.high, self._session)
        changed = [row for (_, row), is_in in zip(rows, inside, strict=True) if is_in]
        if changed:
            columns = zip(self._captured.columns, zip(*changed, strict=True), strict=True)
            yield self._writer.inserted([
                from_values(column, values, self._captured.date_reading(column))
                for column, values in columns
            ])  # fmt: skip

    def _unchanged(self, rows: Columns) -> Columns:
        """The selected rows, without the keys that changed after the position."""
        if not self._rows_at_position:
            return rows
        if self._changed_keys is None or len(self._changed_keys) != len(self._rows_at_position):
            self._changed_keys = KeySet(self._keys.table(list(self._rows_at_position)))
        mask = self._changed_keys.mask(self._keys.selected([rows[at] for at in self._key_at]))
        return [column.filter(pa.array(~mask)) for column in rows] if mask.any() else rows

    def _await_visible(self, connection: pymysql.Connection[Any], deadline: float) -> None:
        """Start a transaction whose SELECTs see all commits up to the position.

        A commit can be in the binlog shortly before SELECTs see it, so this waits. MariaDB reports
        the position that SELECTs see, MySQL which commits are not done yet.
        """
        run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if not self._server.mariadb:
            self._connections.await_commits(self._position, deadline)
        while True:
            run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            if not self._server.mariadb:
                return
            status = {str(k).lower(): v for k, v in run(connection, _SNAPSHOT_STATUS)}
            file, pos = status["binlog_snapshot_file"], int(status["binlog_snapshot_position"])
            visible = BinlogPosition(file, pos)
            if visible >= self._position:
                return
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"MySQL at {self._captured.options.address} shows the table as of {visible}, "
                    f"not yet as of {self._position}: a commit hangs on the server"
                )
            run(connection, "ROLLBACK")
            time.sleep(0.005)

    def _lost(self) -> None:
        """Close the reader, after an error; the server has what the relay log lacks."""
        self._relayed = self._relayed and not isinstance(self._reader, RelayReader)
        self.close()

    def _read_up_to(self, end: BinlogPosition) -> None:
        if self._reader is None:
            # After a failure, reading the range again is harmless: first changes are kept.
            start = self._position
            if end < start:
                raise reset_error(self._captured.options.address, end, start)
            if end == start:
                return
            self._reader = open_reader({self._captured: self._as_of}, self._relayed)
        for rows in changed_rows(self._reader, end):
            for before, key, row in self._images(rows):
                # Of the first change of a key, the image before it is the row at the position.
                self._rows_at_position.setdefault(key, row if before else None)

    def _images(self, rows: ChangedRows) -> Iterator[tuple[bool, KeyJson, Row]]:
        """Each image: whether it is of before the change, its key, and the values of the row."""
        values = [
            to_values(column, array)
            for column, array in zip(self._captured.columns, rows.columns, strict=True)
        ]
        keys = self._captured.keys([rows.columns[at] for at in self._key_at])
        befores = rows.befores().to_pylist()
        return zip(befores, keys, zip(*values, strict=True), strict=True)


_SNAPSHOT_STATUS = "SHOW STATUS LIKE 'binlog_snapshot_%'"
