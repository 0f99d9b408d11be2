"""The parts of a batch: which changes and rows to read of each of many tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.connectors.mysql_cdc.change_reader import TablePosition
from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.snapshot.chunks import Chunk
from streamhouse.mysql.position import BinlogPosition, KeyJson
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


def key_group_count(start: BinlogPosition, end: BinlogPosition, parallelism: int) -> int:
    """Into how many key groups the changes in a range of the binlog are divided."""
    short = start.file == end.file and end.pos - start.pos < DIVIDED_BYTES
    return 1 if short else parallelism


ALL_ROWS = Chunk(None, None)


@dataclass(frozen=True)
class TablePart:
    """The changes and rows that a batch reads of one table.

    `changes`: the position from which its changes are read, of keys up to `up_to` (None: of all
    keys); None: it has no changes. `chunks` of the snapshot are read `as_of` a position; for
    `lookback` see `ChunkReader`. `reload`: the batch compares the rows of all parts of the target
    with the target's, and deletes rows that MySQL does not have; False: it keeps these; None: it
    inserts the rows without comparing them. `key_group`: the keys whose changes are read, if
    several tasks read the table.
    """

    table: FollowedTable
    changes: TablePosition | None
    up_to: KeyJson | None
    chunks: tuple[Chunk, ...] = ()
    as_of: TablePosition | None = None
    lookback: TablePosition | None = None
    reload: bool | None = None
    key_group: KeyGroup | None = None

    def divided(self, count: int) -> list[TablePart]:
        """The part as parts for `count` tasks; only one if it has more than changes, or no key."""
        key = self.table.key_indexes
        only_changes = not self.chunks and self.up_to is None and self.reload is None
        if not only_changes or not key or count == 1:
            return [self]
        return [replace(self, key_group=KeyGroup(key, number, count)) for number in range(count)]
