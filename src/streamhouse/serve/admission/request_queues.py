"""The queues of requests that read the warehouse, and the rate limits of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from streamhouse.serve.admission.fair_queue import FairQueue
from streamhouse.serve.admission.view_computations import ViewComputations

if TYPE_CHECKING:
    from streamhouse.serve.settings import ServerSettings
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

BURST_S = 10.0
_CLIENTS = 10_000


@dataclass
class _Bucket:
    tokens: float
    at: float


class RateLimiter:
    """A token bucket for each client, refilled with `rate` requests a second; 0: unlimited.

    The bucket holds ten seconds' worth of requests, the largest burst. Only the 10,000 most recent
    clients are kept; any other starts with a full bucket.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * BURST_S)
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, client: str) -> float:
        """Count a request; 0 if it is allowed, else after how many seconds the next one is."""
        if not self._rate:
            return 0.0
        now = self._clock()
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = _Bucket(self._capacity, now)
            if len(self._buckets) > _CLIENTS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(client)
        bucket.tokens = min(self._capacity, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / self._rate
        bucket.tokens -= 1
        return 0.0


CLIENT = "streamhouse.client"
"""Key in the ASGI scope of a request: its client, which is a token or else an address."""
READERS = 4
WAIT_S = 10.0
"""How long a request waits for a thread."""
_WAITING = 256
_QUERIES_WAITING = 64
_SCRIPTS_WAITING = 32


class RequestQueues:
    """The queues of one server.

    `small` is for short reads, which run in threads of the server. `heavy` is for queries and large
    responses, which run in worker processes. While all slots of `heavy` are taken, `light` lets one
    more query run for a second, in case it is short. `scripts` is for checking scripts. `views` has
    slots for the computations of views for change streams.
    """

    def __init__(self, settings: ServerSettings) -> None:
        shared = len(settings.tokens) > 1
        self.small = FairQueue("reads", READERS, _WAITING, shared)
        self.light = FairQueue("short queries", 1, _QUERIES_WAITING)
        self.heavy = FairQueue("queries", settings.queries, _QUERIES_WAITING, shared)
        self.scripts = FairQueue("checks of scripts", 1, _SCRIPTS_WAITING)
        streams = settings.streams.max_streams
        self.views = ViewComputations(
            FairQueue("short computations of streamed views", READERS, streams, shared),
            FairQueue("computations of streamed views", settings.queries, streams, shared),
        )

    @property
    def all(self) -> tuple[FairQueue, ...]:
        views = self.views
        return self.small, self.light, self.heavy, self.scripts, views.short, views.long


def client_of(connection: HTTPConnection) -> str:
    """The client by which requests are queued: a known token, else an address."""
    client: str = connection.scope.get(CLIENT, "")
    return client
