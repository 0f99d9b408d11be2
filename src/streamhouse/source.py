"""The interface of all sources of continuous queries.

A source is plain Python and does not depend on Spark. `streamhouse.runtime` runs it in a fused
query (read, join, aggregate and write in one task); `streamhouse.spark` wraps the same object as a
Spark data source. Offsets are JSON objects of str, int and bool (nested dicts and lists allowed);
two equal offsets mean that there is nothing new.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

Offset: TypeAlias = dict[str, Any]

ROW_KIND = "rowkind"
"""Name of the string column that carries a row's kind: one of `ROW_KINDS`."""

ROW_KINDS = ("+I", "-U", "+U", "-D")

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)
_Item = TypeVar("_Item")


def of_kind(rows: _Rows, kind: str) -> _Rows:
    """The rows with a last column `rowkind` of one kind."""
    return rows.append_column(ROW_KIND, pa.repeat(pa.scalar(kind), rows.num_rows))


def with_kinds(rows: _Rows) -> _Rows:
    """The rows with a column `rowkind`; those without one are inserts."""
    return rows if ROW_KIND in rows.schema.names else of_kind(rows, "+I")


def grouped(items: Sequence[_Item], most: int) -> list[Sequence[_Item]]:
    """The items in up to `most` groups of about the same size, in order; at least one."""
    count = max(1, min(most, len(items)))
    bounds = [len(items) * i // count for i in range(count + 1)]
    return [items[a:b] for a, b in pairwise(bounds)]


@dataclass(frozen=True)
class SourceState:
    """What a source knows of the changes that it receives; a field is None where it is unknown.

    `snapshotting`: whether the reader still reads the snapshot. `position`: the reader's file and
    byte in the server's log. Of the last change received: `event_ms`, when the server executed it
    (epoch ms, by the server's clock), and `received_ms`, when it arrived. `tables`: how many are
    followed; the snapshots of `tables_left` are not complete, and have about `splits_left` chunks.
    """

    snapshotting: bool
    position: tuple[str, int] | None = None
    event_ms: int | None = None
    received_ms: int | None = None
    tables: int | None = None
    tables_left: int | None = None
    splits_left: int | None = None


@dataclass(frozen=True)
class Lag:
    """How far a reader is behind its source; a field is None where that is unknown.

    `seconds`: since the oldest unread rows arrived, or were first noticed. `rows`, `snapshots` and
    `bytes` (of a binlog) are unread. `waiting_rows` are committed, but invisible to readers until a
    compaction; None if all rows are visible. `state`: for metrics.
    """

    seconds: float | None = None
    rows: int | None = None
    snapshots: int | None = None
    bytes: int | None = None
    waiting_rows: int | None = None
    state: SourceState | None = field(default=None, compare=False)

    @property
    def known(self) -> bool:
        """Whether any part of the lag is known."""
        return self != Lag()

    @property
    def parts(self) -> dict[str, float | int | None]:
        """The parts by their names, without `state`."""
        return {name: value for name, value in vars(self).items() if name != "state"}


class Source(ABC):
    """A replayable source: the same two offsets give the same rows, in the same order.

    The driver and each Python worker of an executor open an object of their own, and use it for
    many batches. Only partitions go from the driver to the others, pickled; so `read` uses nothing
    that another method has stored in the object. Exactly-once delivery follows from replays: after
    a crash, a planned range is read again, by other processes.

    `read`, `changes_read` and `bad_records` run on executors, all other methods on the driver.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the rows, without the row kind; `specs.arrow_schema` of those declared."""

    @property
    def changelog(self) -> bool:
        """Whether rows can be other than inserts; batches then end with a `rowkind` column."""
        return False

    @property
    def ordered(self) -> bool:
        """Whether changes of one key can be in different partitions of one range.

        If True, one task has to read the partitions in their order, to keep the order of changes.
        """
        return False

    @property
    def keyed_by(self) -> tuple[str, ...]:
        """Columns: rows with equal values in them are in one partition, in order; perhaps none."""
        return ()

    @property
    def bounded(self) -> bool:
        """Whether `finished` will be True at some offset; until then the source may still grow."""
        return False

    def initial_offset(self) -> Offset:
        """The offset where a new query starts; constant, so that batch 0 can be planned again."""
        return {}

    @abstractmethod
    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The newest offset after `start` (`start` itself if there is nothing new).

        With `max_rows`, the range up to the offset has about that many rows, and at least one
        indivisible unit, such as a transaction. An idle query calls this up to 100 times a second,
        so a source that queries a server limits how often it does. A `StoreError` is retried; other
        errors end the query, such as `DataLossError` if rows after `start` are gone.
        """

    @abstractmethod
    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Any]:
        """The range (start, end] as picklable partitions, in order."""

    @abstractmethod
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read the rows of one partition, in order."""

    def check_start(self) -> None:
        """Raise the error that a query without offsets would end with at its first batch."""
        return

    def check(self, offset: Offset) -> None:
        """Raise `DataLossError` if the source cannot resume at `offset`."""
        return

    def allow_large_batches(self) -> None:
        """Called if tasks write rows as they read them: a batch may be larger than otherwise."""
        return

    def committed(self, end: Offset) -> None:
        """Called once the rows up to `end` are committed: the query will not read them again."""
        return

    def finished(self, offset: Offset) -> bool:
        """Whether a `bounded` source has ended at `offset`."""
        return False

    def caught_up(self, offset: Offset) -> bool:
        """Whether there is nothing to read after `offset`, also if `latest_offset` may lag."""
        return self.latest_offset(offset) == offset

    def rows(self, start: Offset, end: Offset) -> int | None:
        """How many rows there are from `start` to `end`; None if reading them would tell."""
        return None

    def rows_left(self, offset: Offset) -> int | None:
        """About how many rows of a snapshot are left; None if it is complete. Queries no server."""
        return None

    def lag(self, offset: Offset) -> Lag | None:
        """The lag of a reader at `offset`; None if unknown. Queries no server."""
        return None

    def changes_read(self) -> Mapping[str, int]:
        """How many changes were read since the last call, by row kind, snapshots aside."""
        return {}

    def bad_records(self) -> pa.Table:
        """The records that `read` has left out since the last call: rows of `BAD_RECORDS`."""
        return BAD_RECORDS.empty_table()

    def close(self) -> None:
        """Release connections."""
        return


BAD_RECORDS = pa.schema(
    [
        pa.field("position", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64()),
        pa.field("headers", pa.map_(pa.string(), pa.binary())),
    ]
)
"""A record that a source could not decode: where it is, why, its bytes, its time (epoch ms)."""
