"""The rows that a feed keeps to compare the next state of its table with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.paimon.changelog.differences.state_difference import Differ

if TYPE_CHECKING:
    from streamhouse.serve.feeds.feed_memory import FeedMemory


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
