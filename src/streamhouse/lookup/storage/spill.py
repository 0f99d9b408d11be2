"""Spills rows to a memory-mapped local file, of which the system keeps used pages in memory."""

from __future__ import annotations

import os
import tempfile

import pyarrow as pa


def mapped(rows: pa.Table) -> pa.Table:
    """The same rows in a local file, which is deleted when the process ends."""
    file, path = tempfile.mkstemp(prefix="streamhouse-lookup-")
    try:
        with os.fdopen(file, "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
        memory = pa.memory_map(path)
    finally:
        # The mapping keeps the file alive; without a name it cannot be left behind.
        os.unlink(path)
    return pa.ipc.open_file(memory).read_all()
