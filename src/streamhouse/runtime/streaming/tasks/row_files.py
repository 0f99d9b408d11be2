"""Rows that tasks send to the driver: in files where both run on the same machine.

Spark copies a result several times: into its row format, compressed into its block store, and
pickled into the driver. A sink whose driver writes the rows passes megabytes.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa

from streamhouse.machine import machine

LARGE_BYTES = 256 << 10
_SUFFIX = ".rows"


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
        if not self._is_shared():
            return None
        path = self.folder / f"{uuid.uuid4().hex}{_SUFFIX}"
        try:
            with pa.OSFile(str(path), "wb") as file:
                _write_stream(rows, file)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return path

    def _is_shared(self) -> bool:
        try:
            return _identity(self.folder) == self.identity
        except OSError:
            return False


def _identity(folder: Path) -> tuple[str, int, int, int]:
    found = os.stat(folder)
    return machine(), os.geteuid(), found.st_dev, found.st_ino


def read_and_delete(path: str) -> pa.Table:
    """The rows in a file, which is deleted; on the driver.

    They are mapped into memory, not read: the disk has them until the table is deleted.
    """
    rows = pa.ipc.open_stream(pa.memory_map(path)).read_all()
    os.unlink(path)
    return rows


def to_message(rows: pa.Table) -> bytes:
    """The rows as Arrow IPC; compressed if they are large, which takes less time than Spark's."""
    options = pa.ipc.IpcWriteOptions(compression="lz4" if rows.nbytes >= LARGE_BYTES else None)
    buffer = pa.BufferOutputStream()
    _write_stream(rows, buffer, options)
    return bytes(buffer.getvalue())


def of_message(message: bytes) -> pa.Table:
    """The rows of `to_message`."""
    return pa.ipc.open_stream(message).read_all()


def _write_stream(
    rows: pa.Table, to: pa.NativeFile, options: pa.ipc.IpcWriteOptions | None = None
) -> None:
    with pa.ipc.new_stream(to, rows.schema, options=options) as stream:
        stream.write_table(rows)
