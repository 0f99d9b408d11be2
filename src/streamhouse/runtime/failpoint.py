"""Places where a test can kill the driver: between any two steps of a batch.

`STREAMHOUSE_FAILPOINT=<step>:<batch>` makes the driver SIGKILL itself when it reaches that step of
that batch, or of a later one, of any query.
"""

from __future__ import annotations

import os
import signal

STEPS = (
    "batch-written",
    "target-committed",
    "unmatched-committed",
    "pending-committed",
    "lineage-written",
)
"""The steps of a batch, in order, after each of which a crash must change nothing."""

_VARIABLE = "STREAMHOUSE_FAILPOINT"


def reached(step: str, batch: int) -> None:
    """Die here if the environment says so."""
    asked = os.environ.get(_VARIABLE)
    if asked and asked.partition(":")[0] == step and batch >= int(asked.partition(":")[2] or 0):
        os.kill(os.getpid(), signal.SIGKILL)
