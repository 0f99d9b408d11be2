"""Key groups: divides the changes in a range of the binlog among tasks (decision 187)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.server.position import BinlogPosition
from streamhouse.paimon.write.bucket_hash import row_hashes

DIVIDED_BYTES = 4 * 1024 * 1024
"""One task reads a range of the binlog with fewer bytes: starting another would take longer."""


@dataclass(frozen=True)
class KeyGroup:
    """The rows whose key's hash modulo `count` is `number`: those of one of `count` tasks.

    `key_indexes`: of the key's columns among the captured ones. Each task reads the whole range,
    but decodes only the rows of its group, so that the changes of one key keep their order.
    """

    key_indexes: tuple[int, ...]
    number: int
    count: int

    def mask(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Which rows are in this group; `columns`: those of the key."""
        hashes = row_hashes(columns).astype(np.int64)
        mask: npt.NDArray[np.bool_] = hashes % self.count == self.number
        return mask


def key_indexes(captured: CapturedTable) -> tuple[int, ...]:
    """The indexes of the key's columns among the captured ones."""
    names = [column.name for column in captured.columns]
    return tuple(names.index(column.name) for column in captured.table.key)


def key_group_count(start: BinlogPosition, end: BinlogPosition, parallelism: int) -> int:
    """Into how many key groups the changes in a range of the binlog are divided."""
    short = start.file == end.file and end.pos - start.pos < DIVIDED_BYTES
    return 1 if short else parallelism
