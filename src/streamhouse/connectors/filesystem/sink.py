"""Files as a sink: staged by tasks, made visible by renames when their batch is committed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from streamhouse.connectors.base import BatchLog, SinkCommitter, WrittenBatch
from streamhouse.connectors.filesystem.commit_log import (
    OWN_FOLDER,
    CommitLog,
    ObjectCommitLog,
    StagedFile,
)
from streamhouse.connectors.filesystem.file_writers import FileWriter, open_writer
from streamhouse.connectors.filesystem.folders import objects_of, split_rows
from streamhouse.connectors.filesystem.options import FilesystemOptions, parse
from streamhouse.connectors.specs import SinkSpec
from streamhouse.durable_files import sync_folder
from streamhouse.errors import OptionError
from streamhouse.formats.base import Encoder, format_of, format_options
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.sql.options.store_options import is_object_store

_MOST_OPEN = 64


class FilesystemSink:
    """A folder of files."""

    def __init__(self, spec: SinkSpec) -> None:
        self._options = parse(spec.options)
        self._partitions = spec.partitioned_by
        self._spec = spec
        fields = [field for field in spec.arrow_schema if field.name not in spec.partitioned_by]
        self._stored = pa.schema(fields)

    @property
    def schema(self) -> pa.Schema:
        return self._spec.arrow_schema

    def writer(self, query_id: str, batch: int, attempt: str) -> FilesWriter:
        staging = f"{OWN_FOLDER}/{query_id}/{batch:08d}-{attempt}"
        prefix = f"part-{query_id[:8]}-{batch:08d}-{attempt}"
        encoder = encoder_of(self._spec, self._stored)
        kind = ObjectsWriter if is_object_store(self._options.path) else FilesWriter
        task = TaskFiles(self._stored, self._partitions, staging, prefix, encoder)
        return kind(self._options, task)

    def committer(self, query_id: str) -> FilesCommitter:
        return FilesCommitter(self._options, query_id)

    def insert(self, query_id: str, rows: Iterator[pa.RecordBatch]) -> None:
        """Write all rows; their files become visible together at the end."""
        writer = self.writer(query_id, 0, query_id[8:20])
        log = commit_log(self._options, query_id)
        try:
            for batch in rows:
                writer.write(batch)
            log.commit(0, _files(writer.prepare()))
        finally:
            writer.close()
            log.forget()


def encoder_of(spec: SinkSpec, stored: pa.Schema) -> Encoder | None:
    """The encoder of lines; None for Parquet."""
    name = parse(spec.options).format
    if name == "parquet":
        return None
    return format_of(name).encoder(stored, format_options(spec.options, name), f"{name}.")


@dataclass(frozen=True)
class TaskFiles:
    """The files that one task writes: their columns, and where they are staged.

    `stored`: the columns in the files, which those of the folders (`partitions`) are not among.
    `staging` is the folder of the staged files, `prefix` the beginning of their names. `encoder`
    encodes lines; None for Parquet.
    """

    stored: pa.Schema
    partitions: tuple[str, ...]
    staging: str
    prefix: str
    encoder: Encoder | None


class FilesWriter:
    """Writes the staged files of one task."""

    def __init__(self, options: FilesystemOptions, task: TaskFiles) -> None:
        self._options, self._task = options, task
        self._open: dict[str, FileWriter] = {}
        self._files: list[StagedFile] = []
        self._named: dict[str, StagedFile] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        for folder, mine in split_rows(rows, self._task.partitions, self._options.default_name):
            first = 0
            while first < mine.num_rows:
                writer = self._writer(folder)
                part = mine.slice(first, writer.rows_at_once)
                writer.write(part)
                first += part.num_rows
                if writer.size >= self._options.file_bytes:
                    self._end(folder)

    def prepare(self) -> list[bytes]:
        for folder in list(self._open):
            self._end(folder)
        root = Path(self._options.path)
        for staging in {(root / file.staged).parent for file in self._files}:
            sync_folder(staging)
        return _message(self._files)

    def close(self) -> None:
        for writer in self._open.values():
            with suppress(OSError):
                writer.close()
        self._open = {}

    def _writer(self, folder: str) -> FileWriter:
        if folder not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._end(next(iter(self._open)))
            name = f"{self._task.prefix}-{len(self._files)}.{self._options.format}"
            below = f"{folder}/{name}" if folder else name
            file = StagedFile(f"{self._task.staging}/{below}", below)
            path = Path(self._options.path, file.staged)
            try:
                self._open[folder] = open_writer(
                    path, self._task.stored, self._options, self._task.encoder
                )
            except OSError as error:
                raise OptionError(
                    f"option 'path': {self._options.path} cannot be written: {error.strerror}"
                ) from None
            self._files.append(file)
            self._named[folder] = file
        return self._open[folder]

    def _end(self, folder: str) -> None:
        self._open.pop(folder).close()


class ObjectsWriter(FilesWriter):
    """Writes files into a temporary folder, and uploads each when it ends."""

    def __init__(self, options: FilesystemOptions, task: TaskFiles) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="streamhouse-files-")
        self._path, self._objects = options.path, objects_of(options.path, options.store)
        self._uploaded: list[StagedFile] = []
        local = replace(options, path=self._temporary.name)
        super().__init__(local, task)

    def prepare(self) -> list[bytes]:
        for folder in list(self._open):
            self._end(folder)
        return _message(self._uploaded)

    def close(self) -> None:
        super().close()
        self._temporary.cleanup()

    def _end(self, folder: str) -> None:
        file = self._named[folder]
        super()._end(folder)
        local, address = Path(self._temporary.name, file.staged), f"{self._path}/{file.final}"
        upload = retried(lambda: self._objects.upload_parts(address, local))
        local.unlink()
        self._uploaded.append(replace(file, staged=upload))


class FilesCommitter(SinkCommitter):
    """Commits each batch once, by its number in the query's `CommitLog`."""

    def __init__(self, options: FilesystemOptions, query_id: str) -> None:
        self._log = commit_log(options, query_id)
        self._path = options.path

    def check_log(self, log: BatchLog) -> None:
        log.check(self._log.last, f"the folder {self._path}")

    def commit(self, write: Callable[[], WrittenBatch | None], discard: Callable[[], None]) -> bool:
        written = write()
        if written is None:
            return False
        files = _files(written.messages)
        if written.number <= self._log.last:
            self._log.discard(files)
            return False
        self._log.commit(written.number, files)
        return True

    def remove_leftovers(self, from_batch: int, keep: Collection[str] = ()) -> int:
        return self._log.remove_leftovers(from_batch, keep)


def commit_log(options: FilesystemOptions, query_id: str) -> CommitLog | ObjectCommitLog:
    """The log of a query's commits to a folder; completes the last one."""
    if is_object_store(options.path):
        return ObjectCommitLog(options.path, options.store, query_id, options.success_file)
    return CommitLog(Path(options.path), query_id, options.success_file)


def _message(files: list[StagedFile]) -> list[bytes]:
    pairs = [[file.staged, file.final] for file in files]
    return [json.dumps(pairs).encode()] if pairs else []


def _files(messages: Sequence[bytes]) -> list[StagedFile]:
    return [StagedFile(*pair) for message in messages for pair in json.loads(message)]
