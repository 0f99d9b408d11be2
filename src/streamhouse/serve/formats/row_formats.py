"""The row formats, and their writers, which write batch by batch.

Parquet and Arrow files get the given schema with its metadata; batches have its column types, in
its order.
"""

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import IO, Any, BinaryIO, Literal

import pyarrow as pa

from streamhouse.paimon.write.rows import gathered
from streamhouse.serve.formats.cells import compact, csv_values, json_values, objects

_TEXT_BYTES = 8 << 20
"""How many bytes of Arrow data are converted to text at once."""
_TEXT_ROWS = 16_384


class RowFormat(StrEnum):
    """A format of rows in HTTP responses and exported files."""

    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


def json_objects(batch: pa.RecordBatch | pa.Table) -> Iterator[dict[str, Any]]:
    """Each row as an object; `streamhouse.serve.formats.cells` describes the values."""
    names = batch.schema.names
    columns = [json_values(batch.column(i)) for i in range(batch.num_columns)]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def json_line(record: dict[str, Any]) -> str:
    """One object as one line of JSON, without a line end."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def write_json(reader: Iterable[pa.RecordBatch], out: IO[str]) -> None:
    """Write one JSON array, with one object per line."""
    separator = "[\n"
    for batch in reader:
        for record in json_objects(batch):
            out.write(separator + json_line(record))
            separator = ",\n"
    out.write("[]\n" if separator == "[\n" else "\n]\n")


def slices(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Split the batch into parts of at most `rows` rows."""
    nested = any(pa.types.is_nested(kind) for kind in batch.schema.types)
    for first in range(0, batch.num_rows, rows):
        part = batch.slice(first, rows)
        # Converting a slice of nested values visits the values of the whole batch each time.
        yield part.take(pa.array(range(part.num_rows))) if nested else part


def _small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, with large batches split: as text they take several times as much memory."""
    for batch in batches:
        if batch.nbytes <= _TEXT_BYTES:
            yield batch
        else:
            yield from slices(batch, max(1, batch.num_rows * _TEXT_BYTES // batch.nbytes))


def write_rows(out: BinaryIO, head: Mapping[str, Any], batches: Iterable[pa.RecordBatch]) -> None:
    """Write a JSON object up to the end of its last key `rows`; `head` are the keys before it.

    The caller writes what follows, at least the closing brace.
    """
    opening = compact(dict(head))[:-1] + ("," if head else "")
    out.write(f'{opening}"rows":['.encode())
    separator, end = "\n", "]"
    for batch in _small(gathered(batches, _TEXT_ROWS, _TEXT_BYTES)):
        if batch.num_rows:
            out.write(separator.encode() + objects(batch))
            separator, end = ",\n", "\n]"
    out.write(end.encode())


def write_csv(schema: pa.Schema, reader: Iterable[pa.RecordBatch], out: IO[str]) -> None:
    """Write CSV as in RFC 4180: a header, CRLF, quotes where needed.

    A null is an empty field, an empty string is `""`.
    """
    plain = csv.writer(out, lineterminator="\r\n")
    batches = _small(reader)
    # Write nothing before the query has produced its first rows without an error.
    first = next(batches, None)
    plain.writerow(schema.names)
    for batch in itertools.chain([] if first is None else [first], batches):
        columns = [csv_values(batch.column(i)) for i in range(batch.num_columns)]
        for row in zip(*columns, strict=True):
            if "" in row or (len(row) == 1 and row[0] is None):
                out.write(",".join(map(_csv_field, row)) + "\r\n")
            else:
                plain.writerow(row)


def _csv_field(value: str | None) -> str:
    if value is None:
        return ""
    if value == "" or any(c in value for c in ',"\r\n'):
        return '"' + value.replace('"', '""') + '"'
    return value


ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 64 << 20
"""Size of a Parquet row group: large enough to read fast, small enough to buffer for writing."""
_BATCH_ROWS = 65_536
_BATCH_BYTES = 8 << 20


def write_parquet(
    out: BinaryIO,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    compression: Literal["snappy", "zstd"],
) -> None:
    """Write a Parquet file; every reader knows Snappy, Zstandard is smaller."""
    import pyarrow.parquet as pq  # slow to import, and seldom needed

    writer = pq.ParquetWriter(out, schema, compression=compression)
    write_batches(writer, schema, batches, ROW_GROUP_ROWS, ROW_GROUP_BYTES)


def write_batches(
    writer: Any,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    rows: int = _BATCH_ROWS,
    size: int = _BATCH_BYTES,
) -> None:
    """Write batches by a writer of Parquet or of Arrow's IPC, and close it.

    Clients can read a stream of Arrow while it arrives; a file supports memory mapping and random
    access.
    """
    with writer:
        for batch in gathered(batches, rows, size):
            writer.write_batch(pa.record_batch(batch.columns, schema=schema))
