"""Changed keys of a table with their current rows, over older rows of it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamhouse.paimon.read.key_set import KeySet, Mask


class Overlay:
    """Keys and their current rows; for a table without a key, the rows that were added.

    A shallow copy has the same changes, and is independent of later ones.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self._key = list(key)
        self._keys = pa.schema([schema.field(name) for name in key]).empty_table()
        self._changed: KeySet | None = None
        self.rows = schema.empty_table()
        """The current rows of the keys."""

    @property
    def size(self) -> int:
        """How many keys, or rows of a table without a key, it holds."""
        return max(int(self._keys.num_rows), int(self.rows.num_rows))

    def add(self, keys: pa.Table, rows: pa.Table) -> None:
        """Record that `keys` (without duplicates) now have `rows`; keys without one are deleted."""
        if self._key and keys.num_rows:
            keys = keys.select(self._key).cast(self._keys.schema)
            self.drop(keys)
            self._keys = pa.concat_tables([self._keys, keys]).combine_chunks()
            self._changed = KeySet(self._keys)
        self.rows = pa.concat_tables([self.rows, rows]).combine_chunks()

    def drop(self, keys: pa.Table) -> None:
        """Forget keys, and their rows."""
        if self._changed is not None and keys.num_rows:
            changed = KeySet(keys)
            self.rows, self._keys = _without(self.rows, changed), _without(self._keys, changed)
            self._changed = KeySet(self._keys)

    def known(self, keys: pa.Table) -> Mask | None:
        """Boolean mask of the keys that it has; None if it has none at all."""
        return None if self._changed is None else self._changed.mask(keys)

    def over(self, rows: pa.Table) -> pa.Table:
        """Older rows with the changes applied: without those of its keys, plus the current rows."""
        return pa.concat_tables([self.unchanged(rows), self.rows]) if self.size else rows

    def unchanged(self, rows: pa.Table) -> pa.Table:
        """Older rows without those of its keys."""
        return rows if self._changed is None else _without(rows, self._changed)


def _without(rows: pa.Table, keys: KeySet) -> pa.Table:
    return rows.filter(pa.array(~keys.mask(rows))) if rows.num_rows else rows
