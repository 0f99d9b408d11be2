"""Hashes of keys, and a bounded, expiring cache of the rows of single keys, or their absence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_connection import LastingConnection
from streamhouse.sql.expressions.binder import quote
from streamhouse.state.segment import Hashes

_KEPT = 0.75
"""The share that eviction keeps, so that the next row does not cause another eviction."""


class KeyCache:
    """Rows by the hash of their key (column names `key`), at most `rows` of them and `size` bytes.

    Evicts the least recently used first.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str], rows: int, size: int) -> None:
        self._schema = pa.schema([field.with_nullable(True) for field in schema])
        self._key = list(key)
        self._most_rows, self._most_bytes = rows, size
        self.clear()

    def __len__(self) -> int:
        return len(self._hashes)

    def clear(self) -> None:
        """Forget all."""
        self._hashes: Hashes = np.array([], np.uint64)
        self._has_row: npt.NDArray[np.bool_] = np.array([], np.bool_)
        self._used: npt.NDArray[np.float64] = np.array([], np.float64)
        self._rows = self._schema.empty_table()

    def find(self, keys: pa.Table, hashes: Hashes, now: float) -> tuple[Any, pa.Table]:
        """Boolean mask of the keys that are known, and the rows of those that have one."""
        known = np.zeros(len(hashes), np.bool_)
        if not len(self) or not len(hashes):
            return known, self._schema.empty_table()
        positions = np.minimum(np.searchsorted(self._hashes, hashes), len(self) - 1)
        same_hash = np.flatnonzero(self._hashes[positions] == hashes)
        # Two keys may have the same hash, and the other one may not have been looked up yet.
        requested, cached = (
            keys.take(pa.array(same_hash)),
            self._rows.take(pa.array(positions[same_hash])),
        )
        equal = np.ones(len(same_hash), np.bool_)
        for name in self._key:
            values = pc.equal(requested.column(name), cached.column(name)).fill_null(False)
            equal &= values.combine_chunks().to_numpy(zero_copy_only=False)
        known[same_hash[equal]] = True
        hits = positions[same_hash[equal]]
        self._used[hits] = now
        return known, self._rows.take(pa.array(hits[self._has_row[hits]]))

    def add(
        self, keys: pa.Table, hashes: Hashes, rows: pa.Table, row_hashes: Hashes, now: float
    ) -> None:
        """Store the rows found for keys, and which keys have none."""
        missing = ~np.isin(hashes, row_hashes)
        misses = keys.filter(pa.array(missing))
        columns = [
            misses.column(field.name)
            if field.name in self._key
            else pa.nulls(misses.num_rows, field.type)
            for field in self._schema
        ]
        self.drop(np.union1d(hashes, row_hashes))
        parts = [rows.cast(self._schema), pa.table(columns, schema=self._schema)]
        counts = [rows.num_rows, misses.num_rows]
        added = np.concatenate([row_hashes, hashes[missing]])
        has_row = np.repeat([True, False], counts)
        all_hashes = np.concatenate([self._hashes, added])
        order = np.argsort(all_hashes, kind="stable")
        self._has_row = np.concatenate([self._has_row, has_row])[order]
        self._used = np.concatenate([self._used, np.full(len(added), now)])[order]
        self._hashes = all_hashes[order]
        self._rows = pa.concat_tables([self._rows, *parts]).take(pa.array(order)).combine_chunks()
        self._bound()

    def drop(self, hashes: Hashes) -> None:
        """Forget keys with these hashes."""
        if len(self) and len(hashes):
            self._keep(~np.isin(self._hashes, hashes))

    def expire(self, before: float) -> None:
        """Forget what was last used before the time `before`."""
        if len(self):
            self._keep(self._used >= before)

    def _bound(self) -> None:
        size, rows = self._rows.nbytes, len(self)
        max_rows = min(self._most_rows, rows * self._most_bytes // max(1, size))
        if rows > max_rows:
            kept = int(max_rows * _KEPT)
            order = np.argsort(self._used, kind="stable")
            mask = np.zeros(rows, np.bool_)
            mask[order[rows - kept :]] = True
            self._keep(mask)

    def _keep(self, mask: npt.NDArray[np.bool_]) -> None:
        if mask.all():
            return
        self._hashes, self._has_row = self._hashes[mask], self._has_row[mask]
        self._used = self._used[mask]
        self._rows = self._rows.filter(pa.array(mask)).combine_chunks()


class KeyHash:
    """Hashes columns, cast to their DuckDB types; holds an in-memory DuckDB until `close`."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types
        self._db = LastingConnection()

    def of(self, rows: pa.Table, columns: Sequence[str]) -> Hashes:
        """The hash of each row's values of these columns, in their order."""
        if rows.num_rows == 0:
            return np.array([], np.uint64)
        parts = ", ".join(f"TRY_CAST({quote(name)} AS {self._types[name]})" for name in columns)
        found = self._db.run(f"SELECT hash({parts}) FROM keys", keys=rows.select(list(columns)))
        return np.asarray(found.column(0).to_numpy(), np.uint64)

    def close(self) -> None:
        """Free what DuckDB holds."""
        self._db.close()


def among(hashes: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """Boolean mask of the hashes that are in `known`, which is sorted; fast if `known` is small."""
    if not len(known) or not len(hashes):
        return np.zeros(len(hashes), np.bool_)
    positions = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return np.asarray(known[positions] == hashes)
