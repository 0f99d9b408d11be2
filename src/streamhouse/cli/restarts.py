"""How often a command has lately become a fresh process of itself; told by its environment."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import MutableMapping

VARIABLE = "STREAMHOUSE_RESTARTS"
MOST = 5
WITHIN_S = 3600.0
"""Restarts that lie longer back are forgotten: what goes well for so long has been mended."""


def count(environment: MutableMapping[str, str] = os.environ, now: float | None = None) -> int:
    """Note one more restart; how many there were within the last hour, this one included.

    `environment` has their times for the process that comes, in seconds of the machine's
    monotonic clock, which goes on through `exec`; `now` is such a time, by default the present.
    """
    at = time.monotonic() if now is None else now
    times = [*(one for one in _noted(environment) if 0 <= at - one < WITHIN_S), at]
    environment[VARIABLE] = " ".join(f"{one:.3f}" for one in times)
    return len(times)


def lately(environment: MutableMapping[str, str] = os.environ, now: float | None = None) -> int:
    """How many restarts there were within the last hour."""
    at = time.monotonic() if now is None else now
    return sum(0 <= at - one < WITHIN_S for one in _noted(environment))


def _noted(environment: MutableMapping[str, str]) -> list[float]:
    times = []
    for word in environment.get(VARIABLE, "").split():
        with contextlib.suppress(ValueError):
            times.append(float(word))
    return times
