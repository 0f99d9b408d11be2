"""A monotonic clock that the test moves."""

from __future__ import annotations


class Clock:
    """Called for the time in seconds, which is `now`."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
