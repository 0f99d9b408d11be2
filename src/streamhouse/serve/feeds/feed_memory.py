"""Limit on the memory of all feeds of a server.

A feed compares a table with a primary key, or a view, with its previous state, and so keeps all of
its rows in memory while it has subscribers.

docs/decisions/089-memory-for-followed-tables.md says why.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable

import pyarrow as pa

from streamhouse.errors import BusyError, TooLargeError

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
