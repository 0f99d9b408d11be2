"""The interface of feeds: the state of a table or view, then each of its changes; kept rows."""

from __future__ import annotations

import math
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.duckdb_engine import Limits
from streamhouse.errors import BusyError, TooLargeError
from streamhouse.paimon.changelog.differences.state_difference import Differ
from streamhouse.source import ROW_KIND

if TYPE_CHECKING:
    from streamhouse.serve.admission.fair_queue import ViewComputations


_ADVICE = "select fewer columns (columns=), or subscribe to a view of fewer rows"


class FeedMemory:
    """Counts the bytes that feeds keep, and limits them to `max_bytes` in total; thread-safe."""

    def __init__(self, max_bytes: float = math.inf) -> None:
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
                    f"{name} is larger than {self._max_bytes / 2**20:,.0f} MiB, the memory for all "
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
        self.memory = FeedMemory()
        """The memory limit that all feeds of a server share; else unlimited."""

    def differ(self) -> Differ:
        """What compares two states; the first call starts DuckDB."""
        if self._differ is None:
            self._differ = Differ()
        return self._differ

    def collect(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
        """The next state; raises `TooLargeError` if it alone exceeds the memory limit."""
        return self.memory.collect(batches, schema, self._name)

    def replace(self, table: pa.Table) -> pa.Table | None:
        """Keep the next state, and return the former one.

        Raises `BusyError` if it does not fit beside the tables of other feeds.
        """
        self.memory.reserve(self, table.nbytes, self._name)
        former, self.table = self.table, table
        return former

    def close(self) -> None:
        """Free the memory."""
        self.memory.release(self)
        self.table = None
        if self._differ is not None:
            self._differ.close()


@dataclass(frozen=True)
class FeedChange:
    """The result of one poll.

    `batches` have a leading `rowkind` column and must be consumed before the next poll; with
    `is_whole_table` they are no difference. `rows` is how many rows the table has now (of a table
    without a primary key: records), None if an old writer did not count them. A snapshot without
    visible changes, such as a compaction, has no rows in its batches.
    """

    snapshot: int
    commit_time_ms: int
    is_whole_table: bool
    rows: int | None
    batches: Iterable[pa.RecordBatch]


class Feed(ABC):
    """Polls one table or view, `identifier`, for changes; not thread-safe."""

    def __init__(self, identifier: str) -> None:
        self.identifier = identifier
        self.kept = KeptRows(identifier)
        """The rows of the last poll; none for an append-only table."""
        self.limits: Limits | None = None
        """Of each computation of a view."""
        self.computations: ViewComputations | None = None
        """Its slots; None: it never waits."""
        self.client = ""
        """Whose share of the slots it takes."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns with their current types, without the row kind."""

    @property
    @abstractmethod
    def primary_key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty for an append-only table."""

    @property
    def rows(self) -> pa.Table | None:
        """The kept rows, with the columns of the `schema`; None for an append-only table."""
        kept = self.kept.table
        return None if kept is None else kept.select(self.schema.names)

    @property
    @abstractmethod
    def incarnation(self) -> str:
        """A digest that changes if the table is dropped and created again under its name."""

    @abstractmethod
    def was_replaced(self, snapshot: int, time_ms: int, immediate: bool = True) -> bool:
        """Whether the table was recreated or rolled back since `snapshot`, committed at `time_ms`.

        Unless `immediate`, the result may be up to two seconds old.
        """

    def refresh(self) -> bool:
        """Apply schema changes that came without a commit; returns whether there was one."""
        return False

    @abstractmethod
    def resume_after(self, snapshot: int, state: pa.Table | None) -> None:
        """Make the next poll return the changes after `snapshot`.

        `state` is `kept.table` at that snapshot.
        """

    @abstractmethod
    def poll(self) -> FeedChange | None:
        """The next change, or None if nothing was committed since the last poll.

        The first change is the whole table.
        """

    def store_progress(self, change: FeedChange) -> None:  # noqa: B027 - optional
        """Advance the feed's consumer, if it has one, past a change that has been processed."""

    def cancel(self) -> None:  # noqa: B027 - optional
        """End the poll in progress with an error; called by another thread, before `close`."""

    def close(self) -> None:
        """Free all memory; the feed cannot be used afterwards."""
        self.kept.close()


def as_inserts(table: pa.Table) -> pa.Table:
    """The table with a leading `rowkind` column of `+I`."""
    return table.add_column(0, ROW_KIND, pa.repeat("+I", table.num_rows))


def select_as_inserts(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The batch's columns with a leading `rowkind` column of `+I`."""
    arrays = [pa.repeat("+I", batch.num_rows), *(batch.column(name) for name in columns)]
    return pa.record_batch(arrays, names=[ROW_KIND, *columns])


def cast_to_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table cast to a newer schema; added columns are null."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
