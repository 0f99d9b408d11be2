"""What a command that becomes a fresh process of itself tells that one, by its environment.

That is how often it has done so lately, and whether `--from-scratch` is done.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import MutableMapping

VARIABLE = "STREAMHOUSE_RESTARTS"
MOST = 5
WITHIN_S = 3600.0
"""Restarts that lie longer back are forgotten: what goes well for so long has been mended."""
_RESET = "STREAMHOUSE_RESET_DONE"


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


def note_reset(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have this process, whatever it becomes, know that its queries have begun anew."""
    environment[_RESET] = str(os.getpid())


def has_reset(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Whether the command has had its queries begin anew before it became this process.

    Its number stays the same through `exec`, and is another in processes that it starts.
    """
    return environment.get(_RESET) == str(os.getpid())
