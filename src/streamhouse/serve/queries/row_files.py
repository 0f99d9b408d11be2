"""Writes rows to one file in JSON, CSV, Parquet or Arrow, batch by batch.

| format  | the file                                                                          |
|---------|-----------------------------------------------------------------------------------|
| json    | `{"snapshot":17,"time":"…Z","rows":[{…},…]}`, as in HTTP responses, one row per   |
|         | line; before the first commit `snapshot` and `time` are null                      |
| csv     | RFC 4180 with a header, in UTF-8                                                  |
| arrow   | the IPC file format (not the IPC stream format); the columns' own types           |
| parquet | the columns' own types                                                            |

Parquet and Arrow files name the snapshot in the schema's metadata, see `RowsOrigin.metadata`.
`streamhouse.serve.formats.cells` describes the values in JSON and CSV.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from streamhouse.serve.formats import row_formats
from streamhouse.serve.formats.row_formats import RowFormat
from streamhouse.serve.streams.event import iso


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


def write_rows(
    format: RowFormat,
    out: BinaryIO,
    origin: RowsOrigin,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> None:
    """Write the rows to `out`, which stays open."""
    stored = schema.with_metadata(origin.metadata)
    match format:
        case RowFormat.JSON:
            row_formats.write_rows(out, origin.head, batches)
            out.write(b"}\n")
        case RowFormat.CSV:
            text = io.TextIOWrapper(out, encoding="utf-8", newline="")
            row_formats.write_csv(schema, batches, text)
            text.detach()
        case RowFormat.ARROW:
            row_formats.write_file(out, stored, batches)
        case RowFormat.PARQUET:
            row_formats.write_parquet(out, stored, batches, "snappy")
