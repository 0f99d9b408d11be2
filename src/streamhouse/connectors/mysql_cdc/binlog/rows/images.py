"""Finds the row images, and the columns in them, of many row events of one table at once.

An image has no length, and the offsets of its columns depend on NULLs and on the lengths of texts.
So the first images of all events are found together, then the second ones, and so on.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.format.decode import Width

IntArray: TypeAlias = npt.NDArray[np.int64]
"""Byte offsets in a block, or other integers."""

_PADDING = bytes(16)


class Block:
    """Bytes with padding after them, so that a word can be read at each offset."""

    def __init__(self, *pieces: bytes) -> None:
        self.data = b"".join([*pieces, _PADDING])
        self.buffer = pa.py_buffer(self.data)
        self._bytes = np.frombuffer(self.data, np.uint8)
        self._views: dict[str, Any] = {}

    def bytes_at(self, at: IntArray) -> npt.NDArray[np.uint8]:
        """The byte at each offset."""
        found: npt.NDArray[np.uint8] = self._bytes.take(at)
        return found

    def words_at(self, at: IntArray, dtype: str) -> Any:
        """The number of type `dtype` that begins at each offset."""
        if dtype not in self._views:
            kind = np.dtype(dtype)
            count = len(self.data) - kind.itemsize + 1
            self._views[dtype] = np.ndarray((count,), kind, self.data, strides=(1,))
        return self._views[dtype][at]

    def lengths_at(self, at: IntArray, size: int) -> IntArray:
        """The little-endian integer of `size` bytes, 1 to 4, at each offset."""
        if size == 1:
            return self.bytes_at(at).astype(np.int64)
        if size == 2:
            lengths: IntArray = self.words_at(at, "<u2").astype(np.int64)
            return lengths
        whole: IntArray = self.words_at(at, "<u4").astype(np.int64)
        return whole & 0xFFFFFF if size == 3 else whole


@dataclass(frozen=True)
class Values:
    """The values of one column in many images.

    `at`: where each begins in the block; with a `length_size`, where its length begins. `lengths`:
    in bytes; None for values of a fixed size. `nulls`: which are NULL; None if none are.
    """

    at: IntArray
    length_size: int
    lengths: IntArray | None
    nulls: npt.NDArray[np.bool_] | None

    def some(self, chosen: npt.NDArray[np.int64]) -> Self:
        """The values of some images."""
        return replace(
            self,
            at=self.at[chosen],
            lengths=None if self.lengths is None else self.lengths[chosen],
            nulls=None if self.nulls is None else self.nulls[chosen],
        )


@dataclass(frozen=True)
class Images:
    """Row images in the order of the binlog.

    `events`: the index of each image's event. `numbers`: its index among the images of that event.
    `columns`: the values of the wanted columns, by the index of the column.
    """

    events: IntArray
    numbers: IntArray
    columns: dict[int, Values]


def find_images(
    block: Block, starts: IntArray, ends: IntArray, widths: Sequence[Width], wanted: Collection[int]
) -> Images:
    """The images between `starts` and `ends` of each event; at least one image in each.

    `widths`: of the table's columns; `wanted`: the indexes of those to find. Raises `ValueError` if
    images do not fill their event exactly.
    """
    steps: list[dict[int, Values]] = []
    events: list[IntArray] = []
    live, at, until = np.arange(len(starts)), starts, ends
    while len(live):
        step, following = _next_images(block, at, widths, wanted)
        if (following > until).any():
            raise ValueError("a row is longer than its event")
        steps.append(step)
        events.append(live)
        more = following < until
        live, at, until = live[more], following[more], until[more]
    numbers = [np.full(len(event), number) for number, event in enumerate(events)]
    return _ordered(steps, np.concatenate(events), np.concatenate(numbers))


def _next_images(
    block: Block, at: IntArray, widths: Sequence[Width], wanted: Collection[int]
) -> tuple[dict[int, Values], IntArray]:
    """The columns of the images at some offsets, and where the images end."""
    found: dict[int, Values] = {}
    bitmap = (len(widths) + 7) // 8
    bitmaps = [block.bytes_at(at + index) for index in range(bitmap)]
    some_null = [bool(bits.any()) for bits in bitmaps]
    at = at + bitmap
    for index, (size, length_size) in enumerate(widths):
        nulls = None
        if some_null[index >> 3]:
            mask = (bitmaps[index >> 3] >> (index & 7) & 1).astype(np.bool_)
            nulls = mask if mask.any() else None
        lengths = block.lengths_at(at, length_size) if length_size else None
        if lengths is not None and nulls is not None:
            lengths[nulls] = 0
        if index in wanted:
            found[index] = Values(at, length_size, lengths, nulls)
        step = size + length_size if lengths is None else lengths + length_size
        at = at + (step if nulls is None else np.where(nulls, 0, step))
    return found, at


def _ordered(steps: Sequence[dict[int, Values]], events: IntArray, numbers: IntArray) -> Images:
    if len(steps) == 1:
        return Images(events, numbers, steps[0])
    # By event, then by number. No sort is needed: the index of each image is known.
    counts = np.bincount(events)
    firsts = np.cumsum(counts) - counts
    order = np.empty(len(events), np.int64)
    order[firsts[events] + numbers] = np.arange(len(events))
    columns = {index: _joined([step[index] for step in steps], order) for index in steps[0]}
    return Images(events[order], numbers[order], columns)


def _joined(parts: Sequence[Values], order: npt.NDArray[np.int64]) -> Values:
    lengths = nulls = None
    if parts[0].lengths is not None:
        lengths = np.concatenate([part.lengths for part in parts if part.lengths is not None])
    if any(part.nulls is not None for part in parts):
        nulls = np.concatenate(
            [
                np.zeros(len(part.at), np.bool_) if part.nulls is None else part.nulls
                for part in parts
            ]
        )
    at = np.concatenate([part.at for part in parts])
    return Values(at, parts[0].length_size, lengths, nulls).some(order)
