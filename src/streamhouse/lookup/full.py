"""The full-cache strategy: the whole dimension in each worker process, at a pinned snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from streamhouse.lookup import partitions
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.partitions import Partition
from streamhouse.paimon.evolution import columns_now

_Version: TypeAlias = tuple[int | None, tuple[Partition, ...] | None]


class FullDimension:
    """A table that is read whole; the version that was asked for last is held."""

    keyed = False

    def __init__(self, spec: DimensionSpec) -> None:
        self._spec = spec
        self._held: tuple[_Version, pa.Table] | None = None
        self._version: _Version = (None, None)

    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        self._version = snapshot, None if chosen is None else tuple(chosen)

    def rows(self, keys: pa.Table | None) -> pa.Table:
        if self._held is None or self._held[0] != self._version:
            self._held = (self._version, self._read(*self._version))
        return self._held[1]

    def close(self) -> None:
        self._held = None

    def _read(self, snapshot: int | None, chosen: Sequence[Partition] | None) -> pa.Table:
        table, columns = self._spec.open(), self._spec.lookup.columns
        now = columns_now(table, self._spec.planned, columns)
        return partitions.read(table, now, snapshot, chosen).rename_columns(list(columns))
