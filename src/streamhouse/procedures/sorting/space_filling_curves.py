"""Orders of rows (linear, Z-order, Hilbert) that keep rows with similar values together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

U64 = npt.NDArray[np.uint64]
_MOST_BITS = 16
MOST_COLUMNS = 8


def _bounds(sample: pa.ChunkedArray, bits: int) -> npt.NDArray[Any]:
    """The quantiles of a column in a sample, which give its values their ranks.

    A curve uses ranks instead of values: otherwise a column of large numbers would dominate it.
    """
    values = np.unique(_comparable(sample.drop_null()))
    most = (1 << bits) - 2
    if len(values) > most:
        values = values[np.linspace(0, len(values) - 1, most).astype(np.int64)]
    return values


def _ranks(column: pa.Array, bounds: npt.NDArray[Any], bits: int) -> U64:
    """Each value's rank, spread over `bits` bits; nulls come first."""
    encoded = column.dictionary_encode()
    ranks = np.searchsorted(bounds, _comparable(encoded.dictionary), side="right") + 1
    if not len(ranks):
        return np.zeros(len(column), np.uint64)
    # Otherwise few distinct values would use only the low bits, and other columns dominate.
    spread = ((1 << bits) - 1) // max(1, len(bounds) + 1)
    spread_ranks = np.append(ranks * max(1, spread), 0).astype(np.uint64)
    indices = encoded.indices.fill_null(len(ranks))
    return np.asarray(spread_ranks[indices.to_numpy(zero_copy_only=False)])


def _comparable(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Values that numpy compares as SQL does; decimals become floats, which is precise enough."""
    column_type = values.type
    if pa.types.is_decimal(column_type):
        values = pc.cast(values, pa.float64(), safe=False)
    elif pa.types.is_date(column_type) or pa.types.is_time32(column_type):
        values = pc.cast(values, pa.int32())
    elif pa.types.is_timestamp(column_type) or pa.types.is_time64(column_type):
        values = pc.cast(values, pa.int64())
    elif pa.types.is_boolean(column_type):
        values = pc.cast(values, pa.int8())
    if pa.types.is_string(column_type) or pa.types.is_binary(column_type):
        return np.array(values.to_pylist(), dtype=object)
    return np.asarray(values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array)
                      else values.to_numpy())  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """A curve through some columns, on which each row has a position.

    `strategy` is order, zorder or hilbert; `bounds` are the quantiles of each column.
    """

    strategy: str
    columns: tuple[str, ...]
    bounds: tuple[npt.NDArray[Any], ...]
    bits: int

    @classmethod
    def of(cls, strategy: str, columns: Sequence[str], sample: pa.Table) -> Self:
        """A curve that is scaled by a sample of the table's rows."""
        bits = min(_MOST_BITS, 63 // len(columns))
        bounds = tuple(_bounds(sample.column(name), bits) for name in columns)
        return cls(strategy, tuple(columns), bounds, bits)

    def positions(self, rows: pa.RecordBatch) -> U64:
        """The position of each row on the curve; of `order`, where the columns decide, always 0."""
        if self.strategy == "order":
            return np.zeros(rows.num_rows, np.uint64)
        parts = [
            _ranks(rows.column(name), bounds, self.bits)
            for name, bounds in zip(self.columns, self.bounds, strict=True)
        ]
        if self.strategy == "hilbert":
            parts = hilbert_axes(parts, self.bits)
        return interleaved(parts, self.bits)


def interleaved(parts: Sequence[U64], bits: int) -> U64:
    """Interleave the bits of several numbers, the highest first: positions on a Z-order curve."""
    position = np.zeros_like(parts[0])
    for bit in range(bits - 1, -1, -1):
        for part in parts:
            position = (position << np.uint64(1)) | ((part >> np.uint64(bit)) & np.uint64(1))
    return position


def hilbert_axes(parts: Sequence[U64], bits: int) -> list[U64]:
    """Transform coordinates so that their interleaved bits are the position on a Hilbert curve.

    The transform of J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707
    (2004), vectorised over whole columns.
    """
    axes = [part.copy() for part in parts]
    one = np.uint64(1)
    for bit in range(bits - 1, 0, -1):
        high = one << np.uint64(bit)
        low = high - one
        for axis_number in range(len(axes)):
            is_set = (axes[axis_number] & high) != 0
            swap = np.where(is_set, np.uint64(0), (axes[0] ^ axes[axis_number]) & low)
            axes[0] ^= np.where(is_set, low, swap)
            if axis_number:
                axes[axis_number] ^= swap
    for axis_number in range(1, len(axes)):
        axes[axis_number] ^= axes[axis_number - 1]
    flip = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        high = one << np.uint64(bit)
        flip ^= np.where((axes[-1] & high) != 0, high - one, np.uint64(0))
    return [axis ^ flip for axis in axes]
