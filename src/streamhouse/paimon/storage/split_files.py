"""Reads and filters the data files of a serialised split, without decoding the rest of it.

The format is Paimon's `SplitSerializer`, version 1, which the Java core, the Rust core and pypaimon
share. pypaimon is not used here: importing it takes half a second, and its decoder drops fields
that it does not know. This module keeps the bytes of each file's metadata as they are.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from streamhouse.errors import StreamhouseError

_HEAD = struct.Struct(">qii qiq i")
"""Frame magic, version and type; split magic, version and snapshot; size of the partition."""
_FRAME_MAGIC, _FRAME_VERSION, _DATA_SPLIT = 0x53504C49545F5631, 1, 1
_SPLIT_MAGIC, _SPLIT_VERSIONS = -2394839472490812314, (8, 9)
_SNAPSHOT = slice(28, 36)
_ANY_SNAPSHOT = 1
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")
_FIELDS_AT = 8
"""A file's metadata is a BinaryRow: a word of null bits, then a word per field, little-endian."""
_NAME, _SIZE, _ROWS, _VALUE_STATS, _MIN_SEQUENCE = 0, 1, 2, 6, 7
_SCHEMA_ID, _LEVEL, _DELETED, _SOURCE, _VALUE_STATS_COLUMNS, _EXTERNAL_PATH = 9, 10, 13, 15, 16, 17
_COMPACTED = 1
"""The file source of files that a compaction wrote; 0: an append."""


