"""What the tasks of a batch return to the driver."""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema

from streamhouse.connectors.base import Message, SinkWriter
from streamhouse.runtime.failpoint import reached
from streamhouse.runtime.streaming.spark_data_source import RESULT_TYPE
from streamhouse.runtime.streaming.tasks.row_files import (
    RowFiles,
    from_ipc,
    read_and_delete,
    to_ipc,
)
from streamhouse.runtime.streaming.tasks.task_input import TaskInput

LARGE_BYTES = 256 << 10
"""Rows of this size and more go to the driver in a file, or compressed."""
RESULT: pa.Schema = to_arrow_schema(RESULT_TYPE)
"""What a task returns to the driver: commit messages of its tables, then one report (JSON), which
has no table. A message is bytes in `message`, or rows: in `rows` as Arrow IPC, or in a file. In a
shuffle, tasks also return blocks of rows, and reports, for another task, the number `task`."""


@dataclass(frozen=True)
class TaskAttempt:
    """One run of a task: `id` is in the names of its files; `repeated`: Spark has retried it."""

    id: str
    repeated: bool

    @classmethod
    def current(cls) -> Self:
        """The attempt that runs in this thread."""
        context = TaskContext.get()
        return cls(uuid.uuid4().hex[:12], context is not None and context.attemptNumber() > 0)


def written(opened: Callable[[], SinkWriter], tables: Iterable[pa.Table]) -> list[Message]:
    """Write tables, by a writer that is opened for the first row; returns its commit messages."""
    writer: SinkWriter | None = None
    try:
        for part in (part for table in tables for part in table.combine_chunks().to_batches()):
            if part.num_rows:
                writer = writer or opened()
                writer.write(part)
        return [] if writer is None else list(writer.prepare())
    finally:
        if writer is not None:
            writer.close()


def results(
    task: TaskInput,
    attempt: TaskAttempt,
    target: str,
    messages: Iterable[tuple[str, Message]],
    counts: Mapping[str, Any],
    files: RowFiles | None = None,
) -> pa.RecordBatch:
    """The messages of tables and the task's report, as rows of `RESULT`.

    The report has the attempt, the offsets of the batch, and `counts`. `target`: the name of what
    the query writes. `files` are for large messages.
    """
    if not attempt.repeated:
        reached("task-written", task.batch, target)
    report = {
        "attempt": attempt.id,
        "repeated": attempt.repeated,
        "start": task.start,
        "end": task.end,
        **counts,
    }
    records = [{"table": table, **_record(message, files)} for table, message in messages]
    records.append({"report": json.dumps(report)})
    return pa.RecordBatch.from_pylist(records, schema=RESULT)


def _record(message: Message, files: RowFiles | None) -> dict[str, bytes | str]:
    if isinstance(message, bytes):
        return {"message": message}
    if message.nbytes < LARGE_BYTES:
        return {"rows": to_ipc(message)}
    file = None if files is None else files.write(message)
    if file is not None:
        return {"rows_file": str(file)}
    # Spark takes longer to pass rows on than LZ4 takes to compress them.
    return {"rows": to_ipc(message, "lz4")}


def message_of(record: Row) -> Message:
    """The message in a row of `RESULT`; deletes its file. On the driver."""
    if record["rows_file"] is not None:
        return read_and_delete(record["rows_file"])
    if record["rows"] is not None:
        return from_ipc(bytes(record["rows"]))
    return bytes(record["message"])
