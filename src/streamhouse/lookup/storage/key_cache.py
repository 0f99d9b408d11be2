"""Hashes of keys, and a bounded, expiring cache of the rows of single keys, or their absence."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streamhouse.duckdb_connection import LastingConnection
from streamhouse.lookup.storage.overlay import Overlay
from streamhouse.paimon.read.key_set import KeySet, Mask
from streamhouse.sql.expressions.binder import quote
from streamhouse.state.segment import Hashes


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
            rows = self._old.rows.filter(pa.array(KeySet(again).mask(self._old.rows)))
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
