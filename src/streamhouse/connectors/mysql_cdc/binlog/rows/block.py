"""Reads numbers at many byte offsets of the binlog at once, with NumPy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
