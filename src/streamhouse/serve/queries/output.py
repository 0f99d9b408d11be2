"""Writes rows to one file, batch by batch: those of a response before it is sent, and exports.

| format  | the file                                                                          |
|---------|-----------------------------------------------------------------------------------|
| json    | `{"snapshot":17,"time":"…Z","rows":[{…},…]}`, as in HTTP responses, one row per   |
|         | line; before the first commit `snapshot` and `time` are null                      |
| csv     | RFC 4180 with a header, in UTF-8                                                  |
| arrow   | the IPC file format (not the IPC stream format); the columns' own types           |
| parquet | the columns' own types                                                            |

The JSON of a SELECT has its columns instead of the snapshot, and whether rows were left out. A
response has Arrow's stream format. Parquet and Arrow name the snapshot in the schema's metadata,
see `RowsOrigin.metadata`. `streamhouse.serve.formats.cells` describes the values in JSON and CSV.

docs/decisions/130-requests-and-responses-are-bounded.md says why a response is in a file first.
"""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar, TypeAlias

import pyarrow as pa

from streamhouse.duckdb_engine import Limits
from streamhouse.errors import LimitError, TooLargeError
from streamhouse.serve.formats.cells import iso
from streamhouse.serve.formats.row_formats import (
    RowFormat,
    write_batches,
    write_csv,
    write_parquet,
    write_rows,
)
from streamhouse.serve.tokens import EVERYTHING, Scope
from streamhouse.serve.views.served_view import ServedView

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

    def delete(self) -> None:
        """Delete the file, if it exists."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)


@dataclass(frozen=True)
class RowsOrigin:
    """The source of rows: a view or table, its snapshot and the snapshot's commit time."""

    view: str
    snapshot: int | None
    time_ms: int | None

    @property
    def time(self) -> str | None:
        """The commit time in ISO 8601, such as `2026-01-31T12:00:00.123Z`."""
        return None if self.time_ms is None else iso(self.time_ms)

    @property
    def head(self) -> dict[str, object]:
        """The keys of a JSON object before `rows`."""
        return {"snapshot": self.snapshot, "time": self.time}

    @property
    def metadata(self) -> dict[str, str]:
        """The schema metadata of Parquet and Arrow files.

        `streamhouse.view`, and after the first commit `streamhouse.snapshot` and
        `streamhouse.time`.
        """
        metadata = {"streamhouse.view": self.view}
        if self.snapshot is not None:
            metadata["streamhouse.snapshot"] = str(self.snapshot)
        if self.time is not None:
            metadata["streamhouse.time"] = self.time
        return metadata


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
        _encode(target.format, out, stored, rows, head, written if target.cut else None)
    return written


def write_export(
    format: RowFormat,
    out: BinaryIO,
    origin: RowsOrigin,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> None:
    """Write all rows to `out`, which stays open."""
    stored = schema.with_metadata(origin.metadata)
    _encode(format, out, stored, batches, origin.head, is_export=True)


def _encode(
    format: RowFormat,
    out: BinaryIO,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    head: Mapping[str, Any],
    cut: WriteResult | None = None,
    is_export: bool = False,
) -> None:
    """Write rows in a format; `cut`: JSON ends with whether the rows were truncated."""
    match format:
        case RowFormat.JSON:
            write_rows(out, head, batches)
            truncated = "" if cut is None else f',"truncated":{str(cut.truncated).lower()}'
            out.write(f"{truncated}}}\n".encode())
        case RowFormat.CSV:
            text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
            write_csv(schema, batches, text)
            text.detach()
        case RowFormat.ARROW:
            opened = pa.ipc.new_file if is_export else pa.ipc.new_stream
            write_batches(opened(out, schema), schema, batches)
        case RowFormat.PARQUET:
            write_parquet(out, schema, batches, "snappy" if is_export else "zstd")


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


@dataclass(frozen=True)
class RowsRequest:
    """A request for rows of one served view.

    `columns` are the wanted columns, None for all. `filter` is a client's condition in the Flink
    dialect. `order` are columns, each with whether it is descending; by default the primary key.
    `as_of` is a point in time as in `pinned_tables.PinnedTables`. `known_etags` are those of
    responses that the client has, `etags_of_states` those among them whose state of the tables
    (`ReadResult.state`) is known. `small_only`: give up if the tables have many records.
    """

    view: ServedView
    target: OutputTarget
    limits: Limits
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    order: tuple[tuple[str, bool], ...] | None = None
    limit: int | None = None
    as_of: str | None = None
    known_etags: tuple[str, ...] = ()
    etags_of_states: Mapping[str, str] = field(default_factory=dict)
    small_only: bool = False

    @property
    def trusted(self) -> bool:
        """Whether the query contains no SQL text from the client."""
        return self.filter is None


@dataclass(frozen=True)
class SelectRequest:
    """A client's SELECT over the views that `scope` sees; `views` are as for a `ViewCatalog`."""

    sql: str
    target: OutputTarget
    limits: Limits
    views: tuple[ServedView, ...] | None = None
    scope: Scope = EVERYTHING
    trusted: ClassVar[bool] = False
    """The query is SQL text from the client."""


ReadRequest: TypeAlias = RowsRequest | SelectRequest
ScriptRequest: TypeAlias = Mapping[str, Any]
"""A script to plan: the request of `streamhouse.graph.script_check.check_script`."""


@dataclass(frozen=True)
class ReadResult:
    """The result of a request; the rows are in the target's file.

    `snapshot` and `time_ms` (the commit time in milliseconds since 1970) are None before the first
    commit. `etag` is that of the rows; `state` is a key of the state of the tables; equal states
    have equal rows. Both are None if the rows depend on the current time. `changed` is False if the
    client has the rows already (`known_etags`); then there is no file.
    """

    snapshot: int | None = None
    time_ms: int | None = None
    etag: str | None = None
    state: str | None = None
    truncated: bool = False
    changed: bool = True
