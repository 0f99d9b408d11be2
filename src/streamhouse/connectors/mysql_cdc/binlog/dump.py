"""The binlog of a server: its files, and a connection that reads it as blocks of whole events."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pymysql

from streamhouse.connectors.mysql_cdc.binlog.format.compression import COMPRESSED, decompressed
from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    CHECKSUM_BYTES,
    FORMAT,
    HEADER,
    PositionTracker,
    Step,
    announces_checksums,
)
from streamhouse.errors import ConnectError, DataLossError
from streamhouse.mysql.connection import Session, close_quietly, open_connection, run
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BINLOG_START, START_AGAIN, BinlogPosition

_COM_BINLOG_DUMP = 0x12
_HEARTBEAT_NANOSECONDS = 1_000_000_000
_READ_SECONDS = 60
_STALLED_SECONDS = 20.0
_BLOCK_BYTES = 256 * 1024
_LONGEST_PACKET = 0xFFFFFF
_OK, _EOF = 0x00, 0xFE
_KIND = 4

_SETTINGS = (
    "SET net_write_timeout = 600, @master_binlog_checksum = @@global.binlog_checksum, "
    "@source_binlog_checksum = @@global.binlog_checksum, "
    f"@master_heartbeat_period = {_HEARTBEAT_NANOSECONDS}, "
    f"@source_heartbeat_period = {_HEARTBEAT_NANOSECONDS}, @mariadb_slave_capability = 4"
)
_CHECKSUM = "SELECT @@global.binlog_checksum"
_NO_CHECKSUM = ("NONE", "0")
_LOST = "the binlog connection was lost"


class RawEvent(NamedTuple):
    """An event at byte `at` of `data`; `seconds`, `kind`, `size` and `pos` are in its header.

    `step`: its effect on the transaction, if it has one.
    """

    seconds: int
    kind: int
    size: int
    pos: int
    data: bytes
    at: int
    step: Step | None


class BinlogDump:
    """The server's binlog from `start` on, as a stream of raw events.

    The reader of `pymysqlreplication` creates an object for each event of each table, which takes
    30 to 60 µs; raw events of other tables can be skipped by their length. The server sends a
    heartbeat each second if there is no other event. Compressed events are decompressed. `track`:
    the position, which `up_to` advances. Raises PyMySQL's errors; never reconnects.

    One thread reads and closes it; any thread may call `interrupt`.
    """

    def __init__(self, options: MySqlOptions, start: BinlogPosition) -> None:
        self._connection: pymysql.Connection[Any] = open_connection(
            options, read_timeout=_READ_SECONDS, init_command=_SETTINGS
        )
        self._address = options.address
        self._buffer = bytearray()
        self._partial = b""
        self._block, self._at = b"", 0
        self._closing, self._closed = threading.Lock(), False
        try:
            used = str(run(self._connection, _CHECKSUM)[0][0]).upper()
            self._checksums = used not in _NO_CHECKSUM
            self.track = PositionTracker(start, self._checksums)
            self._request_dump(options.server_id(), start)
        except BaseException:
            self.close()
            raise

    def block(self) -> bytes:
        """The events received so far, concatenated; waits for at least one."""
        while not (events := self._whole_events()):
            try:
                received = self._file.read1(_BLOCK_BYTES)
                self._buffer += received
                if received and isinstance(self._socket, ssl.SSLSocket):
                    self._receive_arrived(self._socket)
            except OSError as error:
                # Callers have files, too, whose errors are others.
                raise pymysql.err.OperationalError(2013, f"{_LOST}: {error}") from None
            if not received:
                raise pymysql.err.OperationalError(2013, _LOST)
        return events[0] if len(events) == 1 else b"".join(events)

    def up_to(self, end: BinlogPosition) -> Iterator[RawEvent]:
        """The events up to an end of a transaction that is at `end` or after it; waits for each.

        `track` is after the last one. A later call goes on from there. Raises as `blocks`.
        """
        track, blocks = self.track, self.blocks(end)
        while not (track.between and track.position >= end):
            if self._at >= len(self._block):
                self._block, self._at = next(blocks), 0
            block, at = self._block, self._at
            seconds, kind, _, size, pos, _ = HEADER.unpack_from(block, at)
            self._at += size
            yield RawEvent(seconds, kind, size, pos, block, at, track.take(block, at))

    def blocks(self, end: BinlogPosition) -> Iterator[bytes]:
        """The blocks of events, with which the caller advances `track` up to `end`.

        Raises `DataLossError` if it does not advance for 20 s: the binlog ends before `end`.
        """
        last, moved = self.track.position, time.monotonic()
        while True:
            yield self.block()
            if self.track.position != last:
                last, moved = self.track.position, time.monotonic()
            elif time.monotonic() - moved > _STALLED_SECONDS:
                raise reset_error(self._address, last, end)

    def interrupt(self) -> None:
        """Let a read that waits for events fail as if the connection were lost."""
        with self._closing:
            if not self._closed:
                with contextlib.suppress(OSError):
                    # Not the method of TLS's sockets: it takes away what the other thread reads by.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        with self._closing:
            self._closed = True
            close_quietly(self._connection)

    def _receive_arrived(self, tls: ssl.SSLSocket) -> None:
        """Receive what else has arrived: a read by TLS returns one record, of perhaps one event."""
        most = len(self._buffer) + _BLOCK_BYTES
        tls.settimeout(0)
        try:
            # The reader's own buffer is empty, as it has just returned all of it.
            while len(self._buffer) < most and (received := tls.recv(_BLOCK_BYTES)):
                self._buffer += received
        except OSError:
            # There is no more, or the connection is lost: then the next read fails, too.
            pass
        finally:
            tls.settimeout(_READ_SECONDS)

    def _request_dump(self, server_id: int, start: BinlogPosition) -> None:
        command = (
            bytes([_COM_BINLOG_DUMP])
            + start.pos.to_bytes(4, "little")
            + b"\0\0"
            + server_id.to_bytes(4, "little")
            + start.file.encode()
        )
        connection: Any = self._connection
        connection._write_bytes(len(command).to_bytes(3, "little") + b"\0" + command)
        self._file, self._socket = connection._rfile, connection._sock
        self._socket.settimeout(_READ_SECONDS)

    def _whole_events(self) -> list[bytes]:
        """The events of all complete packets received; a packet's first byte is its status."""
        buffer, at, events = self._buffer, 0, []
        while len(buffer) - at >= 4:
            size = int.from_bytes(buffer[at : at + 3], "little")
            if len(buffer) - at < 4 + size:
                break
            payload = bytes(memoryview(buffer)[at + 4 : at + 4 + size])
            at += 4 + size
            if size == _LONGEST_PACKET:
                self._partial += payload
                continue
            if self._partial:
                payload, self._partial = self._partial + payload, b""
            events.append(self._event(payload))
        if at:
            del buffer[:at]
        return events

    def _event(self, payload: bytes) -> bytes:
        if payload[0] == _OK:
            event = payload[1:]
            if event[_KIND] == FORMAT:
                self._checksums = announces_checksums(event, len(event))
            elif event[_KIND] in COMPRESSED:
                return decompressed(event, CHECKSUM_BYTES if self._checksums else 0)
            return event
        if payload[0] == _EOF and len(payload) < 9:
            raise pymysql.err.OperationalError(2013, "the server ended the binlog connection")
        pymysql.err.raise_mysql_exception(payload)
        raise AssertionError("unreachable")


