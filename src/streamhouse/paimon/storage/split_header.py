"""The header of a serialised split: its snapshot, its partition and its bucket.

After a magic number and a version come the snapshot's id, the partition (length, bytes), the
bucket's number, its folder (length, bytes), and how many buckets the partition has, if known.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SNAPSHOT = slice(28, 36)
_INT, _LENGTH, _TOTAL = struct.Struct(">i"), struct.Struct(">H"), struct.Struct(">?i")


@dataclass(frozen=True)
class BucketHeader:
    """The bucket of a serialised split: its number and its folder.

    `total` is how many buckets the partition was written with; -1: unknown.
    """

    number: int
    folder: str
    total: int

    @classmethod
    def parse(cls, split: bytes) -> BucketHeader:
        """From a serialised split."""
        (partition,) = _INT.unpack_from(split, _SNAPSHOT.stop)
        at = _SNAPSHOT.stop + _INT.size + partition
        (number,) = _INT.unpack_from(split, at)
        (length,) = _LENGTH.unpack_from(split, at + _INT.size)
        start = at + _INT.size + _LENGTH.size
        end = start + length
        is_known, total = _TOTAL.unpack_from(split, end)
        return cls(number, split[start:end].decode(), total if is_known else -1)


def bucket_folder(split: bytes) -> str:
    """The folder of a serialised split's bucket."""
    return BucketHeader.parse(split).folder


def without_snapshot(split: bytes) -> bytes:
    """A serialised split without its snapshot id: the bytes that determine its rows."""
    return split[: _SNAPSHOT.start] + split[_SNAPSHOT.stop :]
