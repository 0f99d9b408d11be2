"""State that a command keeps in its environment when it restarts itself by `exec`.

It has the times of recent restarts, the cause of the last one, and whether `--from-scratch` is
done.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import MutableMapping

VARIABLE = "STREAMHOUSE_RESTARTS"
MAX_RESTARTS = 5
WITHIN_S = 3600.0
"""Older restarts do not count: a command that ran this long has recovered."""
SOON_S = 120.0
"""A failure for the same cause within this time after a restart is the same failure again."""
_CAUSE = "STREAMHOUSE_RESTART_CAUSE"
_RESET = "STREAMHOUSE_RESET_DONE"


def record_restart(
    environment: MutableMapping[str, str] = os.environ, now: float | None = None
) -> int:
    """Record one more restart; returns how many there were within the last hour, including it.

    `environment` passes their times to the next process, in seconds of the machine's monotonic
    clock, which `exec` does not reset; `now` is such a time, by default the present.
    """
    at = time.monotonic() if now is None else now
    times = [*(restart for restart in _times(environment) if 0 <= at - restart < WITHIN_S), at]
    environment[VARIABLE] = " ".join(f"{restart:.3f}" for restart in times)
    return len(times)


def recent_restarts(
    environment: MutableMapping[str, str] = os.environ, now: float | None = None
) -> int:
    """How many restarts there were within the last hour."""
    at = time.monotonic() if now is None else now
    return sum(0 <= at - restart < WITHIN_S for restart in _times(environment))


def is_same_again(
    cause: str, environment: MutableMapping[str, str] = os.environ, now: float | None = None
) -> bool:
    """Whether the last restart was a moment ago and for this cause."""
    at = time.monotonic() if now is None else now
    soon = any(abs(at - restart) < SOON_S for restart in _times(environment))
    return soon and environment.get(_CAUSE) == _without_nul(cause)


def record_cause(cause: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Record the cause of a restart, for `is_same_again` in the next process."""
    environment[_CAUSE] = _without_nul(cause)


def _without_nul(cause: str) -> str:
    """The cause as an environment variable can have it."""
    return cause.replace("\0", " ")


def _times(environment: MutableMapping[str, str]) -> list[float]:
    times = []
    for word in environment.get(VARIABLE, "").split():
        with contextlib.suppress(ValueError):
            times.append(float(word))
    return times


def note_reset(environment: MutableMapping[str, str] = os.environ) -> None:
    """Record that `--from-scratch` is done, for this process and for what it restarts as."""
    environment[_RESET] = str(os.getpid())


def has_reset(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Whether `--from-scratch` was done before the command restarted itself as this process.

    The process id stays the same across `exec`; child processes have other ones.
    """
    return environment.get(_RESET) == str(os.getpid())
