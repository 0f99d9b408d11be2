"""Files as a sink: staged by tasks, made visible when their batch is committed.

In a folder a commit is a log, then renames. In an object store the staged files are multipart
uploads: a task uploads the parts of its objects, which nobody sees. The commit completes the
uploads: each object appears as a whole, and an upload can be completed once only.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from streamhouse.connectors.base import BatchLog, Sink, SinkCommitter, WrittenBatch
from streamhouse.connectors.filesystem.file_writers import FileWriter, open_writer
from streamhouse.connectors.filesystem.folders import objects_of, split_rows
from streamhouse.connectors.filesystem.options import FilesystemOptions, parse
from streamhouse.connectors.specs import SinkSpec
from streamhouse.durable_files import replace_text, sync_folder
from streamhouse.errors import DataLossError, OptionError
from streamhouse.formats.base import Encoder, FormatChoice
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.sql.options.store_options import is_object_store

OWN_FOLDER = ".streamhouse"
"""Hidden from readers: staged files and commit logs."""


_NAME = re.compile(r"part-(?P<query>[^-]+)-(?P<batch>\d{8})-(?P<attempt>[^-]+)-\d+\.")
_MOST_OPEN = 64


@dataclass(frozen=True)
class StagedFile:
    """A file that a task has written: where it is staged, and its final path in the folder."""

    staged: str
    final: str


class CommitLog:
    """Commits batches of one query to a folder; driver only.

    Writing the log is the commit. Then each file is renamed to its final name, which a new driver
    completes if the process is killed meanwhile; a renamed file is recognised by its name. Once all
    are renamed, their staging folders are removed: then others may move or delete the files.
    `success_file`: the name of an empty file for each partition that gets files, None: none.
    """

    def __init__(self, folder: Path, query_id: str, success_file: str | None = None) -> None:
        self._folder, self._success_file = folder, success_file
        self._own = folder / OWN_FOLDER
        self._path = self._own / f"{query_id}.json"
        self._staging = self._own / query_id
        self.last = -1
        if self._path.exists():
            state = json.loads(self._path.read_text())
            self.last = int(state["batch"])
            files = [StagedFile(*pair) for pair in state["files"]]
            self._rename([file for file in files if self._attempt(file).exists()])

    def commit(self, batch: int, files: Sequence[StagedFile]) -> None:
        """Record a batch, then make its files visible."""
        self._own.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"batch": batch, "files": [[file.staged, file.final] for file in files]})
        replace_text(self._path, text)
        self.last = batch
        self._rename(files)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Delete the staged files of a batch that was committed before."""
        for file in files:
            staged = self._folder / file.staged
            staged.unlink(missing_ok=True)
            self._remove_empty(staged.parent)

    def remove_leftovers(self, from_batch: int, keep: Collection[str]) -> int:
        """Delete the staged files of dead tasks; returns how many."""
        removed = 0
        for folder in self._staging.glob("*-*"):
            number, _, attempt = folder.name.partition("-")
            if int(number) >= from_batch and attempt not in keep:
                removed += sum(1 for path in folder.rglob("*") if path.is_file())
                shutil.rmtree(folder, ignore_errors=True)
        return removed

    def forget(self) -> None:
        """Remove the log of a query that has ended for good."""
        self._path.unlink(missing_ok=True)
        shutil.rmtree(self._staging, ignore_errors=True)
        with suppress(OSError):
            self._own.rmdir()

    def _attempt(self, file: StagedFile) -> Path:
        """The staging folder of the task that has written a file."""
        return self._folder.joinpath(*Path(file.staged).parts[:3])

    def _rename(self, files: Sequence[StagedFile]) -> None:
        folders = {(self._folder / file.final).parent for file in files}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            final = self._folder / file.final
            try:
                (self._folder / file.staged).rename(final)
            except FileNotFoundError:
                if not final.exists():
                    raise DataLossError(
                        f"the file {final} of batch {self.last} is missing: it was committed, and "
                        "neither it nor its staged file is there; restore it, or run the script "
                        "with --from-scratch"
                    ) from None
        for folder in folders:
            if self._success_file is not None and folder != self._folder:
                (folder / self._success_file).touch()
            sync_folder(folder)
        for file in files:
            self._remove_empty((self._folder / file.staged).parent)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self._own and self._own in folder.parents:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


