"""Rate limit per client, by token buckets."""

from __future__ import annotations

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
