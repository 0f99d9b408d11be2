"""How much of the tables that are followed is kept in memory, of all streams together.

A table with a key, and a view, is compared with what it was, so all of it is there as long as
somebody follows it. Nobody but its readers decides how large that is.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable

import pyarrow as pa

from streamhouse.errors import BusyError, TooLargeError

_LESS = "ask for some of the columns (columns=), or follow a view of some of the rows"


class Memory:
    """Bytes that feeds keep of their tables, at most `most` in all; safe between threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()

    @property
    def held(self) -> int:
        """What is kept now."""
        with self._lock:
            return sum(self._held.values())

    def table(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, name: str) -> pa.Table:
        """The rows of the table `name`; `TooLargeError` once they are more than may be kept."""
        found, size = [], 0
        for batch in batches:
            size += batch.nbytes
            if size > self._most:
                raise TooLargeError(
                    f"{name} is larger than the {self._most >> 20:,} MiB that the server keeps of "
                    f"what it follows; {_LESS}"
                )
            found.append(batch)
        return pa.Table.from_batches(found, schema)

    def hold(self, feed: object, size: int, name: str) -> None:
        """Note what a feed keeps from now on; `BusyError` if there is no room beside the others."""
        with self._lock:
            others = sum(self._held.values()) - self._held.get(feed, 0)
            if others + size > self._most:
                raise BusyError(
                    f"there is no room for {name} beside the other tables that are followed now; "
                    f"ask again later, or {_LESS}"
                )
            self._held[feed] = size

    def free(self, feed: object) -> None:
        """Note that a feed keeps nothing any more."""
        with self._lock:
            self._held.pop(feed, None)
