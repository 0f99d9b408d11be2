"""Limit on the memory of all followed tables.

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

_LESS = "select fewer columns (columns=), or subscribe to a view of fewer rows"


class Memory:
    """Counts the bytes that feeds keep, and limits them to `most` in total; thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._bytes_by_feed: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()

    @property
    def held(self) -> int:
        """The bytes kept now."""
        with self._lock:
            return sum(self._bytes_by_feed.values())

    def table(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, name: str) -> pa.Table:
        """Collect batches of the table `name`; `TooLargeError` if they alone exceed the limit."""
        collected, size = [], 0
        for batch in batches:
            size += batch.nbytes
            if size > self._most:
                raise TooLargeError(
                    f"{name} is larger than {self._most >> 20:,} MiB, the memory for all tables "
                    f"with subscribers; {_LESS}"
                )
            collected.append(batch)
        return pa.Table.from_batches(collected, schema)

    def hold(self, feed: object, size: int, name: str) -> None:
        """Set how many bytes a feed keeps; `BusyError` if they do not fit beside the others."""
        with self._lock:
            others = sum(self._bytes_by_feed.values()) - self._bytes_by_feed.get(feed, 0)
            if others + size > self._most:
                raise BusyError(
                    f"the other tables with subscribers leave no memory for {name}; try "
                    f"again later, or {_LESS}"
                )
            self._bytes_by_feed[feed] = size

    def free(self, feed: object) -> None:
        """Remove a feed from the count."""
        with self._lock:
            self._bytes_by_feed.pop(feed, None)
