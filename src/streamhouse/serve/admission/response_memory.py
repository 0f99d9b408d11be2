"""Limit on the total size of the responses being sent; slow clients are disconnected for it.

docs/decisions/130-requests-and-responses-are-bounded.md says why.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from streamhouse.serve.errors import Problem

SMALL_BYTES = 64 << 10
"""A response of at most so many bytes is never refused: the number of connections limits those."""
_ABORTABLE_AFTER_S = 10.0
"""How long a response may take before it can be aborted to make room for others."""
_RETRY = {"Retry-After": "10"}


@dataclass(eq=False)
class UnsentResponse:
    """One response being sent, of `size` bytes; `abort` closes its connection at once."""

    client: str
    size: int
    abort: Callable[[], None]
    began: float = field(default_factory=time.monotonic)
    sent: int = 0

    @property
    def seconds(self) -> float:
        """How long it has been sent for."""
        return time.monotonic() - self.began

    @property
    def rate(self) -> float:
        """How many bytes a second the client accepts."""
        return self.sent / max(self.seconds, 0.001)


class UnsentResponses:
    """The responses that are not fully sent yet, on disk or in memory.

    Their total size is at most `max_bytes`, and half of that per client; a single response may
    exceed either. To make room, responses that have taken more than ten seconds are aborted: first
    the slowest of the client with the most bytes being sent.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._responses: set[UnsentResponse] = set()
        self.total_bytes = 0
        self.aborted = 0

    @property
    def count(self) -> int:
        """The number of responses being sent."""
        return len(self._responses)

    def begin(self, client: str, size: int, abort: Callable[[], None]) -> UnsentResponse:
        """Add a response; `Problem` busy if there is no room for it."""
        if size > SMALL_BYTES:
            self.make_room(client, size)
        response = UnsentResponse(client, size, abort)
        self._responses.add(response)
        self.total_bytes += size
        return response

    def finish(self, response: UnsentResponse) -> None:
        """Remove a response that was sent or aborted."""
        if response in self._responses:
            self._responses.remove(response)
            self.total_bytes -= response.size

    def abort_stalled(self, response: UnsentResponse) -> None:
        """Abort a response whose client is too slow, and count it in `aborted`."""
        self.aborted += 1
        self.finish(response)
        response.abort()

    def make_room(self, client: str, size: int = 0) -> None:
        """Make room for `size` more bytes of a client; `Problem` busy if that is impossible."""
        while (own_bytes := self._bytes_of(client)) and own_bytes + size > self._max_bytes // 2:
            if not self._abort_slowest(client):
                raise Problem(
                    "busy",
                    f"{own_bytes >> 20:,} MiB of responses are being sent to you; read them, or "
                    "close their connections, then try again",
                    _RETRY,
                )
        while self._responses and self.total_bytes + size > self._max_bytes:
            if not self._abort_slowest():
                raise Problem(
                    "busy",
                    f"{self.total_bytes >> 20:,} MiB of responses are being sent, of at most "
                    f"{self._max_bytes >> 20:,} MiB; try again later, or start the server with a "
                    "higher --answers",
                    _RETRY,
                )

    def _bytes_of(self, client: str) -> int:
        return sum(response.size for response in self._responses if response.client == client)

    def _abort_slowest(self, client: str | None = None) -> bool:
        """Abort the slowest response, of one client or of any; False if none is old enough."""
        slow = [
            response
            for response in self._responses
            if response.seconds > _ABORTABLE_AFTER_S and client in (None, response.client)
        ]
        if slow:
            self.abort_stalled(
                max(slow, key=lambda response: (self._bytes_of(response.client), -response.rate))
            )
        return bool(slow)
