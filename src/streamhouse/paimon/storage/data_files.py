"""Data files: where they lie, which ones a commit message adds, and what values they say they have.

A commit message travels as the body of Paimon's `CommitMessageSerializer`, version 14. The
statistics of a file are two rows in Paimon's `BinaryRow` layout, part of the file's metadata.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.paimon.storage.split_files import (
    SplitFile,
    SplitFrame,
    file_rows,
    integer,
    variable,
)

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_INT_SIZE = 4
_WORDS = {pa.int8(): "<b", pa.int16(): "<h", pa.int32(): "<i", pa.int64(): "<q"}
_COMPACT_DIGITS = 18
"""DECIMAL values of more digits do not stand in their word but behind the words."""


@dataclass(frozen=True)
class NewFiles:
    """The data files that a commit message adds to one bucket."""

    partition: bytes
    bucket: int
    total_buckets: int | None
    files: tuple[SplitFile, ...]

    @classmethod
    def parse(cls, message: bytes) -> NewFiles:
        """Of `CommitMessage.serialize()`."""
        size = integer(message, 0)
        at = _INT_SIZE + size
        partition, bucket = message[_INT_SIZE:at], integer(message, at)
        at += _INT_SIZE
        total = integer(message, at + 1) if message[at] else None
        at += 1 + (_INT_SIZE if message[at] else 0)
        rows, _ = file_rows(message, at)
        return cls(partition, bucket, total, tuple(SplitFile(row) for row in rows))

    @property
    def place(self) -> tuple[bytes, int]:
        """The serialised partition, and the bucket."""
        return self.partition, self.bucket

    def split(self, file: SplitFile, folder: str) -> SplitFrame:
        """A split for the rows of one file as they were written, which lies in `folder`."""
        return SplitFrame.written(self.partition, self.bucket, self.total_buckets, folder, file)


def data_files(table: Table, folder: str) -> Iterator[tuple[str, str]]:
    """(folder, name) of all files in the buckets below a folder of a table."""
    for name, is_folder in table.files.names(folder):
        if not is_folder:
            if "/bucket-" in folder:
                yield folder, name
        elif name.startswith("bucket-") or "=" in name:
            yield from data_files(table, f"{folder}/{name}")


def magnitudes(file: SplitFile, schema: pa.Schema, wanted: Sequence[str]) -> dict[str, int | None]:
    """The greatest absolute value of each wanted column in a file, DECIMAL as the unscaled number.

    `schema` has the columns of the file's version of the table. None stands for a value that the
    file does not tell; a column of nulls, or one that the file is too old for, has 0.
    """
    stats, given = file.value_stats, file.value_stats_columns
    names = schema.names if given is None else _texts(given)
    least, greatest, nulls = (variable(stats, 8 * place) for place in (1, 2, 3))
    found: dict[str, int | None] = {}
    for name in wanted:
        if schema.get_field_index(name) < 0:
            found[name] = 0
        elif name not in names:
            found[name] = None
        else:
            place, kind = names.index(name), schema.field(name).type
            low, high = _value(least, place, kind), _value(greatest, place, kind)
            if low is None or high is None:
                found[name] = 0 if _long(nulls, place) == file.rows else None
            else:
                found[name] = max(abs(low), abs(high))
    return found


def _value(row: bytes, place: int, kind: pa.DataType) -> int | None:
    """A number of a serialised row: its arity, a header with a bit for each null, then words."""
    arity, row = integer(row, 0), row[_INT_SIZE:]
    # The first byte of the header is the row kind.
    if row[1 + place // 8] >> place % 8 & 1:
        return None
    at = (arity + 8 + 63) // 64 * 8 + 8 * place
    if not pa.types.is_decimal(kind):
        return int(struct.unpack_from(_WORDS[kind], row, at)[0])
    if kind.precision <= _COMPACT_DIGITS:
        return int(struct.unpack_from("<q", row, at)[0])
    return int.from_bytes(variable(row, at), "big", signed=True)


def _elements_at(array: bytes) -> tuple[int, int]:
    """How many elements an array has, and where they begin."""
    (count,) = struct.unpack_from("<i", array)
    return count, 4 + (count + 31) // 32 * 4


def _long(array: bytes, place: int) -> int | None:
    """An element of an array of BIGINT; None for a null."""
    count, at = _elements_at(array)
    if place >= count or array[4 + place // 8] >> place % 8 & 1:
        return None
    return int(struct.unpack_from("<q", array, at + 8 * place)[0])


def _texts(array: bytes) -> list[str]:
    count, at = _elements_at(array)
    return [variable(array, at + 8 * place).decode() for place in range(count)]
