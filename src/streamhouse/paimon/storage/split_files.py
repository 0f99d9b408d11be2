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

_HEAD = struct.Struct(">qii qiq")
"""Frame magic, version and type; split magic, version and snapshot."""
_FRAME_VERSION, _DATA_SPLIT = 1, 1
_FRAME = (0x53504C49545F5631, _FRAME_VERSION, _DATA_SPLIT, -2394839472490812314)
_SPLIT_VERSIONS = (8, 9)
_SNAPSHOT = slice(28, 36)
_ANY_SNAPSHOT = 1
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")
_WORD, _FIELDS_AT = 8, 8
"""A file's metadata is a BinaryRow: a word of null bits, then a word per field, little-endian."""
_NAME, _SIZE, _ROWS, _VALUE_STATS, _MIN_SEQUENCE = 0, 1, 2, 6, 7
_SCHEMA_ID, _LEVEL, _DELETED, _SOURCE, _VALUE_STATS_COLUMNS, _EXTERNAL_PATH = 9, 10, 13, 15, 16, 17
_COMPACTED = 1
"""The file source of files that a compaction wrote; 0: an append."""
NO_VECTOR = b"\0"
"""The serialised deletion file of a data file that has none."""


class Reader:
    """Reads what Java's `DataOutput` has written, from its beginning; numbers are big-endian."""

    def __init__(self, text: bytes) -> None:
        self._text, self._at = text, 0

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        """The numbers of a struct."""
        self._at += form.size
        return form.unpack_from(self._text, self._at - form.size)

    def integer(self) -> int:
        """An INT."""
        self._at += _INT.size
        return int(_INT.unpack_from(self._text, self._at - _INT.size)[0])

    def is_set(self) -> bool:
        """A BOOLEAN."""
        self._at += 1
        return bool(self._text[self._at - 1])

    def taken(self, size: int) -> bytes:
        """So many bytes."""
        self._at += size
        return self._text[self._at - size : self._at]

    def sized(self) -> bytes:
        """Bytes after an INT with their number."""
        return self.taken(self.integer())

    def rows(self) -> list[bytes]:
        """The serialised metadata of a list of data files."""
        text, at, found = self._text, self._at + _INT.size, []
        for _ in range(self.integer()):
            start = at + _INT.size
            at = start + _INT.unpack_from(text, at)[0]
            found.append(text[start:at])
        self._at = at
        return found

    def deletion(self) -> bytes:
        """A serialised deletion file: its path, and three numbers, or `NO_VECTOR`."""
        start = self._at
        if self.is_set():
            self.taken(self.numbers(_SHORT)[0] + 3 * _WORD)
        return self._text[start : self._at]


