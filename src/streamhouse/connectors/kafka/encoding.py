"""Turns rows into the records that a sink produces: key, value, timestamp and headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.arrow_batches import last_of_each_key
from streamhouse.connectors.kafka.options import FormatChoice, KafkaOptions
from streamhouse.connectors.kafka.records import WRITABLE, RecordLayout
from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.formats.base import Encoder, format_of
from streamhouse.source import ROW_KIND, of_kind

KEY, VALUE, TIMESTAMP, HEADERS = "key", "value", "timestamp", "headers"
_HEADERS = pa.map_(pa.string(), pa.binary())
_ROWS_AT_ONCE = 20_000
"""So many rows are encoded in memory that the next ones use again; new memory costs more time."""


class Encoding:
    """Encodes the rows of a task; picklable.

    With `upserts`, only the last change of each key is written: its row, or no value if the row is
    gone.
    """

    def __init__(self, options: KafkaOptions, layout: RecordLayout, upserts: bool = False) -> None:
        self._layout, self.upserts = layout, upserts
        self._value = _encoder(options.value, layout.value)
        self._key = None if options.key is None else _encoder(options.key, layout.key)
        for column in layout.columns:
            if column.metadata is not None and column.metadata not in WRITABLE:
                raise OptionError(
                    f"METADATA column '{column.name}' cannot be written; declare it VIRTUAL"
                )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._layout.schema

    def records(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Record batches with the columns `key`, `value`, `timestamp` and `headers`, if any."""
        rows: Iterable[pa.RecordBatch] = batches
        if self.upserts and batches:
            rows = last_of_keys(batches, self._layout.key_columns)
        for batch in rows:
            if not self.upserts and not self._value.changelog:
                _check_inserts(batch)
            for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
                yield self._encoded(batch.slice(first, _ROWS_AT_ONCE))

    def _encoded(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = {}
        layout = self._layout
        if self._key is not None:
            keys = [rows.column(name) for name in layout.key_columns]
            batch = pa.RecordBatch.from_arrays(keys, schema=layout.key)
            columns[KEY] = self._key.encode(batch)
        names = [*layout.value.names, *([ROW_KIND] if ROW_KIND in rows.schema.names else [])]
        values = self._value.encode(rows.select(names))
        if self.upserts:
            gone = pc.is_in(rows.column(ROW_KIND), pa.array(["-D", "-U"]))
            values = pc.if_else(gone, pa.scalar(None, pa.binary()), values)
        columns[VALUE] = values
        for column in layout.columns:
            if column.metadata == TIMESTAMP:
                timestamps = rows.column(column.name).cast(pa.timestamp("ms", "UTC"), safe=False)
                columns[TIMESTAMP] = timestamps.cast(pa.int64())
            elif column.metadata == HEADERS:
                columns[HEADERS] = rows.column(column.name).cast(_HEADERS)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _encoder(chosen: FormatChoice, schema: pa.Schema) -> Encoder:
    return format_of(chosen.name).encoder(schema, chosen.options, chosen.prefix)


def _check_inserts(rows: pa.RecordBatch) -> None:
    if ROW_KIND in rows.schema.names and not pc.all(pc.equal(rows.column(ROW_KIND), "+I")).as_py():
        raise StreamhouseError(
            "the query updates or deletes rows, which this format cannot express; write with "
            "'connector' = 'upsert-kafka', or with the format debezium-json or canal-json"
        )


def last_of_keys(
    batches: Sequence[pa.RecordBatch], keys: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The last row of each key, in the order of these rows, with a row kind."""
    table = pa.Table.from_batches(batches)
    if ROW_KIND not in table.column_names:
        table = of_kind(table, "+I")
    yield from last_of_each_key(table, keys).combine_chunks().to_batches()
