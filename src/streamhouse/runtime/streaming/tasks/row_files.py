"""Rows that tasks send to each other as Arrow IPC, and to the driver of their machine in files.

Spark copies a result several times: into its row format, compressed into its block store, and
pickled into the driver. A sink whose driver writes the rows passes megabytes.
"""

import contextlib
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import pyarrow as pa

from streamhouse.machine import machine


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
