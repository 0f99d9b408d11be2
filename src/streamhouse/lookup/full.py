"""The full-cache strategy: the whole dimension in each worker process, at a pinned snapshot."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa

from streamhouse.paimon.catalog import Warehouse

_Key = tuple[int, str, tuple[str, ...], tuple[tuple[str, str], ...]]
_cache: dict[_Key, tuple[int | None, pa.Table]] = {}


def dimension(
    warehouse: Mapping[str, str], table: str, columns: Sequence[str], snapshot: int | None
) -> pa.Table:
    """The columns of `table` as of `snapshot` (None: before its first), read once a process.

    Executors. The last version asked for stays in memory; a batch that asks for another one
    (the dimension has moved, or an older batch is replayed) reads that one.
    """
    key = (os.getpid(), table, tuple(columns), tuple(sorted(warehouse.items())))
    held = _cache.get(key)
    if held is not None and held[0] == snapshot:
        return held[1]
    paimon = Warehouse(warehouse).table(table)
    schema = pa.schema([paimon.arrow_schema.field(name) for name in columns])
    batches = [] if snapshot is None else list(paimon.read(columns=columns, snapshot=snapshot))
    data = pa.Table.from_batches(batches, schema=schema) if batches else schema.empty_table()
    _cache[key] = (snapshot, data)
    return data
