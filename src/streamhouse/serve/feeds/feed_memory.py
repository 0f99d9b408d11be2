"""The rows that feeds keep to compare the next state with, and the limit on their memory."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable

import pyarrow as pa

from streamhouse.errors import BusyError, TooLargeError
from streamhouse.paimon.changelog.differences.state_difference import Differ

_ADVICE = "select fewer columns (columns=), or subscribe to a view of fewer rows"


class FeedMemory:
    """Counts the bytes that feeds keep, and limits them to `max_bytes` in total; thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._bytes_by_feed: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()

    @property
    def used_bytes(self) -> int:
        """The bytes kept now."""
        with self._lock:
            return sum(self._bytes_by_feed.values())

    def collect(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, name: str) -> pa.Table:
        """Collect batches of the table `name`; `TooLargeError` if they alone exceed the limit."""
        collected, size = [], 0
        for batch in batches:
            size += batch.nbytes
            if size > self._max_bytes:
                raise TooLargeError(
                    f"{name} is larger than {self._max_bytes >> 20:,} MiB, the memory for all "
                    f"tables with subscribers; {_ADVICE}"
                )
            collected.append(batch)
        return pa.Table.from_batches(collected, schema)

    def reserve(self, feed: object, size: int, name: str) -> None:
        """Set how many bytes a feed keeps; `BusyError` if they do not fit beside the others."""
        with self._lock:
            others = sum(self._bytes_by_feed.values()) - self._bytes_by_feed.get(feed, 0)
            if others + size > self._max_bytes:
                raise BusyError(
                    f"the other tables with subscribers leave no memory for {name}; try "
                    f"again later, or {_ADVICE}"
                )
            self._bytes_by_feed[feed] = size

    def release(self, feed: object) -> None:
        """Remove a feed from the count."""
        with self._lock:
            self._bytes_by_feed.pop(feed, None)


class KeptRows:
    """The rows of the last poll of `name`, and DuckDB to compare them; not thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._differ: Differ | None = None
        self.table: pa.Table | None = None
        """With all columns that the next comparison needs; None for an append-only table."""
        self.memory: FeedMemory | None = None
        """The memory limit that all feeds of a server share; None: unlimited."""

    def differ(self) -> Differ:
        """What compares two states; the first call starts DuckDB."""
        if self._differ is None:
            self._differ = Differ()
        return self._differ

    def collect(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
        """The next state; raises `TooLargeError` if it alone exceeds the memory limit."""
        if self.memory is None:
            return pa.Table.from_batches(list(batches), schema)
        return self.memory.collect(batches, schema, self._name)

    def replace(self, table: pa.Table) -> pa.Table | None:
        """Keep the next state, and return the former one.

        Raises `BusyError` if it does not fit beside the tables of other feeds.
        """
        if self.memory is not None:
            self.memory.reserve(self, table.nbytes, self._name)
        former, self.table = self.table, table
        return former

    def close(self) -> None:
        """Free the memory."""
        if self.memory is not None:
            self.memory.release(self)
        self.table = None
        if self._differ is not None:
            self._differ.close()
