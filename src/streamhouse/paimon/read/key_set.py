"""A set of primary keys, and masks of the rows that have one of them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]


class KeySet:
    """Keys of one or more columns, compared bit by bit as Paimon's key comparators do."""

    def __init__(self, keys: pa.Table) -> None:
        self._names = keys.schema.names
        columns = [_comparable(keys.column(name)) for name in self._names]
        self._values: list[pa.Array] = [pc.unique(column) for column in columns]
        codes = np.zeros(keys.num_rows, np.int64)
        self._prefixes: list[pa.Array] = []
        for column, values in zip(columns, self._values, strict=True):
            codes = codes * (len(values) + 1) + _indexes(column, values)
            prefixes = pa.array(np.unique(codes))
            self._prefixes.append(prefixes)
            codes = _indexes(pa.array(codes), prefixes)

    def __len__(self) -> int:
        return len(self._prefixes[-1])

    def mask(self, rows: pa.Table) -> Mask:
        """Which rows have one of the keys; `rows` has the keys' columns, by name."""
        codes = np.zeros(rows.num_rows, np.int64)
        matches = np.ones(rows.num_rows, np.bool_)
        for name, values, prefixes in zip(self._names, self._values, self._prefixes, strict=True):
            indexes = _indexes(_comparable(rows.column(name)), values)
            matches &= indexes >= 0
            codes = _indexes(pa.array(codes * (len(values) + 1) + indexes), prefixes)
            matches &= codes >= 0
        return matches

    def rows(self, rows: pa.Table) -> pa.Table:
        """Those of the rows that have one of the keys, in their order."""
        return rows.filter(pa.array(self.mask(rows)))

    def others(self, rows: pa.Table) -> pa.Table:
        """Those of the rows that have none of the keys, in their order."""
        return rows.filter(pa.array(~self.mask(rows)))


def as_mask(values: pa.Array) -> Mask:
    """Boolean values as a mask, in which nulls are False."""
    mask: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask


def _indexes(column: Any, values: pa.Array) -> npt.NDArray[np.int64]:
    """The index of each value in `values`; -1 if it is not there."""
    if not len(values):
        return np.full(len(column), -1, np.int64)
    positions = pc.index_in(column, value_set=values).fill_null(-1).cast(pa.int64())
    return np.asarray(positions.to_numpy(), np.int64)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, or if it is floating-point its bits, since -0.0 and 0.0 are two keys."""
    return float_bits(column) if pa.types.is_floating(column.type) else column


def float_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The bits of FLOAT or DOUBLE values, as integers of the same width."""
    bits = pa.int64() if pa.types.is_float64(column.type) else pa.int32()
    return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
