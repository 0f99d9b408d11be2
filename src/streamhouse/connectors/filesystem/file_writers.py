"""Writes rows to one file: lines of a text format, or Parquet."""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from streamhouse.connectors.filesystem.options import FilesystemOptions
from streamhouse.errors import TableError
from streamhouse.formats.base import Encoder, RecordError, joined

_ROWS_AT_ONCE = 65_536
_TEXT_ROWS_AT_ONCE = 4_096


class FileWriter(ABC):
    """One open file."""

    rows_at_once: ClassVar[int]
    """How many rows to write between two looks at the size."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("xb", buffering=1 << 20)

    @property
    def size(self) -> int:
        """About how many bytes have been written."""
        return self._file.tell()

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None: ...

    def close(self) -> None:
        """End the file and make it durable."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class LinesWriter(FileWriter):
    """A file of lines."""

    rows_at_once = _TEXT_ROWS_AT_ONCE

    def __init__(self, path: Path, encoder: Encoder) -> None:
        super().__init__(path)
        self._encoder = encoder

    def write(self, rows: pa.RecordBatch) -> None:
        try:
            records = self._encoder.encode(rows)
        except RecordError as error:
            raise TableError(f"filesystem: a row cannot be written: {error}") from None
        lines = records.drop_null()
        self._file.write(joined(lines, b"\n") + b"\n" if len(lines) else b"")


class ParquetFileWriter(FileWriter):
    """A Parquet file."""

    rows_at_once = _ROWS_AT_ONCE

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        super().__init__(path)
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


def open_writer(
    path: Path, schema: pa.Schema, options: FilesystemOptions, encoder: Encoder | None
) -> FileWriter:
    """Create a file; `encoder` is None for Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if encoder is None:
        return ParquetFileWriter(path, schema, options.compression)
    return LinesWriter(path, encoder)
