"""Vectors: MySQL stores their numbers as single-precision floats, one after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_BYTES = 4


def vector_numbers(raw: pa.Array, target: pa.DataType) -> pa.Array:
    """Vectors as arrays of numbers, or as their text, such as `[1,0.25]`; `raw`: their bytes.

    Raises `ValueError` for bytes that are not a vector.
    """
    if not len(raw):
        return pa.array([], target)
    # A copy begins at the first byte, and has no bytes for null values.
    _, bounds, data = raw.take(pa.array(np.arange(len(raw)))).buffers()
    ends = np.frombuffer(bounds, np.int32)[: len(raw) + 1]
    if (ends % _BYTES).any():
        raise ValueError("a value is not a vector, whose numbers have four bytes each")
    numbers = np.frombuffer(b"" if data is None else data, np.uint8)[: ends[-1]].view("<f4")
    mask = raw.is_null() if raw.null_count else None
    offsets = pa.array(ends // _BYTES, pa.int32())
    vectors = pa.ListArray.from_arrays(offsets, pa.array(numbers), mask=mask)
    if not pa.types.is_string(target):
        return vectors.cast(target)
    texts = [None if v is None else f"[{','.join(v)}]" for v in _texts(vectors)]
    return pa.array(texts, pa.string())


def _texts(vectors: pa.ListArray) -> list[list[str] | None]:
    texts: list[list[str] | None] = vectors.cast(pa.list_(pa.string())).to_pylist()
    return texts
