"""Hashes of keys, by which rows are found; equal keys of any Arrow types have equal hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.duckdb_connection import LastingConnection
from streamhouse.sql.expressions.binder import quote
from streamhouse.state.segment import Hashes


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


def distinct(hashes: Hashes) -> Hashes:
    """The hashes sorted and without duplicates; several times faster than `numpy.unique`."""
    ordered = np.sort(hashes)
    if len(ordered) < 2:
        return ordered
    kept = np.empty(len(ordered), np.bool_)
    kept[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=kept[1:])
    return ordered if kept.all() else ordered[kept]


def among(hashes: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """Boolean mask of the hashes that are in `known`, which is sorted; fast if `known` is small."""
    if not len(known) or not len(hashes):
        return np.zeros(len(hashes), np.bool_)
    positions = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return np.asarray(known[positions] == hashes)
