"""Restarts a command in its own process by `exec`, with state in its environment."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from streamhouse.cli.errors import INTERNAL_ERROR, explain
from streamhouse.errors import StreamhouseError, is_panic

if TYPE_CHECKING:
    from streamhouse.runtime.monitoring.reporter import Reporter


_PROGRAMMING = re.compile(
    r"\b(Attribute|Import|Index|Key|ModuleNotFound|Name|NotImplemented|Syntax|Type|UnboundLocal)"
    r"Error\b"
)
"""Errors in the program itself, which a restart does not cure."""
_ONCE = ("--from-scratch", "--keep-targets")
"""Flags that a restart leaves out once they have had their effect."""


def restart_after(error: BaseException, reporter: Reporter | None, has_reset: bool) -> None:
    """Replace this process by a new one of the same command, if the failure was an internal one.

    Those are the death of Spark's JVM, an internal error of a query, and a panic of Paimon's Rust
    core. A start recovers from all that a crash can leave. `has_reset`: `--from-scratch` is done.
    """
    from streamhouse.runtime.spark.jvm import OUTPUT
    from streamhouse.runtime.spark.session import end_session, jvm_has_exited
    from streamhouse.runtime.streaming.query import QueryFailed

    if jvm_has_exited():
        _restart(reporter, has_reset, "Spark's JVM has died", OUTPUT.last_lines())
    elif isinstance(error, QueryFailed) and explain(error)[1] == INTERNAL_ERROR:
        end_session()
        _restart(reporter, has_reset, "a query has failed", explain(error)[0])
    elif is_panic(error):
        end_session()
        _restart(reporter, has_reset, "Paimon's Rust core has panicked", explain(error)[0])


def _restart(reporter: Reporter | None, has_reset: bool, failure: str, cause: str) -> None:
    """Replace this process by a new one of the same command.

    After more than `MAX_RESTARTS` restarts within an hour, raises `StreamhouseError` instead;
    at once if a restart has just led to the same programming error.
    """
    # An environment variable cannot hold NUL.
    kept, now = cause.replace("\0", " "), time.monotonic()
    soon = any(abs(now - restart) < SOON_S for restart in _times(os.environ))
    if soon and os.environ.get(_CAUSE) == kept and _PROGRAMMING.search(cause):
        raise StreamhouseError(f"{failure}, and again after a restart: {cause}")
    os.environ[_CAUSE] = kept
    count = record_restart()
    if count > MAX_RESTARTS:
        raise StreamhouseError(f"{failure}, {count} times within an hour; the last cause: {cause}")
    message = f"{failure} ({cause or 'without a message'})"
    print(f"notice: {message}; restarting", file=sys.stderr, flush=True)
    if reporter is not None:
        reporter.restarting(message)
    left_out = _ONCE if has_reset else ()
    words = (word for word in sys.orig_argv[1:] if word.replace("_", "-") not in left_out)
    os.execv(sys.executable, [sys.executable, *words])


VARIABLE = "STREAMHOUSE_RESTARTS"
MAX_RESTARTS = 5
WITHIN_S = 3600.0
"""Older restarts do not count: a command that ran this long has recovered."""
SOON_S = 120.0
"""A failure for the same cause within this time after a restart is the same failure again."""
_CAUSE = "STREAMHOUSE_RESTART_CAUSE"


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


def _times(environment: MutableMapping[str, str]) -> list[float]:
    times = []
    for word in environment.get(VARIABLE, "").split():
        with contextlib.suppress(ValueError):
            times.append(float(word))
    return times
