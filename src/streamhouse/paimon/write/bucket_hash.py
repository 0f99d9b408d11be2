"""Paimon's default bucket function: Murmur3 over the binary row of a bucket key's values.

A `BinaryRow` is a null bitmap, then eight bytes per field, then a variable-length part for longer
values, all in four-byte words. This module never builds the rows: it hashes one word at a time,
for all rows at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]

_SEED = np.uint32(42)
_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_HEADER_BITS = 8
_INLINE = 7
_COMPACT_DIGITS = 18
_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint32)


def bucket_of(keys: Sequence[pa.Array], buckets: int) -> Longs:
    """The bucket of each row; `keys` are the columns of the bucket key, in the table's types."""
    return np.abs(row_hashes(keys).astype(np.int64)) % buckets


def hashable(data_type: pa.DataType) -> bool:
    """Whether a column of this type can be in `keys`."""
    return not pa.types.is_nested(data_type)


def row_hashes(keys: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    """The hash of each row, equal to Paimon's `BinaryRow.hashCode`."""
    rows = len(keys[0])
    if rows == 0:
        return np.zeros(0, np.int32)
    head: list[Any] = [np.uint32(0)] * (2 * ((len(keys) + 63 + _HEADER_BITS) // 64))
    fixed: list[Any] = []
    tails: list[_Tail] = []
    size: Any = 4 * len(head) + 8 * len(keys)
    for position, key in enumerate(keys):
        nulls = _nulls(key)
        if nulls is not None:
            word, bit = divmod(position + _HEADER_BITS, 32)
            head[word] = head[word] | (nulls.astype(np.uint32) << np.uint32(bit))
        field = _field(key, nulls, size)
        fixed += [field.low, field.high]
        if field.tail is not None:
            tails.append(field.tail)
            size = size + 4 * field.tail.words
    with np.errstate(over="ignore"):
        state: Any = np.full(rows, _SEED)
        for block in (*head, *fixed):
            state = _mixed(state, block)
        for tail in tails:
            tail.mix(state)
        hashes: npt.NDArray[np.int32] = _final(state ^ _offset(size)).view(np.int32)
    return hashes


@dataclass(frozen=True)
class _Tail:
    """The variable-length part of a field.

    `words` is the number of words in each row, or one number for all rows. `word(number, rows)`
    returns one of these words for some rows (None: for all).
    """

    words: Any
    word: Callable[[int, Any], Words]

    def mix(self, state: Words) -> None:
        if isinstance(self.words, int):
            for number in range(self.words):
                state[:] = _mixed(state, self.word(number, None))
            return
        rows = np.flatnonzero(self.words)
        number = 0
        while len(rows):
            state[rows] = _mixed(state[rows], self.word(number, rows))
            number += 1
            rows = rows[self.words[rows] > number]


@dataclass(frozen=True)
class _Field:
    """The two words of a field in the fixed-length part, and its variable-length part if any."""

    low: Any
    high: Any
    tail: _Tail | None = None


def _field(array: pa.Array, nulls: Any, at: Any) -> _Field:
    """Encode a column.

    `at` is the byte offset in the row at which the field's variable-length part begins: one number
    for all rows, or one for each.
    """
    data_type = array.type
    if pa.types.is_timestamp(data_type):
        return _timestamp(_fixed_width(array, np.int64, nulls), data_type.unit, at)
    if pa.types.is_decimal(data_type):
        return _decimal(array, nulls, at)
    if pa.types.is_boolean(data_type):
        array, data_type = array.cast(pa.uint8()), pa.uint8()
    elif not pa.types.is_primitive(data_type):
        return _bytes(array, nulls, at)
    if data_type.bit_width == 64:
        return _Field(*_halves(_fixed_width(array, np.int64, nulls)))
    # A narrow type fills its own bytes only: negative values are not sign-extended.
    unsigned = {8: np.uint8, 16: np.uint16, 32: np.uint32}[data_type.bit_width]
    return _Field(_fixed_width(array, unsigned, nulls).astype(np.uint32), np.uint32(0))


def _timestamp(values: Longs, unit: str, at: Any) -> _Field:
    """Encode timestamps.

    With up to three digits, the field is the milliseconds. With more, they are in the
    variable-length part, and the field has the nanoseconds within the millisecond.
    """
    if unit in ("s", "ms"):
        return _Field(*_halves(values * 1000 if unit == "s" else values))
    count, size = (1000, 1000) if unit == "us" else (1_000_000, 1)
    millis = values // count
    nanos = ((values - millis * count) * size).astype(np.uint32)
    halves = _halves(millis)
    return _Field(nanos, _offset(at), _Tail(2, lambda number, rows: halves[number]))


def _decimal(array: pa.Array, nulls: Any, at: Any) -> _Field:
    """Encode decimals.

    With up to 18 digits, the field is the unscaled value. With more, the variable-length part has
    the unscaled value in as few bytes as possible, big-endian.
    """
    data_type = array.type
    if not pa.types.is_decimal128(data_type):
        array = array.cast(pa.decimal128(data_type.precision, data_type.scale))
    raw = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset :][: 16 * len(array)]
    raw = raw.reshape(-1, 16)
    if nulls is not None:
        raw = np.where(nulls[:, None], np.uint8(0), raw)
    if data_type.precision <= _COMPACT_DIGITS:
        pairs = np.ascontiguousarray(raw[:, :8]).view("<u4")
        return _Field(pairs[:, 0], pairs[:, 1])
    high_first = raw[:, ::-1]
    magnitude = high_first ^ np.where(high_first[:, :1] > 127, np.uint8(255), np.uint8(0))
    first = np.where(magnitude.any(axis=1), (magnitude != 0).argmax(axis=1), 15)
    top = np.take_along_axis(magnitude, first[:, None], axis=1)[:, 0]
    # One more byte where the highest bit would give the wrong sign.
    sizes = 16 - first + (top > 127)
    padded = np.concatenate([high_first, np.zeros_like(high_first)], axis=1)
    kept = (16 - sizes)[:, None] + np.arange(16)
    words = np.ascontiguousarray(np.take_along_axis(padded, kept, axis=1)).view("<u4")
    if nulls is not None:
        sizes = np.where(nulls, 0, sizes)
    return _Field(
        sizes.astype(np.uint32), _offset(at), _Tail(4, lambda number, rows: words[:, number])
    )


def _bytes(array: pa.Array, nulls: Any, at: Any) -> _Field:
    """Encode strings and binaries.

    Up to seven bytes are in the field, with their count in its last byte; longer values are in
    the variable-length part.
    """
    texts = _Texts.of(array, nulls)
    short = texts.sizes <= _INLINE
    sizes = texts.sizes.astype(np.uint32)
    inline = texts.word(1, None) | ((sizes | np.uint32(0x80)) << np.uint32(24))
    low = np.where(short, texts.word(0, None), sizes)
    high = np.where(short, inline, _offset(at))
    if nulls is not None:
        low, high = np.where(nulls, np.uint32(0), low), np.where(nulls, np.uint32(0), high)
    return _Field(low, high, _Tail(np.where(short, 0, (texts.sizes + 7) // 8 * 2), texts.word))


@dataclass(frozen=True)
class _Texts:
    """The bytes of each row: where they start, and how many.

    `words` has a word for each byte offset, so words overlap.
    """

    words: Words
    starts: Longs
    sizes: Longs

    @classmethod
    def of(cls, array: pa.Array, nulls: Any) -> Self:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
            width: Any = np.int64
        else:
            array, width = array.cast(pa.binary()), np.int32
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, width)[array.offset :][: len(array) + 1].astype(np.int64)
        first, last = int(bounds[0]), int(bounds[-1])
        # Padding, so that whole words can be read past the last byte.
        padded = np.zeros(last - first + 16, np.uint8)
        if last > first:
            padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]
        words: Words = np.ndarray((len(padded) - 3,), "<u4", padded, strides=(1,))
        sizes = np.diff(bounds)
        if nulls is not None:
            sizes = np.where(nulls, 0, sizes)
        return cls(words, bounds[:-1] - first, sizes)

    def word(self, number: int, rows: Any) -> Words:
        """One word of some rows (None: all), with zeros after a row's last byte."""
        starts = self.starts if rows is None else self.starts[rows]
        sizes = self.sizes if rows is None else self.sizes[rows]
        remaining = np.clip(sizes - 4 * number, 0, 4)
        return self.words[starts + 4 * number] & _MASKS[remaining]


def _nulls(array: pa.Array) -> Any:
    """Which rows are null; None if none is."""
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _fixed_width(array: pa.Array, dtype: Any, nulls: Any) -> Any:
    """The values of a column of fixed width, 0 where it is null."""
    values = np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]
    return values if nulls is None else np.where(nulls, dtype(0), values)


def _halves(values: Longs) -> tuple[Words, Words]:
    pairs = np.ascontiguousarray(values).view("<u4")
    return pairs[0::2], pairs[1::2]


def _offset(at: Any) -> Any:
    return np.asarray(at).astype(np.uint32)


def _mixed(state: Any, word: Any) -> Any:
    mixed = _rotated(np.multiply(word, _C1, dtype=np.uint32), 15) * _C2
    return _rotated(state ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _final(state: Any) -> Any:
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _rotated(value: Any, bits: int) -> Any:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))
