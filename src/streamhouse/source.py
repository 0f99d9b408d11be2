"""What a continuous query reads: the one interface of all sources.

A source is plain Python and knows nothing of Spark. `streamhouse.runtime` runs one inside a fused
query (read, join, combine and write in one task); `streamhouse.spark` offers the same object as a
Spark data source. Offsets are JSON objects of str, int and bool (nested dicts allowed); two equal
offsets mean "nothing moved".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

Offset: TypeAlias = dict[str, Any]

ROW_KIND = "rowkind"
"""Name of the string column that carries a row's kind: one of `ROW_KINDS`."""

ROW_KINDS = ("+I", "-U", "+U", "-D")


class Source(Protocol):
    """Rows between two offsets, repeatably: the same two offsets give the same rows, in order."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, without the row kind."""

    @property
    def changelog(self) -> bool:
        """Whether rows can be other than inserts; batches then end with a `rowkind` column."""

    @property
    def ordered(self) -> bool:
        """Whether changes of one key can stand in different partitions of one range.

        True means: to keep the order of changes, read the partitions in their order, in one task.
        """

    def initial_offset(self) -> Offset:
        """Where a new query starts; constant, so that batch 0 can be planned again."""

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The newest offset after `start` (`start` itself if nothing moved); driver only.

        With `max_rows`, an offset that bounds the batch to about that many rows (at least one
        indivisible unit).
        """

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Any]:
        """Picklable pieces of the range (start, end], in order; driver only."""

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one piece, in order; executors."""

    def committed(self, end: Offset) -> None:
        """The range up to `end` has been taken in for good."""

    def finished(self, offset: Offset) -> bool:
        """Whether a bounded source has ended at `offset`; always False for unbounded ones."""

    def close(self) -> None:
        """Release connections."""


@dataclass(frozen=True)
class Lag:
    """How far reading is behind what is there; None where nobody can tell.

    `seconds` since the oldest unread rows came, or since they were first seen to be there; how many
    rows, snapshots or bytes of a binlog they are. `waiting_rows` are committed, and no reader sees
    them before a compaction; None where all are visible.
    """

    seconds: float | None = None
    rows: int | None = None
    snapshots: int | None = None
    bytes: int | None = None
    waiting_rows: int | None = None


@runtime_checkable
class Counted(Protocol):
    """A source that may know how many rows a range has without reading them."""

    def rows(self, start: Offset, end: Offset) -> int | None:
        """How many rows there are from `start` to `end`, or None; driver only."""


@runtime_checkable
class Settling(Protocol):
    """A source whose `latest_offset` may be late, and that can tell whether it is."""

    def settled(self, offset: Offset) -> bool:
        """Whether nothing is there to be read after `offset`; driver only."""


@runtime_checkable
class Checked(Protocol):
    """A source whose offsets say what they are offsets of."""

    def check(self, offset: Offset) -> None:
        """Raise `DataLossError` if the source cannot go on from `offset`; driver only."""


@runtime_checkable
class Lagging(Protocol):
    """A source that can tell cheaply, and without asking a server, how far behind a reader is."""

    def lag(self, offset: Offset) -> Lag | None:
        """How far `offset` is behind; None where that is not known; driver only."""
