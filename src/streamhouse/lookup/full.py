"""The full-cache strategy: the whole dimension in each worker process, at a pinned snapshot."""

from __future__ import annotations

import pyarrow as pa

from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.paimon.evolution import columns_now


class FullDimension:
    """A table that is read whole; the version that was asked for last is held."""

    keyed = False

    def __init__(self, spec: DimensionSpec) -> None:
        self._spec = spec
        self._held: tuple[int | None, pa.Table] | None = None
        self._snapshot: int | None = None

    def at(self, snapshot: int | None) -> None:
        self._snapshot = snapshot

    def rows(self, keys: pa.Table | None) -> pa.Table:
        if self._held is None or self._held[0] != self._snapshot:
            self._held = (self._snapshot, self._read(self._snapshot))
        return self._held[1]

    def close(self) -> None:
        self._held = None

    def _read(self, snapshot: int | None) -> pa.Table:
        table, columns = self._spec.open(), self._spec.lookup.columns
        now = columns_now(table, self._spec.planned, columns)
        batches = [] if snapshot is None else list(table.read(columns=now, snapshot=snapshot))
        data = pa.Table.from_batches(batches, schema=table.read_schema(now))
        return data.rename_columns(list(columns))
