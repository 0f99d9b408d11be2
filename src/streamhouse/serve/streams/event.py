"""What readers of a stream are sent, written once for all of them.

An event is one JSON object. As a server-sent event it is the block's `data`, with the id and the
kind in lines of their own; as a WebSocket message both are keys of the object.
"""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamhouse.serve.formats.json_rows import compact

SNAPSHOT = "snapshot"
CHANGES = "changes"
HEARTBEAT = "heartbeat"
OVERFLOW = "overflow"
OVERHEAD = 512
"""Bytes that an event takes besides its text, about."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_STAMP_BYTES = 4


@dataclass(frozen=True)
class Moment:
    """A table as it was after one snapshot: a place from which a stream can go on.

    `snapshot` is 0, and `time_ms` too, for a table without snapshots. `stamp` tells the snapshot
    from another of its number, in a table that was made again or rolled back.
    """

    snapshot: int
    time_ms: int
    stamp: str

    @classmethod
    def of(cls, incarnation: str, snapshot: int, time_ms: int) -> Moment:
        """The moment of a snapshot; the same in every process for the same commit."""
        text = f"{incarnation}\n{snapshot}\n{time_ms}".encode()
        return cls(snapshot, time_ms, base36(text))

    @property
    def id(self) -> str:
        """What readers give back to go on from here."""
        return f"{self.snapshot}-{self.stamp}"

    @property
    def fields(self) -> dict[str, Any]:
        """The moment as readers see it; null for a table without snapshots."""
        if not self.snapshot:
            return {"snapshot": None, "time": None}
        return {"snapshot": self.snapshot, "time": iso(self.time_ms)}


@dataclass(frozen=True)
class Event:
    """One message to all readers of a stream.

    `kind` is `snapshot`, `changes`, `heartbeat` or `overflow`. `id` is None for a part that is
    followed by more, from which nobody can go on. `data` is the JSON object.
    """

    id: str | None
    kind: str
    snapshot: int
    time_ms: int
    data: str

    @cached_property
    def sse(self) -> bytes:
        """The block of a server-sent event, with the empty line that ends it."""
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
        """Bytes of memory, about: the object, and what is sent of it."""
        return 2 * len(self.data) + OVERHEAD


def heartbeat(moment: Moment) -> Event:
    """Tells a reader that nothing came after the moment."""
    data = compact(moment.fields)
    return Event(moment.id, HEARTBEAT, moment.snapshot, moment.time_ms, data)


def overflow(message: str, last_id: str | None) -> Event:
    """Tells a reader that it was too slow; nothing follows."""
    return Event(None, OVERFLOW, 0, 0, compact({"message": message, "last_id": last_id}))


def base36(text: bytes) -> str:
    """A short digest, of digits and small letters."""
    digest = hashlib.blake2b(text, digest_size=_STAMP_BYTES).digest()
    number, found = int.from_bytes(digest, "big"), ""
    while number or not found:
        number, digit = divmod(number, len(_DIGITS))
        found = _DIGITS[digit] + found
    return found


def iso(time_ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC, with milliseconds."""
    moment = datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{time_ms % 1000:03d}Z"
