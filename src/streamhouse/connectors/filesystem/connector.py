"""The `filesystem` connector: the files of a folder now, and, if it is monitored, later ones."""

import base64
import hashlib
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from streamhouse.connectors.bad_records import SkippingSource
from streamhouse.connectors.base import Connector, Scan, Sink, scanned
from streamhouse.connectors.filesystem.file_readers import FileReader
from streamhouse.connectors.filesystem.folders import ListedFile, folder_of
from streamhouse.connectors.filesystem.options import DECLARED, OPTIONS, TEXT_FORMATS, parse
from streamhouse.connectors.filesystem.sink import FilesCommitter, FilesWriter, encoder_of
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.errors import DataLossError, OptionError, TableError
from streamhouse.source import Lag, Offset, grouped
from streamhouse.sql.options.store_options import is_store_option
from streamhouse.sql.plan import Capabilities, TableInfo

_BATCH_FILES = 1_000
_BATCH_BYTES = 1 << 30
_HASH_BYTES = 8


class FilesystemSource(SkippingSource):
    """A `Source` that reads each file once, in the order of their modification times.

    An offset has the files of its batch, and a hash of the name of each file that has been read,
    about 11 bytes a file.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self._options = options = parse(spec.options)
        self._folder = folder_of(options.path, options.store)
        self._reader = FileReader(spec, options, self._folder)
        self._bad_records = self._reader.bad_records
        self._known: tuple[str, frozenset[bytes]] = ("", frozenset())
        self._listed_s = 0.0
        self._files: list[ListedFile] = []
        self._unread: tuple[tuple[str, float], list[ListedFile]] = (("", 0.0), [])

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def next_offset(self, start: Offset, max_rows: int | None) -> Offset:
        unread = self._unread_files(start)
        batch: list[ListedFile] = []
        size = 0
        for file in unread[:_BATCH_FILES]:
            if batch and size + file.size > _BATCH_BYTES:
                break
            batch.append(file)
            size += file.size
        if not batch:
            return start
        seen = self._seen(start) | {_hash(file.name) for file in batch}
        files = [[file.name, file.size, file.modified_ms] for file in batch]
        return {"files": files, "seen": _packed(seen)}

    def ranges(
        self, start: Offset, end: Offset, parallelism: int
    ) -> Sequence[tuple[ListedFile, ...]]:
        files = [ListedFile(*pair) for pair in end["files"]]
        if self._seen(start) | {_hash(file.name) for file in files} != self._seen(end):
            raise DataLossError(
                "the files between two offsets are known for adjacent offsets only; run the "
                "script with --from-scratch"
            )
        return [tuple(group) for group in grouped(files, parallelism)] if files else []

    def read_range(self, partition: tuple[ListedFile, ...]) -> Iterator[pa.RecordBatch]:
        for file in partition:
            yield from self._reader.read(file)

    def all_files(self) -> list[tuple[ListedFile, ...]]:
        """The files that are there now, as a partition."""
        return [tuple(self._folder.files())]

    def read_again(self, records: Sequence[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
        return self._reader.read_replayed(records)

    def finished(self, offset: Offset) -> bool:
        return self._options.monitor_ms is None and not self._has_unread(offset)

    def caught_up(self, offset: Offset) -> bool:
        """Whether there is no file to read after `offset`; looks at the folder now."""
        self._listed_s = 0.0
        return not self._has_unread(offset)

    def _has_unread(self, offset: Offset) -> bool:
        """Whether files are unread at `offset`, or bad records are to be read again."""
        return bool(self._unread_files(offset)) or self.has_replays(offset)

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


def _hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=_HASH_BYTES).digest()


def _packed(hashes: frozenset[bytes]) -> str:
    return base64.b85encode(zlib.compress(b"".join(sorted(hashes)), 1)).decode()


def _unpacked(text: str) -> frozenset[bytes]:
    if not text:
        return frozenset()
    joined = zlib.decompress(base64.b85decode(text))
    return frozenset(joined[at : at + _HASH_BYTES] for at in range(0, len(joined), _HASH_BYTES))


class _Filesystem(Connector, declared=DECLARED):
    name = "filesystem"
    options = OPTIONS
    capabilities = Capabilities(changelog=False, lookup=False, merges=False)

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        own = {key: option for key, option in options.items() if not is_store_option(key)}
        super().check(table, own, where)
        parsed = parse(options)
        for key in own:
            name = key.partition(".")[0]
            if name in TEXT_FORMATS and name != parsed.format:
                raise OptionError(
                    f"{where}: option '{key}' does not apply to 'format' = '{parsed.format}'; "
                    "leave it out"
                )
        stored_columns = tuple(column for column in table.columns if column.metadata is None)
        if len(table.partitioned_by) == len(stored_columns):
            raise TableError(f"{where}: declare a column besides those of PARTITIONED BY")
        FilesystemSource(_spec(table, options))
        spec = SinkSpec(self.name, options, stored_columns, partitioned_by=table.partitioned_by)
        stored = [field for field in spec.arrow_schema if field.name not in table.partitioned_by]
        encoder_of(spec, pa.schema(stored))

    def refused_changes(self, table: TableInfo) -> str | None:
        return "files take inserts only; write a Paimon table, or 'connector' = 'jdbc'"

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        return f"{self.name} {parse(spec.options).path}"

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> FilesystemSource:
        return FilesystemSource(spec)

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        source = FilesystemSource(_spec(table, options))
        return scanned(source, columns, source.all_files)

    def sink(self, spec: SinkSpec) -> Sink:
        filled = next((column for column in spec.columns if column.metadata is not None), None)
        if filled is not None:
            raise OptionError(
                f"table {spec.name}: METADATA column '{filled.name}' cannot be written; declare it "
                "VIRTUAL"
            )
        return Sink(partial(FilesWriter, spec), partial(FilesCommitter, parse(spec.options)))


def _spec(table: TableInfo, options: Mapping[str, str]) -> SourceSpec:
    return SourceSpec("filesystem", options, table.columns, partitioned_by=table.partitioned_by)


CONNECTOR = _Filesystem()
