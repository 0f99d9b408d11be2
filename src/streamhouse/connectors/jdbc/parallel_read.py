"""Reads several ranges of a table at once, each over a connection of its own."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pymysql

from streamhouse.mysql.connection import close_quietly

MOST_CONNECTIONS = 8
_WAITING_BLOCKS = 2
"""For each connection: blocks of about 2 MB that are read ahead."""
_WAIT_S = 0.1

Connection: TypeAlias = "pymysql.Connection[Any]"
Read: TypeAlias = Callable[[str, Callable[[Connection], None]], Iterator[pa.RecordBatch]]
"""Reads the rows of a condition; calls its second argument with the connection it has opened."""


def parallel_rows(ranges: Sequence[str], read: Read) -> Iterator[pa.RecordBatch]:
    """The rows of all ranges, in any order; stops reading when it is closed."""
    reading = _Reading(ranges, read)
    try:
        yield from reading.rows()
    finally:
        reading.stop()


class _Reading:
    """The threads of one read, and the queue of the batches that they have read."""

    def __init__(self, ranges: Sequence[str], read: Read) -> None:
        self._read = read
        self._ranges: queue.SimpleQueue[str] = queue.SimpleQueue()
        for condition in ranges:
            self._ranges.put(condition)
        count = min(MOST_CONNECTIONS, len(ranges))
        self._found: queue.Queue[pa.RecordBatch | Exception | None] = queue.Queue(
            _WAITING_BLOCKS * count
        )
        self._stopped = threading.Event()
        self._connections: dict[int, Connection] = {}
        self._threads = [
            threading.Thread(target=self._run, name=f"jdbc-read-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def rows(self) -> Iterator[pa.RecordBatch]:
        running = len(self._threads)
        while running:
            found = self._found.get()
            if isinstance(found, Exception):
                raise found
            if found is None:
                running -= 1
            else:
                yield found

    def stop(self) -> None:
        """End the threads; closes the connections of those that wait for the server."""
        self._stopped.set()
        for connection in list(self._connections.values()):
            _shut_down(connection)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    condition = self._ranges.get_nowait()
                except queue.Empty:
                    break
                for batch in self._read(condition, self._opened):
                    if not self._put(batch):
                        return
            self._put(None)
        except Exception as error:  # noqa: BLE001  # raised where the rows are read
            self._put(error)

    def _opened(self, connection: Connection) -> None:
        self._connections[threading.get_ident()] = connection
        if self._stopped.is_set():
            close_quietly(connection)

    def _put(self, found: pa.RecordBatch | Exception | None) -> bool:
        """Queue a batch, an error or the end of a thread; False if the read was stopped."""
        while not self._stopped.is_set():
            try:
                self._found.put(found, timeout=_WAIT_S)
                return True
            except queue.Full:
                continue
        return False


def _shut_down(connection: Connection) -> None:
    """Make a thread that waits for the server fail."""
    underlying: Any = connection._sock  # type: ignore[attr-defined]
    if underlying is not None:
        with contextlib.suppress(OSError):
            underlying.shutdown(socket.SHUT_RDWR)