@dataclass(frozen=True)
class SplitFile:
    """One data file of a split: its metadata and its deletion file, both serialised."""

    row: bytes
    deletion: bytes = b"\0"

    @property
    def name(self) -> str:
        """The file's name, or its whole path if it lies outside its bucket's folder."""
        return self._text(_EXTERNAL_PATH) or self._text(_NAME) or ""

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._long(_SIZE)

    @property
    def rows(self) -> int:
        return self._long(_ROWS)

    @property
    def schema_id(self) -> int:
        return self._long(_SCHEMA_ID)

    @property
    def level(self) -> int:
        """The level of the file in its bucket's LSM tree; 0 for files not yet compacted."""
        (level,) = struct.unpack_from("<i", self.row, _FIELDS_AT + 8 * _LEVEL)
        return int(level)

    @property
    def deleted_rows(self) -> int:
        """How many of its rows are retractions (`-U`, `-D`); 0 if its writer did not count them."""
        return 0 if self._is_null(_DELETED) else self._long(_DELETED)

    @property
    def is_compacted(self) -> bool:
        """Whether a compaction wrote it; False if its writer did not say."""
        return not self._is_null(_SOURCE) and self.row[_FIELDS_AT + 8 * _SOURCE] == _COMPACTED

    @property
    def min_sequence(self) -> int:
        """The smallest sequence number of its rows."""
        return self._long(_MIN_SEQUENCE)

    @property
    def value_stats(self) -> bytes:
        """The serialised row of its columns' minimum values, maximum values and null counts."""
        return self._bytes(_VALUE_STATS) or b""

    @property
    def value_stats_columns(self) -> bytes | None:
        """The serialised array of the columns that `value_stats` covers; None: all columns."""
        return self._bytes(_VALUE_STATS_COLUMNS)

    def _text(self, field: int) -> str | None:
        value = self._bytes(field)
        return None if value is None else value.decode()

    def _bytes(self, field: int) -> bytes | None:
        if self._is_null(field):
            return None
        return variable(self.row, _FIELDS_AT + 8 * field)

    def _is_null(self, field: int) -> bool:
        return bool(self.row[1 + field // 8] >> field % 8 & 1)

    def _long(self, field: int) -> int:
        (value,) = struct.unpack_from("<q", self.row, _FIELDS_AT + 8 * field)
        return int(value)


@dataclass(frozen=True)
class SplitFrame:
    """A split: the bytes before its files (`head`), the files, and how to read them.

    A `streaming` split gives the rows of its files as they were written, any other split the merged
    rows. The files of a `raw` split hold each key once and no deletes. `vectors` says whether the
    files have deletion vectors.
    """

    head: bytes
    folder: str
    files: tuple[SplitFile, ...]
    vectors: bool
    streaming: bool
    raw: bool

    @classmethod
    def parse(cls, split: bytes) -> Self:
        """Parse the bytes of `Split.serialize()`; `StreamhouseError` for an unknown format."""
        magic, version, kind, split_magic, split_version, *_ = _HEAD.unpack_from(split)
        is_split = (magic, version, kind, split_magic) == (
            _FRAME_MAGIC,
            _FRAME_VERSION,
            _DATA_SPLIT,
            _SPLIT_MAGIC,
        )
        if not is_split or split_version not in _SPLIT_VERSIONS:
            raise StreamhouseError(
                f"a split of format {version}/{kind}/{split_version} cannot be read; Streamhouse "
                f"supports {_FRAME_VERSION}/{_DATA_SPLIT}/{_SPLIT_VERSIONS}: install the version "
                "of pypaimon-rust that it was built for"
            )
        folder, at = _folder(split, _bucket_at(split) + _INT.size)
        at += 1 + (_INT.size if split[at] else 0)
        if integer(split, at) or split[at + _INT.size]:
            raise StreamhouseError("a split with files of an earlier state cannot be read")
        at += _INT.size + 1
        head = split[:at]
        rows, at = file_rows(split, at)
        vectors = bool(split[at])
        at += 1
        deletions = [b"\0"] * len(rows)
        if vectors:
            at += _INT.size
            for number in range(len(rows)):
                end = _deletion_end(split, at)
                deletions[number], at = split[at:end], end
        files = tuple(SplitFile(*parts) for parts in zip(rows, deletions, strict=True))
        return cls(head, folder, files, vectors, bool(split[at]), bool(split[at + 1]))

    @classmethod
    def written(
        cls,
        partition: bytes,
        bucket: int,
        total_buckets: int | None,
        folder: str,
        file: SplitFile,
    ) -> Self:
        """A streaming split of one file in `folder`, which gives its rows as they were written."""
        path = folder.encode()
        head = [
            _HEAD.pack(
                _FRAME_MAGIC,
                _FRAME_VERSION,
                _DATA_SPLIT,
                _SPLIT_MAGIC,
                _SPLIT_VERSIONS[-1],
                _ANY_SNAPSHOT,
                len(partition),
            ),
            partition,
            _INT.pack(bucket),
            _SHORT.pack(len(path)) + path,
            b"\0" if total_buckets is None else b"\1" + _INT.pack(total_buckets),
            _INT.pack(0) + b"\0",
        ]
        return cls(b"".join(head), folder, (file,), vectors=False, streaming=True, raw=False)

    @property
    def bucket_id(self) -> tuple[bytes, int]:
        """The serialised partition, and the bucket."""
        end = _bucket_at(self.head)
        return self.head[_HEAD.size : end], integer(self.head, end)

    @property
    def total_buckets(self) -> int:
        """How many buckets the partition was written with; -1: unknown."""
        _, end = _folder(self.head, _bucket_at(self.head) + _INT.size)
        return integer(self.head, end + 1) if self.head[end] else -1

    def paths(self) -> list[str]:
        """The paths of the files."""
        names = [file.name for file in self.files]
        return [name if "/" in name else f"{self.folder}/{name}" for name in names]

    def serialize(self) -> bytes:
        """The bytes that `parse` takes."""
        parts = [self.head, _INT.pack(len(self.files))]
        for file in self.files:
            parts += [_INT.pack(len(file.row)), file.row]
        parts.append(bytes([self.vectors]))
        if self.vectors:
            parts += [_INT.pack(len(self.files)), *(file.deletion for file in self.files)]
        parts.append(bytes([self.streaming, self.raw]))
        return b"".join(parts)

    def moved(self, old: str, new: str) -> Self:
        """The same split with its files below the folder `new` instead of `old`."""
        folder = self.folder.replace(old, new, 1)
        at, path = _bucket_at(self.head) + _INT.size, folder.encode()
        _, end = _folder(self.head, at)
        head = self.head[:at] + _SHORT.pack(len(path)) + path + self.head[end:]
        return replace(self, head=head, folder=folder)

    def only(self, predicate: Callable[[SplitFile], bool]) -> Self:
        """The same split with only the files for which `predicate` is true."""
        return replace(self, files=tuple(file for file in self.files if predicate(file)))

    def each_written(self) -> list[Self]:
        """A streaming split for each file, without its deletion vector; the oldest file first."""
        return [
            replace(
                self,
                files=(replace(file, deletion=b"\0"),),
                vectors=False,
                streaming=True,
                raw=False,
            )
            for file in sorted(self.files, key=lambda file: file.min_sequence)
        ]

    def on_levels(self, *levels: int) -> Self:
        """The same split with the files of some levels."""
        return self.only(lambda file: file.level in levels)


def variable(row: bytes, at: int) -> bytes:
    """The string or bytes in a BinaryRow or BinaryArray whose word is at offset `at`."""
    word = row[at : at + 8]
    if word[7] & 0x80:
        return word[: word[7] & 0x7F]
    size, start = struct.unpack("<ii", word)
    return row[start : start + size]


def integer(text: bytes, at: int) -> int:
    """An INT as Java's `DataOutput` writes it, big-endian."""
    return int(_INT.unpack_from(text, at)[0])


def file_rows(text: bytes, at: int) -> tuple[list[bytes], int]:
    """The serialised metadata of a list of data files that begins at `at`, and where it ends."""
    count = integer(text, at)
    at += _INT.size
    rows = []
    for _ in range(count):
        size = integer(text, at)
        rows.append(text[at + _INT.size : at + _INT.size + size])
        at += _INT.size + size
    return rows, at


def _deletion_end(split: bytes, at: int) -> int:
    if not split[at]:
        return at + 1
    at += 1
    return at + _SHORT.size + _short(split, at) + 3 * 8


def _short(split: bytes, at: int) -> int:
    return int(_SHORT.unpack_from(split, at)[0])


def _bucket_at(split: bytes) -> int:
    """Where the number of the bucket is, after the partition; its folder follows."""
    *_, partition = _HEAD.unpack_from(split)
    return _HEAD.size + int(partition)


def _folder(split: bytes, at: int) -> tuple[str, int]:
    """The folder at an offset, and where it ends."""
    start = at + _SHORT.size
    end = start + _short(split, at)
    return split[start:end].decode(), end


def without_snapshot(split: bytes) -> bytes:
    """A serialised split without its snapshot id: the bytes that determine its rows."""
    return split[: _SNAPSHOT.start] + split[_SNAPSHOT.stop :]
