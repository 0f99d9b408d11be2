"""Statistics of the change streams of one served view, for metrics."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class StreamStats:
    """Statistics of the streams of the view `name`, present and past; thread-safe.

    Current values: `subscribers`, `streams` (several if clients select columns), `snapshot` and
    `error` (why polling fails now). `freshness_ms` is the age of the last change when it was ready
    to be sent. The others are counters: `events` and `bytes` encoded (however many clients got
    them), `rows` encoded in changes (an updated row counts once), `state_rows` encoded for initial
    states, `overflows` (subscribers disconnected because they read too slowly), `polls`, `poll_ms`
    (their total duration), and `failures` among them.
    """

    name: str
    subscribers: int = 0
    streams: int = 0
    snapshot: int | None = None
    freshness_ms: int | None = None
    error: str | None = None
    events: int = 0
    rows: int = 0
    state_rows: int = 0
    bytes: int = 0
    overflows: int = 0
    polls: int = 0
    poll_ms: float = 0.0
    failures: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def add(self, **counts: float) -> None:
        """Add to counters, by their names."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)
