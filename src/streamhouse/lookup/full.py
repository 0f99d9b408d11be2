"""The full-cache strategy: the whole dimension in each worker process, at a pinned snapshot."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa

from streamhouse.paimon.catalog import Warehouse
from streamhouse.paimon.evolution import columns_now

_Key = tuple[int, str, tuple[str, ...], tuple[tuple[str, str], ...]]
_cache: dict[_Key, tuple[int | None, pa.Table]] = {}


def dimension(
    warehouse: Mapping[str, str],
    table: str,
    columns: Sequence[str],
    snapshot: int | None,
    planned: int | None = None,
) -> pa.Table:
    """The columns of `table` as of `snapshot` (None: before its first), read once a process.

    Executors. The last version asked for stays in memory; a batch that asks for another one
    (the dimension has moved, or an older batch is replayed) reads that one. `columns` are named
    as in the version `planned` of the table's schema, by default the newest.
    """
    key = (os.getpid(), table, tuple(columns), tuple(sorted(warehouse.items())))
    held = _cache.get(key)
    if held is not None and held[0] == snapshot:
        return held[1]
    paimon = Warehouse(warehouse).table(table)
    now = columns_now(paimon, planned, columns)
    batches = [] if snapshot is None else list(paimon.read(columns=now, snapshot=snapshot))
    data = pa.Table.from_batches(batches, schema=paimon.read_schema(now))
    data = data.rename_columns(list(columns))
    _cache[key] = (snapshot, data)
    return data
