"""Bytes of the binlog as NumPy arrays: numbers at any byte, of many places at once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Places: TypeAlias = npt.NDArray[np.int64]
"""Byte offsets in a block."""

_PADDING = bytes(16)


class Block:
    """Some bytes, followed by padding so that whole words can be read at each of them."""

    def __init__(self, *pieces: bytes) -> None:
        self.data = b"".join([*pieces, _PADDING])
        self.buffer = pa.py_buffer(self.data)
        self._bytes = np.frombuffer(self.data, np.uint8)
        self._views: dict[str, Any] = {}

    def bytes_at(self, at: Places) -> npt.NDArray[np.uint8]:
        """The byte at each place."""
        found: npt.NDArray[np.uint8] = self._bytes.take(at)
        return found

    def words_at(self, at: Places, dtype: str) -> Any:
        """The number of the type `dtype` that begins at each place."""
        if dtype not in self._views:
            kind = np.dtype(dtype)
            count = len(self.data) - kind.itemsize + 1
            self._views[dtype] = np.ndarray((count,), kind, self.data, strides=(1,))
        return self._views[dtype][at]

    def lengths_at(self, at: Places, size: int) -> Places:
        """The length that `size` bytes at each place are."""
        if size == 1:
            return self.bytes_at(at).astype(np.int64)
        if size == 2:
            lengths: Places = self.words_at(at, "<u2").astype(np.int64)
            return lengths
        whole: Places = self.words_at(at, "<u4").astype(np.int64)
        return whole & 0xFFFFFF if size == 3 else whole
