"""Files as a sink: staged by tasks, made visible when their batch is committed.

A commit is a log, then the publication of each staged file, see `Folder.publish`.
"""

import json
import os
import re
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamhouse.connectors.base import BatchLog, SinkCommitter, WrittenBatch
from streamhouse.connectors.filesystem.folders import OWN_FOLDER, StagedFile, folder_of, split_rows
from streamhouse.connectors.filesystem.options import FilesystemOptions, parse
from streamhouse.connectors.specs import SinkSpec
from streamhouse.errors import DataLossError, OptionError, TableError
from streamhouse.formats.base import Encoder, FormatChoice, RecordError, joined

_MOST_OPEN = 64
_ROWS_AT_ONCE, _TEXT_ROWS_AT_ONCE = 65_536, 4_096


class FilesCommitter(SinkCommitter):
    """Commits each batch of one query to a folder once, by its number in a log; driver only.

    Writing the log is the commit. Then each file is published, which a new driver completes if the
    process is killed meanwhile. At last the log is written again, without files: from then on
    others may move or delete them.
    """

    def __init__(self, options: FilesystemOptions, query_id: str) -> None:
        self._path, self._folder = options.path, folder_of(options.path, options.store)
        self._query, self._success_file = query_id, options.success_file
        self._log = f"{OWN_FOLDER}/{query_id}.json"
        self.last = -1
        text = self._folder.read_text(self._log)
        if text is not None:
            state = json.loads(text)
            self.last = int(state["batch"])
            self._publish([StagedFile(*pair) for pair in state["files"]])

    def check_log(self, log: BatchLog) -> None:
        log.check(self.last, f"the folder {self._path}")

    def put(self, written: WrittenBatch) -> bool:
        pairs = (pair for message in written.messages for pair in json.loads(message))
        files = [StagedFile(*pair) for pair in pairs]
        if written.number <= self.last:
            for file in files:
                self._folder.discard(file)
            return False
        self._record(written.number, files)
        self.last = written.number
        self._publish(files)
        return True

    def remove_leftovers(self, from_batch: int, keep: Collection[str] = ()) -> int:
        removed, written = 0, re.compile(rf"{re.escape(_prefix(self._query))}-(\d{{8}})-(.+)-\d+\.")
        for file in self._folder.staged(self._query):
            name = written.match(file.final.rpartition("/")[2])
            if name is not None and int(name[1]) >= from_batch and name[2] not in keep:
                self._folder.discard(file)
                removed += 1
        return removed

    def forget(self) -> None:
        """Remove the log of the query, and its staged files."""
        self.remove_leftovers(0)
        self._folder.delete(self._log)

    def _record(self, batch: int, files: Sequence[StagedFile]) -> None:
        self._folder.write_text(self._log, json.dumps({"batch": batch, "files": files}))

    def _publish(self, files: Sequence[StagedFile]) -> None:
        if not files:
            return
        for file in files:
            if not self._folder.publish(file):
                raise DataLossError(
                    f"the file {self._folder.address(file.final)} of batch {self.last} is missing: "
                    "it was committed, and neither it nor its staged file is there; restore it, or "
                    "run the script with --from-scratch"
                )
        folders = {file.final.rpartition("/")[0] for file in files} - {""}
        for folder in folders if self._success_file is not None else ():
            self._folder.write_text(f"{folder}/{self._success_file}", "")
        self._record(self.last, ())


def encoder_of(spec: SinkSpec, stored: pa.Schema) -> Encoder | None:
    """The encoder of lines; None for Parquet."""
    name = parse(spec.options).format
    return None if name == "parquet" else FormatChoice.of(spec.options, name).encoder(stored)


class FileWriter:
    """An open file of lines, which an encoder makes of rows."""

    rows_at_once = _TEXT_ROWS_AT_ONCE
    """How many rows to write between two looks at the size."""

    def __init__(self, path: Path, encoder: Encoder | None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._encoder = path, encoder
        self._file = path.open("xb", buffering=1 << 20)

    @property
    def size(self) -> int:
        """About how many bytes have been written."""
        return self._file.tell()

    def write(self, rows: pa.RecordBatch) -> None:
        assert self._encoder is not None
        try:
            records = self._encoder.encode(rows)
        except RecordError as error:
            raise TableError(f"filesystem: a row cannot be written: {error}") from None
        lines = records.drop_null()
        self._file.write(joined(lines, b"\n") + b"\n" if len(lines) else b"")

    def close(self) -> None:
        """End the file and make it durable."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class ParquetFileWriter(FileWriter):
    """An open Parquet file."""

    rows_at_once = _ROWS_AT_ONCE

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        super().__init__(path, None)
        self._writer = pq.ParquetWriter(self._file, schema, compression=compression)
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self._rows += rows.num_rows
        if self._rows >= _ROWS_AT_ONCE:
            self._write_held()

    def close(self) -> None:
        self._write_held()
        self._writer.close()
        super().close()

    def _write_held(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held).cast(self._schema))
            self._held, self._rows = [], 0


class FilesWriter:
    """Writes and stages the files of one task."""

    def __init__(self, spec: SinkSpec, query_id: str, batch: int, attempt: str) -> None:
        self._options = options = parse(spec.options)
        self._partitions = spec.partitioned_by
        self._stored = pa.schema(
            [field for field in spec.arrow_schema if field.name not in spec.partitioned_by]
        )
        self._encoder = encoder_of(spec, self._stored)
        self._prefix = f"{_prefix(query_id)}-{batch:08d}-{attempt}"
        self._folder = folder_of(options.path, options.store)
        self._exit = ExitStack()
        workspace = self._exit.enter_context(self._folder.workspace())
        self._root = workspace / OWN_FOLDER / query_id / f"{batch:08d}-{attempt}"
        self._open: dict[str, FileWriter] = {}
        self._opened = 0
        self._files: list[StagedFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        for folder, mine in split_rows(rows, self._partitions, self._options.default_name):
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
        return [json.dumps(self._files).encode()] if self._files else []

    def close(self) -> None:
        for writer in self._open.values():
            with suppress(OSError):
                writer.close()
        self._open = {}
        self._exit.close()

    def _writer(self, folder: str) -> FileWriter:
        if folder not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._end(next(iter(self._open)))
            name = f"{self._prefix}-{self._opened}.{self._options.format}"
            try:
                self._open[folder] = self._opened_file(self._root / folder / name)
            except OSError as error:
                raise OptionError(
                    f"option 'path': {self._options.path} cannot be written: {error.strerror}"
                ) from None
            self._opened += 1
        return self._open[folder]

    def _opened_file(self, path: Path) -> FileWriter:
        if self._encoder is None:
            return ParquetFileWriter(path, self._stored, self._options.compression)
        return FileWriter(path, self._encoder)

    def _end(self, folder: str) -> None:
        writer = self._open.pop(folder)
        writer.close()
        final = str(writer.path.relative_to(self._root))
        self._files.append(StagedFile(self._folder.stage(writer.path, final), final))


def _prefix(query_id: str) -> str:
    """The beginning of the names of a query's files."""
    return f"part-{query_id[:8]}"
