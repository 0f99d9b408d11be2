"""Divides the changes in a range of the binlog among tasks, by their keys (decision 187)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.server.position import Position
from streamhouse.paimon.write.bucket_hash import row_hashes

SHARED_BYTES = 4 * 1024 * 1024
"""A range of the binlog with fewer bytes is one task's: to start another takes longer."""


@dataclass(frozen=True)
class KeyShare:
    """The rows of one of `count` tasks: those whose key has this `number` by its hash.

    `key_indexes`: the key's columns among the captured ones. Each task reads the whole range, but
    decodes its own rows only, which keeps the order of the changes of a key.
    """

    key_indexes: tuple[int, ...]
    number: int
    count: int

    def mask(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Which rows are of this share, by the columns of the key."""
        hashes = row_hashes(columns).astype(np.int64)
        mask: npt.NDArray[np.bool_] = hashes % self.count == self.number
        return mask


def key_indexes(captured: CapturedTable) -> tuple[int, ...]:
    """Where the columns of the table's key are among the captured ones."""
    names = [column.name for column in captured.columns]
    return tuple(names.index(column.name) for column in captured.table.key)


def shares(start: Position, end: Position, parallelism: int) -> int:
    """Among how many tasks a range of the binlog is divided."""
    short = start.file == end.file and end.pos - start.pos < SHARED_BYTES
    return 1 if short else parallelism