class ObjectCommitLog:
    """As `CommitLog`, for objects; `StagedFile.staged` is an upload as `StagedObjects` has it.

    The log is one object. It has the files of a batch until all of them are completed.
    """

    def __init__(
        self, path: str, store: Mapping[str, str], query_id: str, success_file: str | None = None
    ) -> None:
        self._path, self._query, self._success_file = path, query_id, success_file
        self._objects = objects_of(path, store)
        self._log = f"{path}/{OWN_FOLDER}/{query_id}.json"
        self.last = -1
        text = retried(lambda: self._objects.read_text(self._log))
        if text is not None:
            state = json.loads(text)
            self.last = int(state["batch"])
            self._complete([StagedFile(*pair) for pair in state["files"]])

    def commit(self, batch: int, files: Sequence[StagedFile]) -> None:
        """Record a batch, then make its files visible."""
        self._record(batch, files)
        self.last = batch
        self._complete(files)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Give up the uploads of a batch that was committed before."""
        for file in files:
            self._objects.abort_upload(self._address(file), file.staged)

    def remove_leftovers(self, from_batch: int, keep: Collection[str]) -> int:
        """Give up the uploads of dead tasks; returns how many."""
        removed = 0
        for path, upload in self._objects.uploads(self._path):
            name = _NAME.match(path.rpartition("/")[2])
            if name is None or name["query"] != self._query[:8]:
                continue
            if int(name["batch"]) >= from_batch and name["attempt"] not in keep:
                self._objects.abort_upload(path, json.dumps({"id": upload, "parts": []}))
                removed += 1
        return removed

    def forget(self) -> None:
        """Remove the log of a query that has ended for good, and its uploads."""
        self.remove_leftovers(0, ())
        self._objects.delete_object(self._log)

    def _record(self, batch: int, files: Sequence[StagedFile]) -> None:
        pairs = [[file.staged, file.final] for file in files]
        text = json.dumps({"batch": batch, "files": pairs})
        retried(lambda: self._objects.write_text(self._log, text))

    def _complete(self, files: Sequence[StagedFile]) -> None:
        if not files:
            return
        for file in files:
            address = self._address(file)
            if not retried(partial(self._objects.complete_upload, address, file.staged)):
                raise DataLossError(
                    f"the object {address} of batch {self.last} is missing: it was committed, and "
                    "neither it nor its upload is there; restore it, or run the script with "
                    "--from-scratch"
                )
        folders = {file.final.rpartition("/")[0] for file in files} - {""}
        for folder in folders if self._success_file is not None else ():
            self._objects.write_text(f"{self._path}/{folder}/{self._success_file}", "")
        # From now on others may move or delete the objects.
        self._record(self.last, ())

    def _address(self, file: StagedFile) -> str:
        return f"{self._path}/{file.final}"


def filesystem_sink(spec: SinkSpec) -> Sink:
    """The sink that writes into a folder of files."""
    options = parse(spec.options)
    fields = [field for field in spec.arrow_schema if field.name not in spec.partitioned_by]
    stored = pa.schema(fields)

    def writer(query_id: str, batch: int, attempt: str) -> FilesWriter:
        staging = f"{OWN_FOLDER}/{query_id}/{batch:08d}-{attempt}"
        prefix = f"part-{query_id[:8]}-{batch:08d}-{attempt}"
        kind = ObjectsWriter if is_object_store(options.path) else FilesWriter
        encoder = encoder_of(spec, stored)
        return kind(options, TaskFiles(stored, spec.partitioned_by, staging, prefix, encoder))

    def insert(query_id: str, rows: Iterator[pa.RecordBatch]) -> None:
        """Write all rows; their files become visible together at the end."""
        files = writer(query_id, 0, query_id[8:20])
        log = commit_log(options, query_id)
        try:
            for batch in rows:
                files.write(batch)
            log.commit(0, _files(files.prepare()))
        finally:
            files.close()
            log.forget()

    return Sink(writer, partial(FilesCommitter, options), insert)


def encoder_of(spec: SinkSpec, stored: pa.Schema) -> Encoder | None:
    """The encoder of lines; None for Parquet."""
    name = parse(spec.options).format
    return None if name == "parquet" else FormatChoice.of(spec.options, name).encoder(stored)


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

    def put(self, written: WrittenBatch) -> bool:
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
