"""Failpoints: steps of a micro-batch at which a test can kill a process.

`STREAMHOUSE_FAILPOINT=<step>:<batch>[:<table>]` makes the driver SIGKILL itself when it reaches
that step of that batch, or of a later one, of any query (with `table`: of a query that writes this
table). `task-written` kills the Python worker of a task that has written its files, on the task's
first attempt.
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
"""The steps of a batch, in order; a crash after any of them must not change the results."""

LOOKUP_JOURNAL_STEP = "looked_up-committed"
"""The step between `batch-written` and `target-committed`, in a query with lookups on servers."""

SYNC_STEP = "table-committed"
"""The step after the commit to one of the tables of a sync, in any order of the tables."""

TABLE_STEP = "table-created"
"""The step of a sync after it has created a table, before a table set has it; its number is always
0."""

ALTERED_STEP = "target-altered"
"""The step of a sync's planner after it has altered a table, before the batch exists; its number is
always 0."""

TASK_STEP = "task-written"
"""The step of a task, before `batch-written`; Spark must retry a task that dies after it."""

RESET_STEPS = (
    "reset-marked",
    "target-emptied",
    "side-rows-removed",
    "consumers-dropped",
    "checkpoints-cleared",
    "reset-ended",
)
"""The steps of `--from-scratch`, all reached as batch 0; see `runtime.reset`."""

_VARIABLE = "STREAMHOUSE_FAILPOINT"


def reached(step: str, batch: int, table: str) -> None:
    """SIGKILL this process if the failpoint is set for this step; `table` is the query's target."""
    parts = os.environ.get(_VARIABLE, "").split(":")
    if parts[0] != step or batch < int(parts[1] if len(parts) > 1 else 0):
        return
    if len(parts) < 3 or parts[2] == table:
        _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
