"""Failpoints: steps of a micro-batch at which a test can kill a process.

`STREAMHOUSE_FAILPOINT=<step>:<batch>[:<table>]` makes the driver SIGKILL itself when it reaches
that step of that batch, or of a later one, of any query (with `table`: of a query that writes this
table). `task-written` kills the Python worker of a task that has written its files, on the task's
first attempt. Steps outside of batches have the number 0.
"""

import os
import signal

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
