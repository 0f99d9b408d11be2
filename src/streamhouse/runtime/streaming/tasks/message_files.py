"""Large messages from tasks to the driver, as files, where both run on the same machine.

Spark copies a result several times: into its row format, compressed into its block store, and
pickled into the driver. A sink whose driver writes the rows passes megabytes.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa

from streamhouse.machine import machine

LARGE_BYTES = 256 << 10
_SUFFIX = ".message"


@dataclass(frozen=True)
class MessageFiles:
    """The run folder of a query as its driver sees it; picklable."""

    folder: Path
    identity: tuple[str, int, int, int]
    """The driver's machine and user, and the device and inode of the folder."""

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Files in a folder that exists; on the driver."""
        return cls(folder, _identity(folder))

    def put(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of a task, with large messages replaced by files; on executors.

        A row with a file has its path as `message_file`, and no `message`. Results pass unchanged
        if the task cannot write where the driver reads.
        """
        shared = None
        for batch in results:
            sizes = [len(message.as_buffer() or b"") for message in batch.column("message")]
            if max(sizes, default=0) >= LARGE_BYTES:
                shared = self._is_shared() if shared is None else shared
                if shared:
                    batch = self._with_files(batch)
            yield batch

    def _is_shared(self) -> bool:
        try:
            return _identity(self.folder) == self.identity
        except OSError:
            return False

    def _with_files(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.to_pylist()
        for row in rows:
            if row["message"] is not None and len(row["message"]) >= LARGE_BYTES:
                path = self._write(row["message"])
                if path is not None:
                    row["message"], row["message_file"] = None, str(path)
        return pa.RecordBatch.from_pylist(rows, schema=batch.schema)

    def _write(self, message: bytes) -> Path | None:
        """The file with a message; None if the disk takes none."""
        path = self.folder / f"{uuid.uuid4().hex}{_SUFFIX}"
        try:
            path.write_bytes(message)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return path


def _identity(folder: Path) -> tuple[str, int, int, int]:
    found = os.stat(folder)
    return machine(), os.geteuid(), found.st_dev, found.st_ino


def read_and_delete(path: str) -> bytes:
    """The message in a file, which is deleted; on the driver."""
    file = Path(path)
    message = file.read_bytes()
    file.unlink()
    return message