@dataclass(frozen=True)
class SplitFile:
    """One data file of a split: its metadata and its deletion file, both serialised."""

    row: bytes
    deletion: bytes = NO_VECTOR

    @property
    def name(self) -> str:
        """The file's name, or its whole path if it lies outside its bucket's folder."""
        return (self._bytes(_EXTERNAL_PATH) or self._bytes(_NAME) or b"").decode()

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._number(_SIZE)

    @property
    def rows(self) -> int:
        return self._number(_ROWS)

    @property
    def schema_id(self) -> int:
        return self._number(_SCHEMA_ID)

    @property
    def level(self) -> int:
        """The level of the file in its bucket's LSM tree; 0 for files not yet compacted."""
        return self._number(_LEVEL, "<i")

    @property
    def deleted_rows(self) -> int:
        """How many of its rows are retractions (`-U`, `-D`); 0 if its writer did not count them."""
        return 0 if self._is_null(_DELETED) else self._number(_DELETED)

    @property
    def is_compacted(self) -> bool:
        """Whether a compaction wrote it; False if its writer did not say."""
        return not self._is_null(_SOURCE) and self._number(_SOURCE, "<b") == _COMPACTED

    @property
    def min_sequence(self) -> int:
        """The smallest sequence number of its rows."""
        return self._number(_MIN_SEQUENCE)

    @property
    def value_stats(self) -> bytes:
        """The serialised row of its columns' minimum values, maximum values and null counts."""
        return self._bytes(_VALUE_STATS) or b""

    @property
    def value_stats_columns(self) -> bytes | None:
        """The serialised array of the columns that `value_stats` covers; None: all columns."""
        return self._bytes(_VALUE_STATS_COLUMNS)

    def _bytes(self, field: int) -> bytes | None:
        return None if self._is_null(field) else variable(self.row, _FIELDS_AT + _WORD * field)

    def _is_null(self, field: int) -> bool:
        return bool(self.row[1 + field // 8] >> field % 8 & 1)

    def _number(self, field: int, form: str = "<q") -> int:
        return int(struct.unpack_from(form, self.row, _FIELDS_AT + _WORD * field)[0])


@dataclass(frozen=True)
class SplitFrame:
    """A split: its bucket, the files, and how to read them.

    `partition` is serialised. `total_buckets` is how many buckets the partition was written with;
    None: unknown. A `streaming` split gives the rows of its files as they were written, any other
    split the merged rows. The files of a `raw` split hold each key once and no deletes. `vectors`
    says whether the files have deletion vectors.
    """

    partition: bytes
    bucket: int
    total_buckets: int | None
    folder: str
    files: tuple[SplitFile, ...]
    vectors: bool = False
    streaming: bool = False
    raw: bool = False
    snapshot: int = _ANY_SNAPSHOT
    version: int = _SPLIT_VERSIONS[-1]

    @classmethod
    def parse(cls, split: bytes) -> Self:
        """Parse the bytes of `Split.serialize()`; `StreamhouseError` for an unknown format."""
        text = Reader(split)
        *frame, version, snapshot = text.numbers(_HEAD)
        if tuple(frame) != _FRAME or version not in _SPLIT_VERSIONS:
            raise StreamhouseError(
                f"a split of format {frame[1]}/{frame[2]}/{version} cannot be read; Streamhouse "
                f"supports {_FRAME_VERSION}/{_DATA_SPLIT}/{_SPLIT_VERSIONS}: install the version "
                "of pypaimon-rust that it was built for"
            )
        partition, bucket = text.sized(), text.integer()
        folder = text.taken(text.numbers(_SHORT)[0]).decode()
        total_buckets = text.integer() if text.is_set() else None
        if text.integer() or text.is_set():
            raise StreamhouseError("a split with files of an earlier state cannot be read")
        rows = text.rows()
        vectors, deletions = text.is_set(), [NO_VECTOR] * len(rows)
        if vectors:
            # Their number, which is that of the files.
            text.integer()
            deletions = [text.deletion() for _ in rows]
        files = tuple(map(SplitFile, rows, deletions))
        streaming, raw = text.is_set(), text.is_set()
        return cls(
            partition, bucket, total_buckets, folder, files,
            vectors, streaming, raw, snapshot, version,
        )  # fmt: skip

    @classmethod
    def added(cls, message: bytes) -> Self:
        """The data files that a serialised commit message adds to a bucket, without its folder.

        The bytes are those of Paimon's `CommitMessageSerializer`, version 14.
        """
        text = Reader(message)
        partition, bucket = text.sized(), text.integer()
        total_buckets = text.integer() if text.is_set() else None
        files = tuple(map(SplitFile, text.rows()))
        return cls(partition, bucket, total_buckets, "", files, streaming=True)

    @property
    def bucket_id(self) -> tuple[bytes, int]:
        """The serialised partition, and the bucket."""
        return self.partition, self.bucket

    def paths(self) -> list[str]:
        """The paths of the files."""
        names = [file.name for file in self.files]
        return [name if "/" in name else f"{self.folder}/{name}" for name in names]

    def serialize(self) -> bytes:
        """The bytes that `parse` takes."""
        path, total = self.folder.encode(), self.total_buckets
        parts = [
            _HEAD.pack(*_FRAME, self.version, self.snapshot),
            _sized(self.partition),
            _INT.pack(self.bucket),
            _SHORT.pack(len(path)) + path,
            b"\0" if total is None else b"\1" + _INT.pack(total),
            # No files of an earlier state.
            _INT.pack(0) + b"\0",
            _INT.pack(len(self.files)),
            *(_sized(file.row) for file in self.files),
            bytes([self.vectors]),
        ]
        if self.vectors:
            parts += [_INT.pack(len(self.files)), *(file.deletion for file in self.files)]
        return b"".join([*parts, bytes([self.streaming, self.raw])])

    def moved(self, old: str, new: str) -> Self:
        """The same split with its files below the folder `new` instead of `old`."""
        return replace(self, folder=self.folder.replace(old, new, 1))

    def only(self, predicate: Callable[[SplitFile], bool]) -> Self:
        """The same split with only the files for which `predicate` is true."""
        return replace(self, files=tuple(file for file in self.files if predicate(file)))

    def each_written(self) -> list[Self]:
        """A streaming split for each file, without its deletion vector; the oldest file first."""
        return [
            replace(
                self,
                files=(replace(file, deletion=NO_VECTOR),),
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


def _sized(content: bytes) -> bytes:
    """Bytes after an INT with their number."""
    return _INT.pack(len(content)) + content


def without_snapshot(split: bytes) -> bytes:
    """A serialised split without its snapshot id: the bytes that determine its rows."""
    return split[: _SNAPSHOT.start] + split[_SNAPSHOT.stop :]
