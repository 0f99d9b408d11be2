"""Rows as one file: JSON, CSV, Parquet or Arrow, written batch by batch.

| format  | the file                                                                          |
|---------|-----------------------------------------------------------------------------------|
| json    | `{"snapshot":17,"time":"…Z","rows":[{…},…]}`, as HTTP answers, a row a line;      |
|         | before the first commit `snapshot` and `time` are null                            |
| csv     | RFC 4180 with a header, in UTF-8                                                  |
| arrow   | the IPC file format (not the stream's); the columns' own types                    |
| parquet | the columns' own types                                                            |

Parquet and Arrow files tell the snapshot in the schema's metadata, see `Origin`. Values in JSON and
CSV are as `streamhouse.serve.formats.cells` describes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from streamhouse.serve.formats import columnar, row_formats
from streamhouse.serve.formats.row_formats import Format
from streamhouse.serve.streams.event import iso


@dataclass(frozen=True)
class Origin:
    """Where rows come from: a view (or table), its snapshot and that one's commit time."""

    view: str
    snapshot: int | None
    time_ms: int | None

    @property
    def time(self) -> str | None:
        """The commit time as JSON tells it: `2026-01-31T12:00:00.123Z`."""
        return None if self.time_ms is None else iso(self.time_ms)

    @property
    def head(self) -> dict[str, object]:
        """What a JSON object of rows tells of it, before the rows."""
        return {"snapshot": self.snapshot, "time": self.time}

    @property
    def metadata(self) -> dict[str, str]:
        """What the schema of Parquet and Arrow tells: `streamhouse.view`, `streamhouse.snapshot`
        and `streamhouse.time`, the last two not before the first commit.
        """
        told = {"streamhouse.view": self.view}
        if self.snapshot is not None:
            told["streamhouse.snapshot"] = str(self.snapshot)
        if self.time is not None:
            told["streamhouse.time"] = self.time
        return told


def write_rows(
    format: Format,
    out: BinaryIO,
    origin: Origin,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> None:
    """Write the rows; `out` stays open."""
    stored = schema.with_metadata(origin.metadata)
    match format:
        case Format.JSON:
            row_formats.write_rows(out, origin.head, batches)
            out.write(b"}\n")
        case Format.CSV:
            text = io.TextIOWrapper(out, encoding="utf-8", newline="")
            row_formats.write_csv(schema, batches, text)
            text.detach()
        case Format.ARROW:
            columnar.write_file(out, stored, batches)
        case Format.PARQUET:
            columnar.write_parquet(out, stored, batches, "snappy")
