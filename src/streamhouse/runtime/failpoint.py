"""Places where a test can kill a process: between any two steps of a batch.

`STREAMHOUSE_FAILPOINT=<step>:<batch>[:<table>]` makes the driver SIGKILL itself when it reaches
that step of that batch, or of a later one, of any query (that writes `table`). `task-written` kills
the Python worker of a task that has written its files, on the task's first attempt.
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

DISTINCT_STEP = "distinct-committed"
"""The step after these two commits of a query that counts distinct values."""

LOOKED_UP_STEP = "looked_up-committed"
"""The step between the first two of a query that asks servers for keys."""

TASK_STEP = "task-written"
"""The step of a task, before all of these, after which Spark must repeat the task."""

RESET_STEPS = (
    "reset-marked",
    "target-emptied",
    "side-rows-removed",
    "consumers-dropped",
    "checkpoints-cleared",
    "reset-ended",
)
"""The steps of `--from-scratch`, each reached once in a run, as batch 0; see `runtime.reset`."""

_VARIABLE = "STREAMHOUSE_FAILPOINT"


def reached(step: str, batch: int, table: str) -> None:
    """Die here if the environment says so; `table` is the query's target."""
    asked = os.environ.get(_VARIABLE, "").split(":")
    if asked[0] != step or batch < int(asked[1] if len(asked) > 1 else 0):
        return
    if len(asked) < 3 or asked[2] == table:
        _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
