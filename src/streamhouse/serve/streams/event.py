"""The events of a change stream: encoded once for all subscribers.

An event is one JSON object. As a server-sent event it is the `data`, with `id` and `event` (its
kind) in lines of their own; as a WebSocket message the object has the keys `id` and `type`.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import pyarrow as pa

from streamhouse.errors import TooLargeError
from streamhouse.paimon.write.rows import gathered
from streamhouse.serve.formats.cells import compact, iso, objects, unreserved_names
from streamhouse.serve.formats.row_formats import slices
from streamhouse.serve.settings import StreamSettings
from streamhouse.source import ROW_KIND

SNAPSHOT = "snapshot"
CHANGES = "changes"
HEARTBEAT = "heartbeat"
OVERFLOW = "overflow"
OVERHEAD = 512
"""Approximate memory of an event besides its text, in bytes."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_STAMP_BYTES = 4


_TEXT_PER_ARROW = 2
"""Approximate size of JSON text relative to the Arrow data."""


@dataclass(frozen=True)
class StreamPosition:
    """The state of a table after one snapshot: a position from which a stream can resume.

    `snapshot` and `time_ms` (the commit time) are 0 for a table without snapshots. `stamp`
    distinguishes the snapshot from others with the same id, in a table that was recreated or
    rolled back (docs/decisions/060-subscribers-share-one-event-chain.md).
    """

    snapshot: int
    time_ms: int
    stamp: str

    @classmethod
    def of(cls, incarnation: str, snapshot: int, time_ms: int) -> Self:
        """The commit of a snapshot; every process computes the same for the same commit."""
        text = f"{incarnation}\n{snapshot}\n{time_ms}".encode()
        return cls(snapshot, time_ms, short_digest(text))

    @property
    def id(self) -> str:
        """The event id, which a subscriber sends as `last_id` to resume from here."""
        return f"{self.snapshot}-{self.stamp}"

    @property
    def fields(self) -> dict[str, Any]:
        """The keys `snapshot` and `time` of an event; both null for a table without snapshots."""
        if not self.snapshot:
            return {"snapshot": None, "time": None}
        return {"snapshot": self.snapshot, "time": iso(self.time_ms)}


@dataclass(frozen=True)
class StreamEvent:
    """One message to the subscribers of a stream.

    `kind` is `snapshot`, `changes`, `heartbeat` or `overflow`. `id` is None if subscribers cannot
    resume from the event: all parts of a large event but the last, and `overflow`. `data` is the
    JSON object. `rows` counts its rows. `changed` counts an updated row once, although it occurs
    as -U and as +U.
    """

    id: str | None
    kind: str
    data: str
    rows: int = 0
    changed: int = 0

    @cached_property
    def sse(self) -> bytes:
        """The text of the server-sent event, with the blank line that ends it."""
        head = "" if self.id is None else f"id: {self.id}\n"
        return f"{head}event: {self.kind}\ndata: {self.data}\n\n".encode()

    @cached_property
    def text(self) -> str:
        """The WebSocket message."""
        head: dict[str, str] = {"type": self.kind}
        if self.id is not None:
            head["id"] = self.id
        return f"{compact(head)[:-1]},{self.data[1:]}"

    @property
    def size(self) -> int:
        """Approximate memory in bytes: the object and its encoded form."""
        return 2 * len(self.data) + OVERHEAD


def heartbeat(commit: StreamPosition) -> StreamEvent:
    """The event for waiting subscribers when nothing has changed since the commit."""
    return StreamEvent(commit.id, HEARTBEAT, compact(commit.fields))


def overflow(message: str, last_id: str | None) -> StreamEvent:
    """The last event of a subscriber that was too slow."""
    return StreamEvent(None, OVERFLOW, compact({"message": message, "last_id": last_id}))


def short_digest(text: bytes) -> str:
    """A digest of 32 bits in base 36: digits and lower-case letters."""
    digest = hashlib.blake2b(text, digest_size=_STAMP_BYTES).digest()
    number, digits = int.from_bytes(digest, "big"), ""
    while number or not digits:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


class EncodingStopped(Exception):
    """The server stopped while rows were being encoded."""


@dataclass(frozen=True)
class StreamEncoder:
    """Encodes the rows and events of one stream.

    `name` is the served view, for error messages. Encoding raises `EncodingStopped` once `stopping`
    returns True. Used from several threads.
    """

    name: str
    _settings: StreamSettings
    _stopping: Callable[[], bool] = lambda: False

    @property
    def max_rows(self) -> int:
        """The most rows in an initial state, in one change, or in missed events."""
        return self._settings.max_rows

    def state(
        self, commit: StreamPosition, records: int, batches: Iterable[pa.RecordBatch]
    ) -> tuple[StreamEvent, ...]:
        """The event of an initial state: all rows of a table, as `Feed.inserts` returns them."""
        subject = f"the first snapshot of {self.name}"
        if records > self.max_rows:
            raise self._too_large(subject)
        return self.events(SNAPSHOT, commit, batches, subject)

    def events(
        self,
        kind: str,
        commit: StreamPosition,
        batches: Iterable[pa.RecordBatch] = (),
        subject: str = "",
        most: int | None = None,
    ) -> tuple[StreamEvent, ...]:
        """One event with these rows, which have a leading `rowkind` column.

        A large event is split into parts, of which only the last has an id. A part has at most
        `part_rows` rows, and about `part_bytes` bytes. Raises `TooLargeError`, whose message begins
        with `subject` (such as `snapshot 17 of shop.orders`), for more than `most` rows, by default
        `max_rows`.
        """
        settings = self._settings
        bounded = self._bounded(batches, subject, self.max_rows if most is None else most)
        groups = gathered(bounded, settings.part_rows, settings.part_bytes // _TEXT_PER_ARROW)
        parts = [self._encoded(part) for group in groups for part in self._split(group)]
        head = compact(commit.fields)[:-1] + ',"rows":['
        result = []
        for number, (text, rows, changed) in enumerate(parts or [("", 0, 0)], 1):
            more = number < len(parts)
            data = f'{head}{text}],"more":{"true" if more else "false"}}}'
            result.append(StreamEvent(None if more else commit.id, kind, data, rows, changed))
        return tuple(result)

    def _bounded(
        self, batches: Iterable[pa.RecordBatch], subject: str, most: int
    ) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            if rows > most:
                raise self._too_large(subject)
            yield batch

    def _split(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        row_bytes = max(1, _TEXT_PER_ARROW * batch.nbytes // max(1, batch.num_rows))
        rows = min(self._settings.part_rows, self._settings.part_bytes // row_bytes)
        yield from slices(batch, max(1, rows))

    def _encoded(self, batch: pa.RecordBatch) -> tuple[str, int, int]:
        """The rows as JSON objects, separated by commas; their number; how many of them changed."""
        if self._stopping():
            raise EncodingStopped
        kinds = batch.column(0).to_pylist()
        names = [ROW_KIND, *unreserved_names(batch.schema.names[1:])]
        text = objects(batch.rename_columns(names)).decode()
        return text, len(kinds), len(kinds) - kinds.count("-U")

    def _too_large(self, subject: str) -> TooLargeError:
        return TooLargeError(
            f"{subject} has more than {self.max_rows:,} rows, the most that a stream sends at "
            "once; give last_id=latest to receive only new changes, and read the existing rows "
            "with GET and a filter"
        )


def row_count(events: Iterable[StreamEvent]) -> int:
    """The number of rows of all events."""
    return sum(event.rows for event in events)
