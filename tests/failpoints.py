"""The steps at which a test can kill a process, by `STREAMHOUSE_FAILPOINT`."""

from __future__ import annotations

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
