"""Answers on their way to readers: how many bytes they may be in sum, and who gives way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from streamhouse.serve.errors import Problem

SMALL_BYTES = 64 << 10
"""An answer of so many bytes is never refused: of connections there are not too many."""
_PATIENCE_S = 10.0
"""How long a reader is left alone that takes its answer more slowly than others want room."""
_RETRY = {"Retry-After": "10"}


@dataclass(eq=False)
class Delivery:
    """One answer on its way; `end` cuts its connection."""

    client: str
    size: int
    end: Callable[[], None]
    began: float = field(default_factory=time.monotonic)
    sent: int = 0

    @property
    def seconds(self) -> float:
        """How long it has been on its way."""
        return time.monotonic() - self.began

    @property
    def rate(self) -> float:
        """Bytes a second that its reader takes."""
        return self.sent / max(self.seconds, 0.001)


class Outgoing:
    """The answers that readers have not taken as a whole; they lie on the disk, or in memory.

    They are at most `most` bytes in sum, and of one client at most half of that, unless it is one
    answer. Where there is no room, readers that have had ten seconds are cut off: of the client
    that has most on its way the slowest first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._deliveries: set[Delivery] = set()
        self.held = 0
        self.cut = 0

    @property
    def count(self) -> int:
        """How many answers are on their way."""
        return len(self._deliveries)

    def begin(self, client: str, size: int, end: Callable[[], None]) -> Delivery:
        """Note an answer; `Problem` busy if there is no room for it."""
        if size > SMALL_BYTES:
            self.make_room(client, size)
        delivery = Delivery(client, size, end)
        self._deliveries.add(delivery)
        self.held += size
        return delivery

    def finish(self, delivery: Delivery) -> None:
        """Note that an answer has been sent, or its connection cut."""
        if delivery in self._deliveries:
            self._deliveries.remove(delivery)
            self.held -= delivery.size

    def stalled(self, delivery: Delivery) -> None:
        """Cut off a reader that has taken nothing for too long."""
        self.cut += 1
        self.finish(delivery)
        delivery.end()

    def make_room(self, client: str, size: int = 0) -> None:
        """Have room for so much more of a client's; `Problem` busy if that cannot be."""
        while (own := self._of(client)) and own + size > self._most // 2:
            if not self._cut_slowest(client):
                raise Problem(
                    "busy",
                    f"{own >> 20:,} MiB of answers are on their way to you; read them, or close "
                    "their connections, then ask again",
                    _RETRY,
                )
        while self._deliveries and self.held + size > self._most:
            if not self._cut_slowest():
                raise Problem(
                    "busy",
                    f"{self.held >> 20:,} MiB of answers are on their way to readers, of at most "
                    f"{self._most >> 20:,} MiB; ask again in a moment, or start the server with "
                    "more --answers",
                    _RETRY,
                )

    def _of(self, client: str) -> int:
        return sum(one.size for one in self._deliveries if one.client == client)

    def _cut_slowest(self, client: str | None = None) -> bool:
        """Cut off a reader, of one client or of any; whether there was one that had its time."""
        slow = [
            one
            for one in self._deliveries
            if one.seconds > _PATIENCE_S and client in (None, one.client)
        ]
        if slow:
            self.stalled(max(slow, key=lambda one: (self._of(one.client), -one.rate)))
        return bool(slow)
