"""What passes between the driver and the tasks of a batch: what each reads, and what it returns.

Tasks send rows to each other as Arrow IPC, and to the driver of their machine in files. Spark
copies a result several times: pickled, compressed into its block store, and to the driver. A sink
whose driver writes the rows passes megabytes.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa
from pyspark import TaskContext

from streamhouse.connectors.base import Message, SinkWriter
from streamhouse.machine import machine
from streamhouse.runtime.failpoint import reached
from streamhouse.runtime.streaming.tasks.task_input import TaskInput

LARGE_BYTES = 256 << 10
"""Rows of this size and more go to the driver in a file, or compressed."""
RESULT = pa.schema(
    {
        "table": pa.string(),
        "message": pa.binary(),
        "rows": pa.binary(),
        "rows_file": pa.string(),
        "report": pa.string(),
        "task": pa.int32(),
        "first_row": pa.int64(),
        "block": pa.binary(),
    }
)
"""What a task returns to the driver: commit messages of its tables, then one report (JSON), which
has no table. A message is bytes in `message`, or rows: in `rows` as Arrow IPC, or in a file. In a
shuffle, tasks also return blocks of rows, and reports, for another task, the number `task`."""


@dataclass(frozen=True)
class RowFiles:
    """The run folder of a query as its driver sees it; picklable."""

    folder: Path
    identity: tuple[str, int, int, int]
    """The driver's machine and user, and the device and inode of the folder."""

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Files in a folder that exists; on the driver."""
        return cls(folder, _identity(folder))

    def write(self, rows: pa.Table) -> Path | None:
        """The file with the rows; on executors.

        None if the task cannot write where the driver reads, or the disk takes no file.
        """
        path = self.folder / f"{uuid.uuid4().hex}.rows"
        try:
            if _identity(self.folder) != self.identity:
                return None
            with pa.OSFile(str(path), "wb") as file:
                write_ipc(rows, file)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return path


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


def message_of(record: Mapping[str, Any]) -> Message:
    """The message in a row of `RESULT`; deletes its file. On the driver."""
    if record["rows_file"] is not None:
        return read_and_delete(record["rows_file"])
    if record["rows"] is not None:
        return from_ipc(bytes(record["rows"]))
    return bytes(record["message"])


def _identity(folder: Path) -> tuple[str, int, int, int]:
    found = os.stat(folder)
    return machine(), os.geteuid(), found.st_dev, found.st_ino


def read_and_delete(path: str) -> pa.Table:
    """The rows in a file, which is deleted; on the driver.

    They are mapped into memory, not read: the disk has them until the table is deleted.
    """
    rows = from_ipc(pa.memory_map(path))
    os.unlink(path)
    return rows


def to_ipc(rows: pa.Table, compression: Literal["lz4"] | None = None) -> bytes:
    """The table as one stream."""
    buffer = pa.BufferOutputStream()
    write_ipc(rows, buffer, compression)
    return bytes(buffer.getvalue())


def write_ipc(rows: pa.Table, to: pa.NativeFile, compression: Literal["lz4"] | None = None) -> None:
    """Write the table as one stream into an open file."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(to, rows.schema, options=options) as stream:
        stream.write_table(rows)


def from_ipc(data: bytes | pa.NativeFile) -> pa.Table:
    """The table of a stream; its memory is that of `data`, unless it is compressed."""
    return pa.ipc.open_stream(data).read_all()
