"""Rows in a local file, mapped into memory: the system keeps in memory what is used of it."""

from __future__ import annotations

import os
import tempfile

import pyarrow as pa


def mapped(rows: pa.Table) -> pa.Table:
    """The same rows in a local file, which is gone when the process is."""
    file, path = tempfile.mkstemp(prefix="streamhouse-lookup-")
    try:
        with os.fdopen(file, "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
        memory = pa.memory_map(path)
    finally:
        # The mapping keeps the file; without a name it cannot be left behind.
        os.unlink(path)
    return pa.ipc.open_file(memory).read_all()
