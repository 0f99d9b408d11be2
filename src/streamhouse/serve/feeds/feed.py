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

from streamhouse.arrow_batches import Rows
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
        self.kept: pa.Table | None = None
        """The rows of the last poll, with all columns that the next comparison needs; None for an
        append-only table."""
        self.differ = Differ()
        self.memory = FeedMemory()
        """The memory limit that all feeds of a server share; else unlimited."""
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
        return None if self.kept is None else self.kept.select(self.schema.names)

    def inserts(self, snapshot: int) -> tuple[int, Iterable[pa.RecordBatch]]:
        """All rows as `+I`: the kept ones, else those of the table as of `snapshot`.

        And how many records there are. Raises `DataLossError` if the snapshot has expired, also
        while the batches are read.
        """
        rows = self.rows
        return (0, ()) if rows is None else (rows.num_rows, as_inserts(rows).to_batches())

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

        `state` is `kept` at that snapshot.
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
        self.memory.release(self)
        self.kept = None
        self.differ.close()

    def _replace_state(
        self, table: pa.Table, key: Sequence[str], first: bool
    ) -> tuple[pa.Table, bool]:
        """Keep the next state; returns the changes since the former one, by its key if it has one.

        Then, whether these are all rows: of the `first` state, or of one with other columns. Raises
        `BusyError` if it does not fit beside the tables of other feeds.
        """
        self.memory.reserve(self, table.nbytes, self.identifier)
        former, self.kept = self.kept, table
        if first or former is None or former.schema != table.schema:
            return as_inserts(table), True
        if key:
            return self.differ.by_key(former, table, key), False
        return self.differ.by_row(former, table), False


def as_inserts(rows: Rows) -> Rows:
    """The rows with a leading `rowkind` column of `+I`."""
    return rows.add_column(0, ROW_KIND, pa.repeat("+I", rows.num_rows))
