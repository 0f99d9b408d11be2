"""Restarts the command in its own process after an internal failure."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from streamhouse.cli import restart_state
from streamhouse.cli.errors import INTERNAL_ERROR, explain
from streamhouse.errors import StreamhouseError, is_panic

if TYPE_CHECKING:
    from streamhouse.runtime.monitoring.reporter import Reporter


_PROGRAMMING = re.compile(
    r"\b(Attribute|Import|Index|Key|ModuleNotFound|Name|NotImplemented|Syntax|Type|UnboundLocal)"
    r"Error\b"
)
"""Errors in the program itself, which a restart does not cure."""


def restart_after(error: BaseException, reporter: Reporter | None) -> None:
    """Replace this process by a new one of the same command, if the failure was an internal one.

    Those are the death of Spark's JVM, an internal error of a query, and a panic of Paimon's Rust
    core. A start recovers from all that a crash can leave.
    """
    from streamhouse.runtime.spark.jvm_output import OUTPUT
    from streamhouse.runtime.spark.session import end_session, jvm_has_exited
    from streamhouse.runtime.streaming.query import QueryFailed

    if jvm_has_exited():
        _restart(reporter, "Spark's JVM has died", OUTPUT.last_lines())
    elif isinstance(error, QueryFailed) and explain(error)[1] == INTERNAL_ERROR:
        end_session()
        _restart(reporter, "a query has failed", explain(error)[0])
    elif is_panic(error):
        end_session()
        _restart(reporter, "Paimon's Rust core has panicked", explain(error)[0])


def _restart(reporter: Reporter | None, failure: str, cause: str) -> None:
    """Replace this process by a new one of the same command.

    After more than `restart_state.MAX_RESTARTS` restarts within an hour, raises `StreamhouseError`
    instead; at once if a restart has just led to the same programming error.
    """
    if restart_state.is_same_again(cause) and _PROGRAMMING.search(cause):
        raise StreamhouseError(f"{failure}, and again after a restart: {cause}")
    restart_state.record_cause(cause)
    count = restart_state.record_restart()
    if count > restart_state.MAX_RESTARTS:
        raise StreamhouseError(f"{failure}, {count} times within an hour; the last cause: {cause}")
    message = f"{failure} ({cause or 'without a message'})"
    print(f"notice: {message}; restarting", file=sys.stderr, flush=True)
    if reporter is not None:
        reporter.restarting(message)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
