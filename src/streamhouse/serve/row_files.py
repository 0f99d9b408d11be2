"""Rows as one file: JSON, CSV, Parquet or Arrow, written batch by batch.

| format  | the file                                                                          |
|---------|-----------------------------------------------------------------------------------|
| json    | `{"snapshot":17,"time":"…Z","rows":[{…},…]}`, as HTTP answers, a row a line;      |
|         | before the first commit `snapshot` and `time` are null                            |
| csv     | RFC 4180 with a header, in UTF-8                                                  |
| parquet | the columns' own types                                                            |
| arrow   | the IPC file format (not the stream's); the columns' own types                    |

Parquet and Arrow files tell the snapshot in the schema's metadata: `streamhouse.view`,
`streamhouse.snapshot` and `streamhouse.time`, the last two not before the first commit. Values in
JSON and CSV are as `streamhouse.serve.cells` describes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO, TypeAlias

import pyarrow as pa

from streamhouse.paimon.rows import gathered
from streamhouse.serve import formats
from streamhouse.serve.event import iso

ROW_GROUP_ROWS = 131_072
"""Of a Parquet file: large enough to be read fast, small enough to be held while it is written."""


class FileFormat(StrEnum):
    """What a file of rows is, and what its name ends with."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


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
    def metadata(self) -> dict[str, str]:
        """What Parquet and Arrow files tell of it."""
        told = {"streamhouse.view": self.view}
        if self.snapshot is not None:
            told["streamhouse.snapshot"] = str(self.snapshot)
        if self.time is not None:
            told["streamhouse.time"] = self.time
        return told


Batches: TypeAlias = Iterable[pa.RecordBatch]


def write_rows(
    format: FileFormat, out: BinaryIO, origin: Origin, schema: pa.Schema, batches: Batches
) -> None:
    """Write the rows; `out` stays open."""
    _WRITERS[format](out, origin, schema, batches)


def _json(out: BinaryIO, origin: Origin, schema: pa.Schema, batches: Batches) -> None:
    head = {"snapshot": origin.snapshot, "time": origin.time}
    formats.write_rows(out, head, batches)
    out.write(b"}\n")


def _csv(out: BinaryIO, origin: Origin, schema: pa.Schema, batches: Batches) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", newline="")
    formats.write_csv(schema, batches, text)
    text.detach()


def _parquet(out: BinaryIO, origin: Origin, schema: pa.Schema, batches: Batches) -> None:
    import pyarrow.parquet as pq

    stored = schema.with_metadata(origin.metadata)
    with pq.ParquetWriter(out, stored) as writer:
        for batch in gathered(batches, ROW_GROUP_ROWS):
            writer.write_batch(batch.cast(stored))


def _arrow(out: BinaryIO, origin: Origin, schema: pa.Schema, batches: Batches) -> None:
    stored = schema.with_metadata(origin.metadata)
    with pa.ipc.new_file(out, stored) as writer:
        for batch in batches:
            writer.write_batch(batch.cast(stored))


_Writer: TypeAlias = Callable[[BinaryIO, Origin, pa.Schema, Batches], None]
_WRITERS: dict[FileFormat, _Writer] = {
    FileFormat.JSON: _json,
    FileFormat.CSV: _csv,
    FileFormat.PARQUET: _parquet,
    FileFormat.ARROW: _arrow,
}
