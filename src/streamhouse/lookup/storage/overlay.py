"""Keys of a table with their current rows: over older rows of it, or as a bounded cache."""

import time
from collections.abc import Sequence

import numpy as np
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
            self.rows, self._keys = map(changed.others, (self.rows, self._keys))
            self._changed = KeySet(self._keys)

    def known(self, keys: pa.Table) -> Mask | None:
        """Boolean mask of the keys that it has; None if it has none at all."""
        return None if self._changed is None else self._changed.mask(keys)

    def over(self, rows: pa.Table) -> pa.Table:
        """Older rows with the changes applied: without those of its keys, plus the current rows."""
        return pa.concat_tables([self.unchanged(rows), self.rows]) if self.size else rows

    def unchanged(self, rows: pa.Table) -> pa.Table:
        """Older rows without those of its keys."""
        return rows if self._changed is None else self._changed.others(rows)


class KeyCache:
    """Rows of single keys, or their absence: at most `rows` keys, and about `size` bytes.

    It has two halves. Once the young one is full, or older than `retention_s`, it takes the place
    of the old one, whose keys are forgotten unless they were looked up meanwhile.
    """

    def __init__(
        self, schema: pa.Schema, key: Sequence[str], rows: int, size: int, retention_s: float
    ) -> None:
        self._schema, self._key = schema, list(key)
        self._most_rows, self._most_bytes, self._retention_s = rows // 2, size // 2, retention_s
        self.clear()

    def __len__(self) -> int:
        return self._young.size + self._old.size

    @property
    def rows(self) -> pa.Table:
        """All cached rows."""
        return pa.concat_tables([self._young.rows, self._old.rows])

    def clear(self) -> None:
        """Forget all."""
        self._old, self._young = Overlay(self._schema, self._key), Overlay(self._schema, self._key)
        self._since = time.monotonic()

    def find(self, keys: pa.Table) -> tuple[Mask, pa.Table]:
        """Boolean mask of the keys that are known, and the rows of those, maybe with others."""
        if time.monotonic() - self._since >= self._retention_s:
            self._turn()
        old = self._old.known(keys)
        if old is not None and old.any():
            again = keys.filter(pa.array(old))
            rows = KeySet(again).rows(self._old.rows)
            self._old.drop(again)
            self._young.add(again, rows)
        known, rows = self._young.known(keys), self._young.rows
        self._bound()
        return np.zeros(keys.num_rows, np.bool_) if known is None else known, rows

    def add(self, keys: pa.Table, rows: pa.Table) -> None:
        """Store the rows found for keys, and which keys have none."""
        self._young.add(keys, rows)
        self._bound()

    def drop(self, keys: pa.Table) -> None:
        """Forget keys."""
        self._young.drop(keys)
        self._old.drop(keys)

    def _bound(self) -> None:
        young = self._young
        if young.size > self._most_rows or young.rows.nbytes > self._most_bytes:
            self._turn()

    def _turn(self) -> None:
        self._old, self._young = self._young, Overlay(self._schema, self._key)
        self._since = time.monotonic()