def log_files(session: Session) -> list[tuple[str, int]]:
    """The binlog files that the server still has, with their bytes, oldest first."""
    return [(str(row[0]), int(row[1])) for row in session.rows("SHOW BINARY LOGS")]


def earliest_position(session: Session) -> BinlogPosition:
    """The start of the oldest binlog file."""
    files = log_files(session)
    if not files:
        raise ConnectError("the MySQL server has no binlog file; set log-bin = binlog")
    return BinlogPosition(files[0][0], BINLOG_START)


def purged_file_error(table: str, file: str, files: Sequence[str]) -> DataLossError:
    """The error for a needed binlog file that is not among the server's `files`."""
    oldest = files[0] if files else "none"
    return DataLossError(
        f"the server has removed the binlog file {file}, which {table} still needs (the oldest "
        f"file is {oldest}); {START_AGAIN}, and keep binlogs longer "
        "(expire_logs_days, binlog_expire_logs_seconds)"
    )


def reset_error(
    address: str, current: BinlogPosition, position: BinlogPosition, name: str = ""
) -> DataLossError:
    """The error for a binlog that ends at `current`, before a position that was in it."""
    again = f"start {name} again with a new checkpoint" if name else START_AGAIN
    return DataLossError(
        f"the binlog of MySQL at {address} ends at {current}, before {position}: it was reset "
        f"(RESET MASTER), or this is another server; {again}"
    )
