"""The events of a change stream: encoded once for all subscribers, from chunks of JSON text.

An event is one JSON object. As a server-sent event it is the `data`, with `id` and `event` (its
kind) in lines of their own; as a WebSocket message the object has the keys `id` and `type`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from streamhouse.errors import TooLargeError
from streamhouse.serve.feeds.feed import Feed, as_inserts
from streamhouse.serve.feeds.table_feed import TableFeed
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
    rolled back (docs/decisions/061-event-ids-name-a-commit.md).
    """

    snapshot: int
    time_ms: int
    stamp: str

    @classmethod
    def of(cls, incarnation: str, snapshot: int, time_ms: int) -> StreamPosition:
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
    JSON object.
    """

    id: str | None
    kind: str
    snapshot: int
    time_ms: int
    data: str

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
    data = compact(commit.fields)
    return StreamEvent(commit.id, HEARTBEAT, commit.snapshot, commit.time_ms, data)


def overflow(message: str, last_id: str | None) -> StreamEvent:
    """The last event of a subscriber that was too slow."""
    return StreamEvent(None, OVERFLOW, 0, 0, compact({"message": message, "last_id": last_id}))


def short_digest(text: bytes) -> str:
    """A digest of 32 bits in base 36: digits and lower-case letters."""
    digest = hashlib.blake2b(text, digest_size=_STAMP_BYTES).digest()
    number, digits = int.from_bytes(digest, "big"), ""
    while number or not digits:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


@dataclass(frozen=True)
class EncodedRows:
    """Some rows as JSON objects, separated by commas.

    `rows` counts all of them. `changed` counts an updated row once, although it occurs as -U and
    as +U.
    """

    text: str
    rows: int
    changed: int


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

    def chunks(
        self, batches: Iterable[pa.RecordBatch], subject: str, max_rows: int | None = None
    ) -> tuple[EncodedRows, ...]:
        """Encode batches, which have a leading `rowkind` column, as chunks.

        Raises `TooLargeError`, whose message begins with `subject` (such as `the first snapshot of
        shop.orders`), for more than `max_rows` rows, by default those of the settings.
        """
        max_rows = self.max_rows if max_rows is None else max_rows
        chunks, rows = [], 0
        for batch in batches:
            rows += batch.num_rows
            if rows > max_rows:
                raise too_large(subject, max_rows)
            for part in self._split(batch):
                if self._stopping():
                    raise EncodingStopped
                chunks.append(_chunk(part))
        return tuple(chunks)

    def state_chunks(self, feed: Feed, snapshot: int) -> tuple[EncodedRows, ...]:
        """All rows of a feed as `+I`: those it keeps, else those of its table as of `snapshot`.

        Raises `TooLargeError` for too many rows, `DataLossError` if the snapshot has expired.
        """
        if feed.rows is not None:
            return self.memory_chunks(feed.rows)
        if not isinstance(feed, TableFeed) or not snapshot:
            return ()
        shown, columns = feed.shown, feed.schema.names
        if (shown.table.snapshot(snapshot).total_record_count or 0) > self.max_rows:
            raise too_large(self._first_snapshot, self.max_rows)
        batches = shown.read(columns, snapshot=snapshot)
        inserts = (as_inserts(batch.select(columns)) for batch in batches)
        return self.chunks(inserts, self._first_snapshot)

    def memory_chunks(self, rows: pa.Table) -> tuple[EncodedRows, ...]:
        """As `state_chunks`, for rows that are in memory."""
        if rows.num_rows > self.max_rows:
            raise too_large(self._first_snapshot, self.max_rows)
        return self.chunks(as_inserts(rows).to_batches(), self._first_snapshot)

    def events(
        self, kind: str, commit: StreamPosition, chunks: Sequence[EncodedRows]
    ) -> tuple[StreamEvent, ...]:
        """One event with these rows, split into parts if it is large.

        Only the last part has an id, that of the commit.
        """
        head = compact(commit.fields)[:-1] + ',"rows":['
        texts = list(self._parts(chunks)) or [""]
        result = []
        for number, text in enumerate(texts, 1):
            more = number < len(texts)
            data = f'{head}{text}],"more":{"true" if more else "false"}}}'
            event_id = None if more else commit.id
            result.append(StreamEvent(event_id, kind, commit.snapshot, commit.time_ms, data))
        return tuple(result)

    @property
    def _first_snapshot(self) -> str:
        return f"the first snapshot of {self.name}"

    def _split(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not batch.num_rows:
            return
        row_bytes = max(1, _TEXT_PER_ARROW * batch.nbytes // batch.num_rows)
        rows = min(self._settings.part_rows, self._settings.part_bytes // row_bytes)
        yield from slices(batch, max(1, rows))

    def _parts(self, chunks: Sequence[EncodedRows]) -> Iterator[str]:
        """Join small chunks into parts of at most about `part_rows` rows and `part_bytes`."""
        max_rows, max_bytes = self._settings.part_rows, self._settings.part_bytes
        texts: list[str] = []
        rows = size = 0
        for chunk in chunks:
            full = rows + chunk.rows > max_rows or size + len(chunk.text) > max_bytes
            if texts and full:
                yield ",".join(texts)
                texts, rows, size = [], 0, 0
            texts.append(chunk.text)
            rows, size = rows + chunk.rows, size + len(chunk.text)
        if texts:
            yield ",".join(texts)


def too_large(subject: str, max_rows: int) -> TooLargeError:
    """The error for more rows than a stream may send at once."""
    return TooLargeError(
        f"{subject} has more than {max_rows:,} rows, the most that a stream sends at once; give "
        "last_id=latest to receive only new changes, and read the existing rows with GET and a "
        "filter"
    )


def row_count(chunks: Iterable[EncodedRows]) -> int:
    return sum(chunk.rows for chunk in chunks)


def _chunk(batch: pa.RecordBatch) -> EncodedRows:
    kinds = batch.column(0).to_pylist()
    names = [ROW_KIND, *unreserved_names(batch.schema.names[1:])]
    text = objects(batch.rename_columns(names)).decode()
    return EncodedRows(text, len(kinds), len(kinds) - kinds.count("-U"))
