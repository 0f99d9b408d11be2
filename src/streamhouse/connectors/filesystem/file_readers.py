"""Reads one file: lines of a text format, or Parquet."""

import codecs
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import IO, Any, Self, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamhouse.connectors.bad_records import BadRecordCollector
from streamhouse.connectors.filesystem.folders import (
    Folder,
    ListedFile,
    metadata_values,
    partition_values,
)
from streamhouse.connectors.filesystem.options import FilesystemOptions
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import DataLossError, TableError
from streamhouse.formats.base import Decoder, FormatChoice
from streamhouse.formats.csv.format import CsvOptions
from streamhouse.types import flink_type, parts

_LINES_AT_ONCE = 16_384
_PLACE = re.compile(r"file (.*), (\d+) bytes, record (\d+)", re.DOTALL)


class FileReader:
    """Reads files of a table as batches of its columns, partition columns from their paths.

    `bad_records` gets the records that cannot be decoded.
    """

    def __init__(self, spec: SourceSpec, options: FilesystemOptions, folder: Folder) -> None:
        self._options, self._folder, self._columns = options, folder, spec.columns
        self.schema = spec.arrow_schema
        self.bad_records = BadRecordCollector(options.bad_records)
        of_file = {column.name for column in spec.columns if column.metadata is not None}
        of_file |= {*spec.partitioned_by}
        self._stored = pa.schema([field for field in self.schema if field.name not in of_file])
        self._partitions = [field for field in self.schema if field.name in spec.partitioned_by]
        self._decoder: Decoder | None = None
        self._split = _RecordSplit()
        if options.format != "parquet":
            chosen = FormatChoice.of(spec.options, options.format)
            self._decoder = chosen.decoder(self._stored)
            self._split = _RecordSplit(marked=options.format != "raw")
            if options.format == "csv":
                self._split = _RecordSplit.of(CsvOptions.parse(chosen.values()), len(self._stored))

    def read(self, file: ListedFile) -> Iterator[pa.RecordBatch]:
        """The rows of a file as it was when it was listed; `DataLossError` if it is not there."""
        path = self._folder.address(file.name)
        self._check(path, file)
        values = self._values(path, file)
        with self._folder.open(file.name) as opened:
            rows = self._parquet if self._decoder is None else self._lines
            for batch in rows(path, file, opened):
                yield self._complete(batch, values)

    def read_replayed(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
        """The rows of bad records of the dead-letter table, whose files may be gone."""
        for file, kept in groupby(rows, self._file_of_bad_record):
            path, records = self._folder.address(file.name), list(kept)
            numbers = [int(_place(record)[3]) for record in records]
            batch = self._decoded(path, file, [record["value"] for record in records], numbers)
            yield self._complete(batch, self._values(path, file))

    def _file_of_bad_record(self, row: Mapping[str, Any]) -> ListedFile:
        place = _place(row)
        name = place[1].removeprefix(self._options.path).lstrip("/")
        return ListedFile(name, int(place[2]), row["timestamp"])

    def _values(self, path: str, file: ListedFile) -> dict[str, pa.Scalar]:
        """The values that all rows of a file have: of partition and METADATA columns."""
        folder = os.path.dirname(file.name)
        return {
            **partition_values(folder, self._partitions, self._options.default_name),
            **metadata_values(self._columns, path, file),
        }

    def _check(self, path: str, file: ListedFile) -> None:
        size = self._folder.size(file.name)
        if size is None:
            raise DataLossError(
                f"the file {path} was deleted before it was read; restore it, or run the script "
                "with --from-scratch"
            )
        if size != file.size:
            raise DataLossError(
                f"the file {path} has {size:,} bytes, but {file.size:,} when it was listed; files "
                "must not change after they have appeared: write them under a hidden name ('.' or "
                "'_' before it), then rename them. To go on, run the script with --from-scratch"
            )

    def _complete(self, batch: pa.RecordBatch, values: dict[str, pa.Scalar]) -> pa.RecordBatch:
        columns = [
            pa.repeat(values[field.name], batch.num_rows)
            if field.name in values
            else batch.column(field.name)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _lines(self, path: str, file: ListedFile, opened: IO[bytes]) -> Iterator[pa.RecordBatch]:
        source = gzip.open(opened) if path.endswith(".gz") else opened
        try:
            records = _records(cast(IO[bytes], source), self._split)
            first = 1
            while part := list(islice(records, _LINES_AT_ONCE)):
                yield self._decoded(path, file, part, range(first, first + len(part)))
                first += len(part)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TableError(
                f"file {path} cannot be read: it is not a complete gzip file: {error}; replace "
                "it, or write files under another name and rename them when they are complete"
            ) from None

    def _decoded(
        self, path: str, file: ListedFile, records: Sequence[bytes], numbers: Sequence[int]
    ) -> pa.RecordBatch:
        assert self._decoder is not None
        decoded = self._decoder.decode(records)
        for bad in decoded.bad:
            self.bad_records.add(
                f"file {path}, {file.size} bytes, record {numbers[bad.index]}",
                bad.reason,
                records[bad.index],
                timestamp=file.modified_ms,
            )
        return decoded.rows

    def _parquet(self, path: str, file: ListedFile, opened: IO[bytes]) -> Iterator[pa.RecordBatch]:
        try:
            # Arrow reads a file of its own without Python.
            source = opened.name if isinstance(opened, io.BufferedReader) else opened
            with pq.ParquetFile(source) as read:
                names = read.schema_arrow.names
                wanted = [name for name in self._stored.names if name in names]
                for batch in read.iter_batches(columns=wanted):
                    yield self._declared(batch)
        except pa.ArrowInvalid as error:
            text = str(error).splitlines()[0]
            raise TableError(f"file {path} cannot be read: {text}") from None

    def _declared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The declared columns, cast to their types; columns that the file lacks are null."""
        columns = []
        for field in self._stored:
            index = batch.schema.get_field_index(field.name)
            column = pa.nulls(batch.num_rows, field.type)
            if index >= 0:
                column = _cast(batch.column(index), field)
            if not field.nullable and column.null_count:
                raise pa.ArrowInvalid(
                    f"column '{field.name}' is {flink_type(field.type)} NOT NULL, but "
                    + ("null in some rows" if index >= 0 else "not in the file")
                )
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._stored)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    """A column of a Parquet file as the declared type; raises `pa.ArrowInvalid`."""
    try:
        cast = column.cast(field.type)
        _check_cast(column, cast)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise pa.ArrowInvalid(
            f"column '{field.name}' is {column.type}, not {field.type}: "
            f"{str(error).splitlines()[0]}"
        ) from None
    return cast


def _check_cast(before: pa.Array, after: pa.Array) -> None:
    """Raise `pa.ArrowInvalid` for what a cast lets pass: a DOUBLE that is infinite as FLOAT, and a
    null element that is NOT NULL.
    """
    if pa.types.is_float64(before.type) and pa.types.is_float32(after.type):
        made = pc.and_(pc.is_inf(after), pc.invert(pc.is_inf(before)))
        if pc.any(made).as_py():
            raise pa.ArrowInvalid(f"{before.filter(made)[0].as_py()} not in range")
    elif pa.types.is_struct(before.type):
        for inner in after.type:
            if before.type.get_field_index(inner.name) >= 0:
                _check_cast(before.field(inner.name), after.field(inner.name))
    elif pa.types.is_nested(before.type):
        for (_, old), (field, new) in zip(parts(before), parts(after), strict=True):
            if not field.nullable and new.null_count:
                raise pa.ArrowInvalid(f"null where {flink_type(new.type)} NOT NULL is expected")
            _check_cast(old, new)


@dataclass(frozen=True)
class _RecordSplit:
    """How the lines of a file become records.

    With a `quote` a field can have line breaks: lines belong together until the quotes are even,
    without those after an `escape` and in `comments`. Blank lines are left out, unless they can be
    rows: with `one_column` that of an empty text, else those that have a `delimiter`. With `marked`
    a byte order mark may stand before the first.
    """

    quote: bytes | None = None
    escape: bytes | None = None
    delimiter: bytes | None = None
    comments: bool = False
    one_column: bool = False
    marked: bool = True

    @classmethod
    def of(cls, options: CsvOptions, columns: int) -> Self:
        quote, escape = (
            None if mark is None else mark.encode() for mark in (options.quote, options.escape)
        )
        delimiter = options.delimiter.encode()
        return cls(quote, escape, delimiter, options.comments, one_column=columns == 1)

    def is_row(self, text: bytes) -> bool:
        if self.one_column or text.strip():
            return True
        return self.delimiter is not None and self.delimiter in text

    def odd_quotes(self, line: bytes) -> bool:
        if self.quote is None or self.quote not in line:
            return False
        if self.escape is not None and self.escape in line:
            line = re.sub(re.escape(self.escape) + b".", b"", line, flags=re.DOTALL)
        return line.count(self.quote) % 2 == 1


def _records(source: IO[bytes], split: _RecordSplit) -> Iterator[bytes]:
    """The records without the ends of their lines."""
    held: list[bytes] = []
    inside = False
    for number, line in enumerate(source):
        if not number and split.marked:
            line = line.removeprefix(codecs.BOM_UTF8)
        comment = split.comments and not inside and line.startswith(b"#")
        held.append(line)
        if not comment and split.odd_quotes(line):
            inside = not inside
        if inside:
            continue
        text = line if len(held) == 1 else b"".join(held)
        held = []
        text = text.removesuffix(b"\n").removesuffix(b"\r")
        if split.is_row(text):
            yield text
    if held:
        yield b"".join(held).removesuffix(b"\n")


def _place(row: Mapping[str, Any]) -> re.Match[str]:
    place = _PLACE.fullmatch(row["position"])
    assert place is not None
    return place
