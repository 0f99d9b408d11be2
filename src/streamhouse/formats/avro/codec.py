"""Decodes and encodes records of Avro, and the format `avro`, whose records have no header."""

from __future__ import annotations

import datetime
import io
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import fastavro
import pyarrow as pa

from streamhouse.formats.avro.schema import converter, record_schema
from streamhouse.formats.base import Decoded, Format, ParsedRows, RecordError
from streamhouse.options import Option, check_known, choice
from streamhouse.source import ROW_KIND


class Framing(Protocol):
    """How records name the schema that they were written with; picklable."""

    def writer_schema(self, record: bytes) -> tuple[Any, int]:
        """The parsed schema of a record, and where its value begins; raises `ValueError`."""

    def header(self, schema: dict[str, Any]) -> bytes:
        """The bytes before each value that is written with `schema`."""


class AvroDecoder:
    """A `Decoder` of records; columns are the fields of the same name, in any order."""

    changelog = False

    def __init__(self, schema: pa.Schema, framing: Framing) -> None:
        self._schema, self._framing = schema, framing
        record_schema(schema)

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        kept: list[int] = []
        found = ParsedRows([], kept)
        for index, record in enumerate(records):
            try:
                if record is not None:
                    found.rows.append(self._value(record))
                    kept.append(index)
            except ValueError as error:
                found.bad[index] = str(error)
        arrays = [self._column(field, found) for field in self._schema]
        return found.decoded(arrays, self._schema, ignore=False)

    def _column(self, field: pa.Field, found: ParsedRows) -> pa.Array:
        convert = converter(field.type)
        values = [row.get(field.name) for row in found.rows]
        array = found.converted(field, values, lambda _, value: convert(value))
        found.check_nulls(field, array)
        return array

    def _value(self, record: bytes) -> Any:
        schema, start = self._framing.writer_schema(record)
        data = io.BytesIO(record)
        data.seek(start)
        try:
            value = fastavro.schemaless_reader(data, schema)
        # fastavro raises whatever the wrong bytes lead to.
        except Exception as error:  # noqa: BLE001
            raise ValueError(
                f"not Avro data of this schema: {type(error).__name__} {error}"
            ) from None
        if data.tell() != len(record):
            raise ValueError(
                f"not Avro data of this schema: {len(record) - data.tell()} bytes are left"
            )
        if not isinstance(value, dict):
            raise ValueError(f"the schema is not a record: {type(value).__name__}")
        return value


class AvroEncoder:
    """An `Encoder` of records, by the schema that Flink derives from the columns."""

    changelog = False

    def __init__(self, schema: pa.Schema, framing: Framing) -> None:
        own = pa.schema([field for field in schema if field.name != ROW_KIND])
        self._raw = record_schema(own)
        self._names = own.names
        self._framing = framing
        self._header: bytes | None = None
        self._parsed: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": None, "_header": None}

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        if self._parsed is None:
            self._parsed = fastavro.parse_schema(self._raw)
            self._header = self._framing.header(self._raw)
        assert self._header is not None
        try:
            columns = [_values(rows.column(name)) for name in self._names]
        except (ValueError, OverflowError) as error:
            raise RecordError(f"a row cannot be written as Avro: {error}") from None
        records: list[bytes] = []
        for row in zip(*columns, strict=True):
            out = io.BytesIO()
            out.write(self._header)
            try:
                fastavro.schemaless_writer(
                    out, self._parsed, dict(zip(self._names, row, strict=True))
                )
            except (ValueError, TypeError, OverflowError) as error:
                raise RecordError(f"a row cannot be written as Avro: {error}") from None
            records.append(out.getvalue())
        return pa.array(records, pa.binary())


def _values(array: pa.Array) -> list[Any]:
    """Python values that fastavro writes: maps as dicts, times without zone as UTC."""
    return [_plain(item, array.type) for item in array.to_pylist()]


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return value.replace(tzinfo=datetime.UTC)
    return value


class _Avro(Format):
    name = "avro"
    options = (
        Option(
            "encoding", "`binary`", "the encoding of values; that of JSON is not supported",
            "binary",
        ),
    )  # fmt: skip

    def decoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> AvroDecoder:
        return AvroDecoder(schema, _framing(schema, options, where))

    def encoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> AvroEncoder:
        return AvroEncoder(schema, _framing(schema, options, where))


def _framing(schema: pa.Schema, options: Mapping[str, str], where: str) -> NoFraming:
    check_known([where + key for key in options], [f"{where}encoding"], "format avro")
    choice(f"{where}encoding", options.get("encoding", "binary"), ("binary",))
    return NoFraming(record_schema(schema))


class NoFraming:
    """Records of one known schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._parsed: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema, "_parsed": None}

    def writer_schema(self, record: bytes) -> tuple[Any, int]:
        if self._parsed is None:
            self._parsed = fastavro.parse_schema(self._schema)
        return self._parsed, 0

    def header(self, schema: dict[str, Any]) -> bytes:
        return b""


FORMAT = _Avro()
