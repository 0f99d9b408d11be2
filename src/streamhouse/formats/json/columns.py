"""Converts a column of JSON values at once, where that is provably the same as value by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.formats import times

_EXACT_DIGITS = 15
"""Decimal digits that a double always keeps."""
_INT64_DIGITS = 18
_FAILURES = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError, ValueError)


def column(values: Sequence[Any], kind: pa.DataType, standard: str) -> pa.Array | None:
    """The column of `values`, as orjson reads them; None if they must be converted one by one."""
    try:
        if kind in (pa.string(), pa.bool_()):
            # PyArrow refuses values of other types.
            return pa.array(values, kind)
        if pa.types.is_timestamp(kind):
            return times.parse_timestamps(pa.array(values, pa.string()), kind, standard)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return _numbers(pa.array(values), values, kind)
    except _FAILURES:
        pass
    return None


def _numbers(found: pa.Array, values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """`found` is the array in the type that its values have."""
    if pa.types.is_null(found.type):
        return found.cast(kind)
    if pa.types.is_decimal(kind):
        return _decimals(found, values, kind)
    if pa.types.is_int64(found.type):
        # Safe: fails if the type is too narrow, or cannot represent a number exactly.
        return found.cast(kind)
    if pa.types.is_float64(found.type) and pa.types.is_floating(kind) and _unmixed(values):
        cast = found.cast(kind)
        return cast if not pc.any(pc.is_inf(cast)).as_py() else None
    return None


def _unmixed(values: Sequence[Any]) -> bool:
    """Whether no value is a boolean, which PyArrow converts to a float among floats."""
    return bool not in set(map(type, values))


def _decimals(found: pa.Array, values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    if pa.types.is_string(found.type):
        return found.cast(kind)
    if kind.precision > _INT64_DIGITS:
        return None
    limit, unit = 10 ** (kind.precision - kind.scale), 10**kind.scale
    if pa.types.is_int64(found.type):
        numbers = found.fill_null(0).to_numpy(zero_copy_only=False)
        if numbers.size and (numbers.max() >= limit or numbers.min() <= -limit):
            return None
        return _of_integers(numbers * unit, found, kind)
    if not pa.types.is_float64(found.type) or kind.precision > _EXACT_DIGITS:
        return None
    if not _unmixed(values):
        return None
    floats = found.fill_null(0.0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        scaled = np.rint(floats * unit)
    # If the float is the one nearest to a decimal of this scale, its text was that decimal, or a
    # text that rounds to it: with 15 digits, decimals are farther apart than floats.
    if not (np.abs(scaled) < 10**kind.precision).all() or not (scaled / unit == floats).all():
        return None
    return _of_integers(scaled.astype(np.int64), found, kind)


def _of_integers(unscaled: Any, found: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals by their unscaled numbers, null where `found` is null."""
    valid = pc.is_valid(found)
    validity = valid.buffers()[1] if found.null_count else None
    if validity is not None and valid.offset:
        valid = pa.concat_arrays([valid])
        validity = valid.buffers()[1]
    return decimals(unscaled, kind, validity)


def decimals(
    unscaled: Any, kind: pa.Decimal128Type, validity: pa.Buffer | None = None
) -> pa.Decimal128Array:
    """Decimals by their unscaled numbers of 64 bits; `validity`: which are not null."""
    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0] = unscaled
    words[:, 1] = unscaled >> 63
    return pa.Array.from_buffers(kind, len(unscaled), [validity, pa.py_buffer(words)])
