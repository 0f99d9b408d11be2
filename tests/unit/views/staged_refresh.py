"""Runs staged refreshes of a view in this process, as Spark does: task by task, level by level."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamhouse.connectors.base import WrittenBatch
from streamhouse.runtime.streaming.spark_job import records
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.runtime.views.staged.planning import STAGED, inputs_of, staged_tree
from streamhouse.runtime.views.task import run
from streamhouse.source import Offset


def staged_results(
    spec: ViewSpec, end: Offset, count: int, rng: random.Random
) -> list[pa.RecordBatch]:
    """The rows of `RESULT` of a refresh by `count` tasks of each level, some of which run twice.

    Rows of tasks reach their receivers in any order.
    """
    tasks: list[Any] = [ViewPlanner(spec).tasks({}, end)]
    last = staged_tree(spec.plan).last
    tasks += (inputs_of(spec, {}, end, count, level) for level in range(1, last + 1))
    results: list[pa.RecordBatch] = []
    for inputs in tasks:
        received, results = list(records(results)), []
        for task in inputs:
            own = [row for row in received if row["task"] == task.index]
            for _ in range(rng.choice((1, 1, 2))):
                rng.shuffle(own)
                made = list(run(spec, task, own))
            results += made
    return results


def staged_refresh(spec: ViewSpec, rng: random.Random, count: int = 3) -> Counter[str]:
    """Refresh a view by `count` tasks of each level; returns the number of changes by row kind."""
    end = {"batch": 0, "now": time.time_ns() // 1_000_000, **ViewPlanner(spec).newest({})}
    rows = staged_results(spec, end | {STAGED: count}, count, rng)
    return committed(spec, rows)


def committed(spec: ViewSpec, rows: Sequence[pa.RecordBatch]) -> Counter[str]:
    """Commit what the tasks of a batch have written."""
    made = list(records(rows))
    messages = [record["message"] for record in made if record["table"] is not None]
    reports = [json.loads(record["report"]) for record in made if record["table"] is None]
    spec.open_sink().committer(spec.query_id).commit(
        lambda: WrittenBatch(0, messages), lambda: None
    )
    return sum((Counter(report["changes"]) for report in reports), Counter[str]())
