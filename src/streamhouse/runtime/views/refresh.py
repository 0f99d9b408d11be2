"""Refreshes a view once, in this process: for REFRESH, and for views with REFRESH_MODE = FULL."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import replace

from streamhouse.connectors.base import WrittenBatch
from streamhouse.runtime.batch.progress_line import progress
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.runtime.views.task import RefreshTask
from streamhouse.source import Offset


def refresh(spec: ViewSpec, end: Offset | None = None) -> int:
    """Compute a view from the newest rows of its inputs, or those of the offset `end`.

    Returns the number of changes.
    """
    return changes_of_refresh(spec, end).total()


def changes_of_refresh(spec: ViewSpec, end: Offset | None = None) -> Counter[str]:
    """As `refresh`, but returns the changes by row kind."""
    spec, planner = replace(spec, query_id=str(uuid.uuid4())), ViewPlanner(spec)
    if end is None:
        end = {"batch": 0, "now": time.time_ns() // 1_000_000, **planner.newest({})}
    with progress() as line:
        line.part(f"refreshing {spec.target.identifier}", planner.rows_left({}))
        task = RefreshTask(spec, TaskInput(0, {}, end), line.reached)

        def write() -> WrittenBatch:
            return WrittenBatch(0, [bytes(message) for message in task.write()])

        spec.open_sink().committer(spec.query_id).commit(write, lambda: None)
    return task.changes
