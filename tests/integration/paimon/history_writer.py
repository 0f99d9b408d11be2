"""One write in a process that kills itself at a given step, to be replayed by another."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter, file_prefix
from streamhouse.source import ROW_KIND

STEPS = ("opened", "written", "prepared", "committing", "committed")


def write(
    options: Mapping[str, str],
    identifier: str,
    user: str,
    batch: int,
    rows: Sequence[tuple[str, dict[str, Any]]],
    die_at: str | None = None,
    after_s: float = 0.0,
    committer: TableCommitter | None = None,
) -> bool:
    """Write and commit rows, or die: at a step, or (`committing`) some time into the commit."""

    def reached(step: str) -> None:
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    writer = TableWriter(options, identifier, user, file_prefix(user, batch))
    try:
        reached("opened")
        for rowset in as_batches(options, identifier, rows):
            writer.write(rowset)
        reached("written")
        messages = writer.prepare(batch)
    finally:
        writer.close()
    reached("prepared")
    if die_at == "committing":
        threading.Thread(target=_die, args=(after_s,), daemon=True).start()
    done = (committer or TableCommitter(options, identifier, user)).commit(batch, messages)
    reached("committed")
    if die_at is not None:
        # The commit was faster than the time set: then it dies right after it.
        os.kill(os.getpid(), signal.SIGKILL)
    return done


def as_batches(
    options: Mapping[str, str], identifier: str, rows: Sequence[tuple[str, dict[str, Any]]]
) -> list[pa.RecordBatch]:
    """Rows as the queries write them; columns that no row has are left out."""
    table = Warehouse(options).table(identifier)
    names = [name for name in table.arrow_schema.names if any(name in row for _, row in rows)]
    schema = pa.schema([table.arrow_schema.field(name).with_nullable(True) for name in names])
    batch = pa.RecordBatch.from_pylist([row for _, row in rows], schema=schema)
    if table.primary_key:
        kinds = pa.array([kind for kind, _ in rows])
        batch = batch.append_column(ROW_KIND, kinds)
    return [batch]


def _die(after_s: float) -> None:
    time.sleep(after_s)
    os.kill(os.getpid(), signal.SIGKILL)
