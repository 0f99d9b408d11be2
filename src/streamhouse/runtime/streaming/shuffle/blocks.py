"""The blocks of rows that tasks send to each other, and the schemas of what tasks return."""

from __future__ import annotations

import pyarrow as pa

from streamhouse.runtime.streaming.tasks.task_results import RESULT

BLOCKS = pa.schema(
    [
        pa.field("task", pa.int32()),
        pa.field("first_row", pa.int64()),
        pa.field("block", pa.binary()),
        pa.field("task_report", pa.string()),
        *RESULT,
    ]
)
"""The output of read tasks: blocks of source rows for task `task`, or JSON for this task in
`task_report` (offsets and number of rows); for small batches, results for the driver (`RESULT`)."""
JOINED = RESULT.append(pa.field("block", pa.binary()))
"""The output of join tasks whose rows are gathered: results, or a block of joined rows."""


def block_row(task: int, first_row: int, block: bytes | None, report: str | None) -> pa.RecordBatch:
    """A row of `BLOCKS` for join task `task`; `first_row`: the number of the block's first row."""
    row = {"task": task, "first_row": first_row, "block": block, "task_report": report}
    return pa.RecordBatch.from_pylist([row], schema=BLOCKS)
