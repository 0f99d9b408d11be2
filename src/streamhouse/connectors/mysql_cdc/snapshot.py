"""Reads chunks of the table exactly as of a binlog position (docs/decisions/001-mysql-chunks.md).

A SELECT sees the table at some later moment. Changes since the position are in the binlog, with
before images: the before image of a key's first change is its row at the position.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql

from streamhouse.connectors.mysql_cdc.binlog.captured import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.changes import Change, Row
from streamhouse.connectors.mysql_cdc.change_reader import Reader, StartPoint, open_reader
from streamhouse.connectors.mysql_cdc.relay.reader import RelayReader
from streamhouse.connectors.mysql_cdc.server.connection import (
    Backoff,
    Session,
    close_quietly,
    connect,
    is_lost,
    readable,
    run,
    run_raw,
)
from streamhouse.connectors.mysql_cdc.server.keys import KeySpace, check_key, key_select
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.position import KeyJson, Position
from streamhouse.connectors.mysql_cdc.server.table import Server
from streamhouse.connectors.mysql_cdc.server.types import key_of_text, key_of_value, quote
from streamhouse.errors import ConnectError, DataLossError

_VISIBLE_SECONDS = 30.0


@dataclass(frozen=True)
class Chunk:
    """The rows with a key greater than `low` and up to `high`; None: no bound."""

    low: KeyJson | None
    high: KeyJson | None


@dataclass(frozen=True)
class ChunkRows:
    """A chunk as of the position: rows of the SELECT (`texts`) and of the binlog (`values`)."""

    texts: Sequence[Row]
    values: Sequence[Row]


def chunk_ends(
    session: Session, captured: CapturedTable, low: KeyJson | None, size: int, most: int
) -> tuple[list[KeyJson], bool]:
    """The last keys of up to `most` chunks after `low`, and whether fewer rows than a chunk remain.

    `size` is in rows.
    """
    keys = KeySpace(captured.table)
    ends: list[KeyJson] = []
    while len(ends) < most:
        condition, arguments = keys.condition(low, None)
        rows = session.rows(
            f"SELECT {keys.selects} FROM {_table(captured)} WHERE {condition} "
            f"ORDER BY {keys.names} LIMIT 1 OFFSET {size - 1}",
            arguments,
            raw=True,
        )
        if not rows:
            return ends, True
        low = keys.key(rows[0])
        ends.append(low)
    return ends, False


def split(
    session: Session, captured: CapturedTable, low: KeyJson | None, high: KeyJson | None, size: int
) -> list[Chunk]:
    """Split a range of keys into chunks of about `size` rows, in order."""
    keys = KeySpace(captured.table)
    chunks: list[Chunk] = []
    while True:
        condition, arguments = keys.condition(low, high)
        rows = session.rows(
            f"SELECT {keys.selects} FROM {_table(captured)} WHERE {condition} "
            f"ORDER BY {keys.names} LIMIT 1 OFFSET {size - 1}",
            arguments,
            raw=True,
        )
        end = keys.key(rows[0]) if rows else high
        chunks.append(Chunk(low, end))
        if end == high:
            return chunks
        low = end


class ChunkConnections:
    """The connections by which chunks are read; readers of several tables can share them."""

    def __init__(self, options: MySqlOptions) -> None:
        self.session = Session(options)
        self.snapshot: pymysql.Connection[Any] | None = None

    def disconnect(self) -> None:
        """Close the connection of the consistent snapshot."""
        connection, self.snapshot = self.snapshot, None
        if connection is not None:
            close_quietly(connection)

    def close(self) -> None:
        self.session.close()
        self.disconnect()


class ChunkReader:
    """Reads chunks as of `place`, on an executor; keeps rows from the binlog between chunks.

    `lookback`: an earlier place. MySQL, unlike MariaDB, does not report which transactions a
    SELECT sees, so there the binlog between the two places corrects the SELECT, too.
    `connections`: those of several readers; None: its own.
    """

    def __init__(
        self,
        captured: CapturedTable,
        server: Server,
        place: StartPoint,
        lookback: StartPoint | None,
        connections: ChunkConnections | None = None,
    ) -> None:
        self._captured = captured
        self._server = server
        self._place = place
        self._position = place.position
        self._lookback = lookback
        self._keys = KeySpace(captured.table)
        self._connections = connections or ChunkConnections(captured.options)
        self._shares = connections is not None
        self._session = self._connections.session
        names = [column.name for column in captured.columns]
        self._key_at = [names.index(column.name) for column in captured.table.key]
        self._rows_at_position: dict[KeyJson, Row | None] = {}
        self._reader: Reader | None = None
        self._relayed = True
        self._lookback_read = False

    def read(self, chunk: Chunk) -> ChunkRows:
        """The chunk's rows as of the position."""
        texts = self._select(chunk)
        self._check_keys(texts)
        self._read_binlog(self._server.position(self._session))
        if self._rows_at_position:
            texts = [row for row in texts if self._text_key(row) not in self._rows_at_position]
        candidates = [(key, row) for key, row in self._rows_at_position.items() if row is not None]
        inside = self._keys.within(
            [key for key, _ in candidates], chunk.low, chunk.high, self._session
        )
        values = [row for (_, row), is_in in zip(candidates, inside, strict=True) if is_in]
        return ChunkRows(texts, values)

    def close(self) -> None:
        if not self._shares:
            self._connections.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _select(self, chunk: Chunk) -> list[Row]:
        deadline = time.monotonic() + _VISIBLE_SECONDS
        backoff = Backoff(self._captured.options)
        while True:
            try:
                if self._connections.snapshot is None:
                    self._connections.snapshot = connect(self._captured.options)
                self._await_visible(self._connections.snapshot, deadline)
                return run_raw(self._connections.snapshot, *self._statement(chunk))
            except (pymysql.err.MySQLError, OSError) as error:
                self._connections.disconnect()
                if not is_lost(error) or not backoff.wait(error):
                    raise readable(error, self._captured.options) from None
                deadline = time.monotonic() + _VISIBLE_SECONDS

    def _check_keys(self, rows: Sequence[Row]) -> None:
        for column, at in zip(self._captured.table.key, self._key_at, strict=True):
            check_key(column, [row[at] for row in rows])

    def _statement(self, chunk: Chunk) -> tuple[str, list[Any]]:
        key = self._captured.table.key
        columns = ", ".join(
            key_select(column) if column in key else column.select
            for column in self._captured.columns
        )
        condition, arguments = self._keys.condition(chunk.low, chunk.high)
        # A percent sign in a name must not look like an argument.
        columns = columns.replace("%", "%%") if arguments else columns
        return f"SELECT {columns} FROM {_table(self._captured)} WHERE {condition}", arguments

    def _await_visible(self, connection: pymysql.Connection[Any], deadline: float) -> None:
        """Start a transaction whose SELECTs see all commits up to the position.

        A commit can be in the binlog a moment before SELECTs see it. MariaDB reports what they see,
        so there this waits until they do.
        """
        run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        while True:
            run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            if not self._server.mariadb:
                return
            status = {str(k).lower(): v for k, v in run(connection, _SNAPSHOT_STATUS)}
            file, pos = status["binlog_snapshot_file"], int(status["binlog_snapshot_position"])
            visible = Position(file, pos)
            if visible >= self._position:
                return
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"MySQL at {self._captured.options.address} shows the table as of {visible}, "
                    f"not yet as of {self._position}: a commit hangs on the server"
                )
            run(connection, "ROLLBACK")
            time.sleep(0.005)

    def _read_binlog(self, end: Position) -> None:
        backoff = Backoff(self._captured.options)
        while True:
            try:
                self._read_lookback()
                self._read_up_to(end)
                return
            except (pymysql.err.MySQLError, OSError) as error:
                if not is_lost(error) or not backoff.wait(error):
                    raise readable(error, self._captured.options) from None
                if self._reader is not None:
                    self._relayed = not isinstance(self._reader, RelayReader)
                    self._reader.close()
                    self._reader = None

    def _read_lookback(self) -> None:
        if self._lookback_read or self._lookback is None or self._server.mariadb:
            return
        self._rows_at_position.clear()
        reader = open_reader(self._captured, self._lookback, self._relayed)
        try:
            for change in reader.changes(self._position):
                self._set(change.before, None)
                self._set(change.after, change.after)
        finally:
            reader.close()
        self._lookback_read = True

    def _read_up_to(self, end: Position) -> None:
        if self._reader is None:
            # After a failure, reading the range again is harmless: first changes are kept.
            start = self._position
            if end < start:
                raise DataLossError(
                    f"the binlog of MySQL at {self._captured.options.address} ends at {end}, "
                    f"before {start}: it was reset; start again with a new checkpoint"
                )
            if end == start:
                return
            self._reader = open_reader(self._captured, self._place, self._relayed)
        for change in self._reader.changes(end):
            self._note_first(change)

    def _note_first(self, change: Change) -> None:
        if change.before is not None:
            self._rows_at_position.setdefault(self._value_key(change.before), change.before)
        if change.after is not None:
            self._rows_at_position.setdefault(self._value_key(change.after), None)

    def _set(self, image: Row | None, row: Row | None) -> None:
        if image is not None:
            self._rows_at_position[self._value_key(image)] = row

    def _text_key(self, row: Row) -> KeyJson:
        columns = self._captured.table.key
        return tuple(
            key_of_text(column, row[at]) for column, at in zip(columns, self._key_at, strict=True)
        )

    def _value_key(self, row: Row) -> KeyJson:
        columns = self._captured.table.key
        return tuple(
            key_of_value(column, row[at]) for column, at in zip(columns, self._key_at, strict=True)
        )


_SNAPSHOT_STATUS = "SHOW STATUS LIKE 'binlog_snapshot_%'"


def all_chunks(reader: ChunkReader, chunks: Sequence[Chunk]) -> Iterator[ChunkRows]:
    """Read the chunks in order; closes the reader at the end."""
    try:
        for chunk in chunks:
            yield reader.read(chunk)
    finally:
        reader.close()


def _table(captured: CapturedTable) -> str:
    table = captured.table
    return f"{quote(table.database)}.{quote(table.name)} FORCE INDEX (PRIMARY)"
