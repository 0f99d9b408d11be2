"""Drops `-U` rows that a table with a sequence field must not receive.

Such a table keeps the version of a key with the greatest sequence value, and treats a `-U` as a
removal. An update to an older time should lose. But it arrives as `-U` with the newer time and
`+U` with the older one: the removal would win, and the row would disappear.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.read.table import Table
from streamhouse.source import ROW_KIND


def must_drop_before_images(table: Table) -> bool:
    """Whether a `-U` must not reach the table when a `+U` of its key follows."""
    options = table.options
    return (
        bool(table.primary_key)
        and "sequence.field" in options
        and options.get("merge-engine", "deduplicate") == "deduplicate"
        and options.get("changelog-producer", "none") != "input"
    )


class BeforeImageFilter:
    """Drops a `-U` from a stream of batches if the next row is a `+U` of the same key.

    Other `-U` rows stay: they remove a row whose key or partition has changed.
    """

    def __init__(self, table: Table) -> None:
        self._keys = table.primary_key
        self._held: pa.RecordBatch | None = None

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that can be written now; a `-U` at the end is held until the next row."""
        if ROW_KIND not in batch.schema.names:
            if self._held is None:
                return batch
            batch = batch.append_column(ROW_KIND, pa.repeat("+I", batch.num_rows))
        if self._held is not None:
            batch, self._held = pa.concat_batches([self._held, batch]), None
        kinds = batch.column(ROW_KIND)
        if batch.num_rows and kinds[-1].as_py() == "-U":
            self._held, batch = batch.slice(batch.num_rows - 1), batch.slice(0, batch.num_rows - 1)
        if batch.num_rows < 2:
            return batch
        before = _array(pc.equal(batch.column(ROW_KIND), "-U"))
        after = _array(pc.equal(batch.column(ROW_KIND), "+U"))
        replaced = before[:-1] & after[1:]
        if not replaced.any():
            return batch
        for key in self._keys:
            column = batch.column(key)
            replaced &= _array(pc.equal(column.slice(0, len(column) - 1), column.slice(1)))
        return batch.filter(pa.array(np.append(~replaced, True)))

    def rest(self) -> pa.RecordBatch | None:
        """The `-U` that is still held at the end of the stream; None if there is none."""
        held, self._held = self._held, None
        return held


def _array(mask: pa.Array) -> npt.NDArray[np.bool_]:
    values: npt.NDArray[np.bool_] = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return values
