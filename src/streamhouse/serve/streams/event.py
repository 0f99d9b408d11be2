"""The events of a change stream, encoded once for all subscribers.

An event is one JSON object. As a server-sent event it is the `data`, with `id` and `event` (its
kind) in lines of their own; as a WebSocket message the object has the keys `id` and `type`.
"""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamhouse.serve.formats.cells import compact

SNAPSHOT = "snapshot"
CHANGES = "changes"
HEARTBEAT = "heartbeat"
OVERFLOW = "overflow"
OVERHEAD = 512
"""Approximate memory of an event besides its text, in bytes."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_STAMP_BYTES = 4


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


def iso(time_ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC, with milliseconds."""
    commit = datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC)
    return commit.strftime("%Y-%m-%dT%H:%M:%S") + f".{time_ms % 1000:03d}Z"
