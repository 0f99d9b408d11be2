"""The interface to which a script sends its results; the command line prints them."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from streamhouse.sql.expressions.zones import UTC


class Printer(Protocol):
    """Receives a script's results."""

    def notice(self, text: str) -> None:
        """Show a message to the user."""

    def rows(self, reader: pa.RecordBatchReader) -> None:
        """Show the rows of a bounded SELECT."""

    def changes(self, batch: pa.RecordBatch) -> None:
        """Show rows of a streaming SELECT; the first column is `rowkind`."""


def shown_in(zone: str, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Rows whose instants texts show as local times of a session's zone; other formats have UTC.

    Times within arrays, maps and rows stay in UTC.
    """
    if zone == UTC:
        return rows
    schema = pa.schema([field.with_type(_shown(field.type, zone)) for field in rows.schema])
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in rows))


def _shown(kind: pa.DataType, zone: str) -> pa.DataType:
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return kind
    return pa.timestamp(kind.unit, zone.removeprefix("GMT") if ":" in zone else zone)
