"""What the tasks of a batch return to the driver."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from streamhouse.runtime.streaming.tasks.task_input import TaskInput

RESULT = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("message", pa.binary()),
        pa.field("message_file", pa.string()),
        pa.field("report", pa.string()),
    ]
)
"""What a task returns to the driver: commit messages of its tables, then one report (JSON), which
has no table. Instead of a large message, a row may have the path of a file that has it
(`runtime.streaming.tasks.message_files`)."""


@dataclass(frozen=True)
class TaskAttempt:
    """One run of a task: `id` is in the names of its files; `repeated`: Spark has retried it."""

    id: str
    repeated: bool

    @classmethod
    def current(cls) -> TaskAttempt:
        """The attempt that runs in this thread."""
        context = TaskContext.get()
        return cls(uuid.uuid4().hex[:12], context is not None and context.attemptNumber() > 0)


def results(
    task: TaskInput,
    attempt: TaskAttempt,
    messages: Iterable[tuple[str, bytes]],
    counts: Mapping[str, Any],
) -> pa.RecordBatch:
    """The messages of tables and the task's report, as rows of `RESULT`.

    The report has the attempt, the offsets of the batch, and `counts`.
    """
    report = {
        "attempt": attempt.id,
        "repeated": attempt.repeated,
        "start": task.start,
        "end": task.end,
        **counts,
    }
    records: list[dict[str, Any]] = [{"table": t, "message": m} for t, m in messages]
    records.append({"report": json.dumps(report)})
    return pa.RecordBatch.from_pylist(records, schema=RESULT)
