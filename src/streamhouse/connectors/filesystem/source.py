"""Files as a source: those of a folder now, and, if it is monitored, those that appear later."""

from __future__ import annotations

import base64
import hashlib
import time
import zlib
from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamhouse.connectors.bad_records import Replay, SkippingSource
from streamhouse.connectors.filesystem.file_readers import FileReader
from streamhouse.connectors.filesystem.folders import ListedFile, folder_of
from streamhouse.connectors.filesystem.options import parse
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import DataLossError
from streamhouse.source import Lag, Offset

_BATCH_FILES = 1_000
_BATCH_BYTES = 1 << 30
_HASH_BYTES = 8


class FilesystemSource(SkippingSource):
    """A `Source` that reads each file once, in the order of their modification times.

    An offset has the files of its batch, a hash of the name of each file that has been read, about
    11 bytes a file, and the batch up to which bad records have been read again.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self._options = parse(spec.options)
        self._reader = FileReader(
            self._options, dict(spec.options), spec.columns, spec.partitioned_by
        )
        self._bad_records = self._reader.bad_records
        self._folder = folder_of(self._options.path, self._options.store)
        self._known: tuple[str, frozenset[bytes]] = ("", frozenset())
        self._listed_s = 0.0
        self._files: list[ListedFile] = []
        self._unread: tuple[tuple[str, float], list[ListedFile]] = (("", 0.0), [])

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def initial_offset(self) -> Offset:
        return {}

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        unread = self._unread_files(start)
        batch: list[ListedFile] = []
        size = 0
        for file in unread[:_BATCH_FILES]:
            if batch and size + file.size > _BATCH_BYTES:
                break
            batch.append(file)
            size += file.size
        replayed = max(_replayed(start), self.requested())
        if not batch and replayed == _replayed(start):
            return start
        seen = self._seen(start) | {_hash(file.name) for file in batch}
        files = [[file.name, file.size, file.modified_ms] for file in batch]
        offset: Offset = {"files": files, "seen": _packed(seen)}
        return offset if replayed < 0 else {**offset, "replayed": replayed}

    def partitions(
        self, start: Offset, end: Offset, parallelism: int = 1
    ) -> Sequence[tuple[ListedFile, ...] | Replay]:
        if not end or start == end:
            return []
        files = [ListedFile(*pair) for pair in end["files"]]
        if self._seen(start) | {_hash(file.name) for file in files} != self._seen(end):
            raise DataLossError(
                "the files between two offsets are known for adjacent offsets only; run the "
                "script with --from-scratch"
            )
        count = min(parallelism, len(files))
        bounds = [len(files) * number // count for number in range(count + 1)] if files else []
        partitions: list[tuple[ListedFile, ...] | Replay] = [
            tuple(files[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)
        ]
        if _replayed(end) > _replayed(start):
            partitions.append(Replay(_replayed(start), _replayed(end)))
        return partitions

    def read(self, partition: tuple[ListedFile, ...] | Replay) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Replay):
            yield from self._reader.read_replayed(self.replayed(partition))
            return
        for file in partition:
            yield from self._reader.read(file)

    def finished(self, offset: Offset) -> bool:
        return self._options.monitor_ms is None and not self._has_unread(offset)

    def caught_up(self, offset: Offset) -> bool:
        """Whether there is no file to read after `offset`; looks at the folder now."""
        self._listed_s = 0.0
        return not self._has_unread(offset)

    def _has_unread(self, offset: Offset) -> bool:
        """Whether files are unread at `offset`, or bad records are to be read again."""
        return bool(self._unread_files(offset)) or self.requested() > _replayed(offset)

    def lag(self, offset: Offset) -> Lag | None:
        unread = self._unread_files(offset)
        return Lag(seconds=0.0, bytes=0) if not unread else Lag(bytes=sum(f.size for f in unread))

    def _unread_files(self, offset: Offset) -> list[ListedFile]:
        """The files that have not been read at `offset`, as of the last listing."""
        pause = self._options.monitor_ms or 1_000
        if time.monotonic() - self._listed_s >= pause / 1000 or not self._listed_s:
            self._files, self._listed_s = self._folder.files(), time.monotonic()
        of = (str(offset.get("seen", "")), self._listed_s)
        if self._unread[0] != of:
            seen = self._seen(offset)
            self._unread = of, [file for file in self._files if _hash(file.name) not in seen]
        return self._unread[1]

    def _seen(self, offset: Offset) -> frozenset[bytes]:
        packed = str(offset.get("seen", ""))
        if self._known[0] != packed:
            self._known = (packed, _unpacked(packed))
        return self._known[1]


def _replayed(offset: Offset) -> int:
    return int(offset.get("replayed", -1))


def _hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=_HASH_BYTES).digest()


def _packed(hashes: frozenset[bytes]) -> str:
    return base64.b85encode(zlib.compress(b"".join(sorted(hashes)), 1)).decode()


def _unpacked(text: str) -> frozenset[bytes]:
    if not text:
        return frozenset()
    joined = zlib.decompress(base64.b85decode(text))
    return frozenset(joined[at : at + _HASH_BYTES] for at in range(0, len(joined), _HASH_BYTES))
