"""Changes of a table's rows, applied to rows that were read before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamhouse.lookup.storage.key_hashes import KeyHash, among
from streamhouse.paimon.changelog.differences.state_difference import Differ


class Overlay:
    """Changed keys and their current rows; for a table without a key, the rows that were added.

    Holds an in-memory DuckDB from its first use until `close`.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str], hash: KeyHash) -> None:
        self._key, self._hash = list(key), hash
        self._rows = schema.empty_table()
        self._keys = pa.schema([schema.field(name) for name in key]).empty_table()
        self._hashes = np.array([], np.uint64)
        self._differ: Differ | None = None

    @property
    def size(self) -> int:
        """How many keys, or rows of a table without a key, it holds."""
        return max(len(self._hashes), int(self._rows.num_rows))

    def add(self, keys: pa.Table, rows: pa.Table) -> None:
        """Record that `keys` (without duplicates) now have `rows`; keys without one are deleted."""
        if self._key and keys.num_rows:
            keys = keys.select(self._key).cast(self._keys.schema)
            self._rows = self._without(self._rows, keys)
            kept = self._without(self._keys, keys)
            self._keys = pa.concat_tables([kept, keys]).combine_chunks()
            self._hashes = np.sort(self._hash.of(self._keys, self._key))
        self._rows = pa.concat_tables([self._rows, rows]).combine_chunks()

    @property
    def rows(self) -> pa.Table:
        """The current rows of the changed keys."""
        return self._rows

    def over(self, rows: pa.Table) -> pa.Table:
        """Older rows with the changes applied: without those of changed keys, plus all new rows."""
        return pa.concat_tables([self.unchanged(rows), self._rows]) if self.size else rows

    def unchanged(self, rows: pa.Table) -> pa.Table:
        """Older rows without those of changed keys."""
        suspected = among(self._hash.of(rows, self._key), self._hashes) if self._key else None
        if suspected is None or not suspected.any():
            return rows
        kept = self._without(rows.filter(pa.array(suspected)), self._keys)
        return pa.concat_tables([rows.filter(pa.array(~suspected)), kept])

    def copied(self, hash: KeyHash) -> Overlay:
        """Another one with the same changes, for another thread."""
        copy = Overlay(self._rows.schema, self._key, hash)
        copy._rows, copy._keys, copy._hashes = self._rows, self._keys, self._hashes
        return copy

    def _without(self, rows: pa.Table, keys: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows
        if self._differ is None:
            self._differ = Differ()
        return self._differ.without(rows, keys, self._key)

    def close(self) -> None:
        """Free what DuckDB holds."""
        if self._differ is not None:
            self._differ.close()
            self._differ = None
