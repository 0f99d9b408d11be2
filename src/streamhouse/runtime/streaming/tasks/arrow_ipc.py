"""Tables as Arrow IPC, as tasks send them to each other and to the driver."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa


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
