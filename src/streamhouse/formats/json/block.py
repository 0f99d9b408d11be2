"""Many JSON records in one block of bytes: finds their values, and reads texts and digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Numbers: TypeAlias = np.ndarray[Any, Any]

_PAD = 16
_MOST_BYTES = 256 << 20
_QUOTE = ord('"')
_ZEROS, _SIXES = 0x3030303030303030, 0x4646464646464646
_HIGH_BITS = 0x8080808080808080
_KEPT = np.array([(1 << 64) - (1 << 64 - 8 * count) for count in range(9)], np.uint64)
"""The bits of the last characters of a word, by their number."""
_FILLED = np.uint64(_ZEROS) & ~_KEPT
"""Leading zeros instead of what stands before these characters."""
MOST_DIGITS = 16


class Irregular(Exception):
    """The records must be decoded one by one."""


@dataclass(frozen=True)
class Field:
    """A field of the first record: `before` its value, from the end of the one before it.

    `quotes`: how many quotes of a record stand before the value.
    """

    name: str
    before: bytes
    text: bool
    quotes: int


@dataclass(frozen=True)
class Shape:
    """The fields of a record, and the text after the last value."""

    fields: tuple[Field, ...]
    after: bytes
    quotes: int


@dataclass(frozen=True)
class Block:
    """Records one after the other, each from `starts` to `ends`; `words[i]` has 8 bytes from i."""

    data: Numbers
    words: Numbers
    starts: Numbers
    ends: Numbers

    @classmethod
    def of(cls, records: Sequence[bytes | None]) -> Block:
        try:
            lengths = np.fromiter(map(len, records), np.int64, len(records))  # type: ignore[arg-type]
        except TypeError:
            raise Irregular from None
        if lengths.sum() > _MOST_BYTES:
            raise Irregular
        padding = b"\0" * _PAD
        joined = padding + b"".join(records) + padding  # type: ignore[arg-type]
        if b"\\" in joined:
            raise Irregular
        data = np.frombuffer(joined, np.uint8)
        inner = data[_PAD:-_PAD]
        if inner.min() < ord(" "):
            raise Irregular
        if inner.max() > 127:
            try:
                joined.decode()
            except UnicodeDecodeError:
                raise Irregular from None
        ends = np.cumsum(lengths) + _PAD
        words = np.ndarray((len(joined) - 7,), "<u8", joined, strides=(1,))
        return cls(data, words, ends - lengths, ends)

    def values(self, shape: Shape) -> list[tuple[Numbers, Numbers]]:
        """Where the values of each field begin and end; checks all that is between them."""
        quotes = np.flatnonzero(self.data == _QUOTE)
        if len(quotes) != len(self.starts) * shape.quotes:
            raise Irregular
        by_record = quotes.reshape(-1, shape.quotes)
        if (by_record[:, 0] < self.starts).any() or (by_record[:, -1] >= self.ends).any():
            raise Irregular
        end, found = self.starts, list[tuple[Numbers, Numbers]]()
        lasts = [*(field.before for field in shape.fields[1:]), shape.after]
        for field, following in zip(shape.fields, lasts, strict=True):
            start = self._after(end, field.before)
            if field.text:
                end = by_record[:, field.quotes]
            elif field.quotes < shape.quotes:
                # Before the next quote stands the punctuation that follows the number.
                end = by_record[:, field.quotes] - following.index(b'"')
            else:
                end = self.ends - len(following)
            if (end < start).any():
                raise Irregular
            found.append((start, end))
        if (self._after(end, shape.after) != self.ends).any():
            raise Irregular
        return found

    def _after(self, at: Numbers, text: bytes) -> Numbers:
        """Behind `text`, which must stand at these places."""
        # Places grow from record to record.
        if at[-1] + len(text) > len(self.words):
            raise Irregular
        for first in range(0, len(text), 8):
            part = text[first : first + 8]
            words = self.words[at + first if first else at]
            if len(part) < 8:
                words &= np.uint64((1 << 8 * len(part)) - 1)
            if (words != np.uint64(int.from_bytes(part, "little"))).any():
                raise Irregular
        return at + len(text)

    def texts(self, starts: Numbers, ends: Numbers) -> pa.Array:
        """The texts between these places."""
        lengths = ends - starts
        offsets = np.zeros(len(starts) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        least, most = int(lengths.min()), int(lengths.max())
        if least == most >= 8:
            cut = np.empty((len(starts), most), np.uint8)
            for first in (*range(0, most - 8, 8), most - 8):
                words = self.words[starts + first]
                cut[:, first : first + 8] = words.view(np.uint8).reshape(-1, 8)
        else:
            cut = self.data[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(cut)]
        return pa.Array.from_buffers(pa.string(), len(starts), buffers)

    def digits(self, starts: Numbers, ends: Numbers) -> Numbers:
        """The numbers of up to 16 digits; raises `Irregular` for anything else."""
        lengths = ends - starts
        if not len(lengths) or lengths.min() < 1 or lengths.max() > MOST_DIGITS:
            raise Irregular
        found = eight_digits(self.words[ends - 8], np.minimum(lengths, 8))
        if lengths.max() > 8:
            more = eight_digits(self.words[ends - 16], np.maximum(lengths - 8, 0))
            found = found + more * np.uint64(100_000_000)
        return found.astype(np.int64)


def eight_digits(words: Numbers, count: Numbers) -> Numbers:
    """The numbers of the last `count` (0 to 8) of the eight digits in each word."""
    words = (words & _KEPT[count]) | _FILLED[count]
    zeros, sixes = np.uint64(_ZEROS), np.uint64(_SIXES)
    if (((words + sixes) | (words - zeros)) & np.uint64(_HIGH_BITS)).any():
        raise Irregular
    values = words - zeros
    values = (values * np.uint64(10) + (values >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    values = (values * np.uint64(100) + (values >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    values = values * np.uint64(10_000) + (values >> np.uint64(32))
    return values & np.uint64(0xFFFFFFFF)
