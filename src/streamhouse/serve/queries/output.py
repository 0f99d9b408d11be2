"""Writes the rows of a response, in any format, to a file in bounded memory before it is sent.

docs/decisions/067-responses-complete-before-sending.md says why.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from streamhouse.errors import LimitError, TooLargeError
from streamhouse.serve.formats.row_formats import (
    RowFormat,
    write_csv,
    write_parquet,
    write_rows,
    write_stream,
)

MEDIA_TYPES = {
    RowFormat.JSON: "application/json",
    RowFormat.CSV: "text/csv; charset=utf-8; header=present",
    RowFormat.ARROW: "application/vnd.apache.arrow.stream",
    RowFormat.PARQUET: "application/vnd.apache.parquet",
}

ROWS_AT_ONCE = 256
"""Rows per batch from the engine; small, since rows may be of any width."""


@dataclass(frozen=True)
class OutputTarget:
    """The file and format of a response, and its limits.

    More than `max_rows` rows are truncated if `cut`, else they are a `TooLargeError` that ends with
    `advice`. More than `max_bytes` are a `LimitError`.
    """

    path: str
    format: RowFormat
    max_rows: int
    max_bytes: int
    cut: bool = False
    advice: str = ""


@dataclass
class WriteResult:
    """The number of rows written, and whether the rest was truncated."""

    rows: int = 0
    truncated: bool = False


def write(
    target: OutputTarget,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    head: Mapping[str, Any],
    metadata: Mapping[str, str],
) -> WriteResult:
    """Write the rows to the target's file.

    `head` are the keys of the JSON object before `rows`. `metadata` becomes the schema's metadata
    in Arrow and Parquet.
    """
    written = WriteResult()
    with open(target.path, "wb") as out:
        rows = _bounded(batches, target, out, written)
        stored = schema.with_metadata(dict(metadata))
        match target.format:
            case RowFormat.JSON:
                _write_json(rows, out, head, written, target.cut)
            case RowFormat.CSV:
                text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
                with text:
                    write_csv(schema, rows, text)
            case RowFormat.ARROW:
                write_stream(out, stored, rows)
            case RowFormat.PARQUET:
                write_parquet(out, stored, rows, "zstd")
    return written


def _bounded(
    batches: Iterable[pa.RecordBatch], target: OutputTarget, out: BinaryIO, written: WriteResult
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        remaining = target.max_rows - written.rows
        if batch.num_rows > remaining:
            if not target.cut:
                raise TooLargeError(
                    f"the result has more than {target.max_rows:,} rows; {target.advice}"
                )
            written.truncated = True
            batch = batch.slice(0, remaining)
        written.rows += batch.num_rows
        if batch.num_rows:
            yield batch
        if out.tell() > target.max_bytes:
            raise LimitError(
                f"the result is larger than {target.max_bytes >> 20} MiB; request fewer rows or "
                "columns, or format=parquet"
            )
        if written.truncated:
            return


def _write_json(
    batches: Iterable[pa.RecordBatch],
    out: BinaryIO,
    head: Mapping[str, Any],
    written: WriteResult,
    cut: bool,
) -> None:
    write_rows(out, head, batches)
    end = f',"truncated":{"true" if written.truncated else "false"}}}' if cut else "}"
    out.write(f"{end}\n".encode())
