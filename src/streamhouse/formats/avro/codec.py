"""Decodes and encodes records of Avro by schemas as Flink derives them; the format `avro`."""

import datetime
import io
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from streamhouse.errors import OptionError
from streamhouse.formats import times
from streamhouse.formats.base import Decoded, Format, ParsedRows, RecordError
from streamhouse.formats.json import exact
from streamhouse.formats.json.exact import Convert, JsonOptions
from streamhouse.options import DeclaredOptions, OptionValues
from streamhouse.source import ROW_KIND
from streamhouse.types import flink_type

_PLAIN: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}
_UNITS = {"s": "millis", "ms": "millis", "us": "micros"}


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def record_schema(schema: pa.Schema) -> dict[str, Any]:
    """The schema of a record with these columns; raises `OptionError` for a type without one, and
    if two ROWs get the same name, which has the names of the columns around it.
    """
    found = {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.flink.avro.generated",
        "fields": [_field(field, "record") for field in schema],
    }
    try:
        fastavro.parse_schema(found)
    except SchemaParseException as error:
        raise OptionError(f"format avro: {error}; rename a column") from None
    return found


def _field(field: pa.Field, parent: str) -> dict[str, Any]:
    kind = _nullable(field, f"{parent}_{field.name}")
    return {"name": field.name, "type": kind, **({"default": None} if field.nullable else {})}


def _nullable(field: pa.Field, name: str) -> Any:
    kind = _kind(field.type, name)
    return ["null", kind] if field.nullable else kind


def _kind(kind: pa.DataType, name: str) -> Any:
    if pa.types.is_decimal(kind):
        return {
            "type": "bytes", "logicalType": "decimal", "precision": kind.precision,
            "scale": kind.scale,
        }  # fmt: skip
    if pa.types.is_timestamp(kind) and kind.unit in _UNITS:
        return {"type": "long", "logicalType": f"timestamp-{_UNITS[kind.unit]}"}
    if pa.types.is_time(kind):
        return {"type": "int", "logicalType": "time-millis"}
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise OptionError(
                f"format avro: the keys of {flink_type(kind)} must be STRING; declare them so"
            )
        return {"type": "map", "values": _nullable(kind.item_field, name)}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, name)}
    if pa.types.is_struct(kind):
        fields = [_field(field, name) for field in kind]
        return {"type": "record", "name": name, "fields": fields}
    if kind not in _PLAIN:
        raise OptionError(
            f"format avro cannot hold {flink_type(kind)}; declare another type, or use another "
            "format"
        )
    return _PLAIN[kind]


def _leaf(kind: pa.DataType, options: JsonOptions) -> Convert:
    """The converter of a type that is not nested; raises `ValueError` for what does not fit.

    Values are not converted between kinds: a number does not fit STRING, nor a text a number.
    """
    wanted, plain = _fitting(kind, options)

    def convert(value: Any) -> Any:
        if type(value) not in wanted:
            raise ValueError(value)
        return plain(value)

    return convert


def _fitting(kind: pa.DataType, options: JsonOptions) -> tuple[tuple[type, ...], Convert]:
    """The Python types of values that fit, and what converts them."""
    if pa.types.is_timestamp(kind):
        return (datetime.datetime,), lambda value: _timestamp(value, kind.unit)
    for is_kind, wanted in _UNCONVERTED:
        if is_kind(kind):
            return (wanted,), lambda value: value
    plain = exact.json_leaf(kind, options)
    if pa.types.is_floating(kind):
        return (int, float), lambda value: plain(value) if math.isfinite(value) else value
    return (int, Decimal) if pa.types.is_decimal(kind) else (int,), plain


_UNCONVERTED: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_time, datetime.time),
    (pa.types.is_date, datetime.date),
)


def _timestamp(value: datetime.datetime, unit: str) -> int:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    micros = (aware - _EPOCH) // datetime.timedelta(microseconds=1)
    return micros * times.PER_SECOND[unit] // 1_000_000


class Framing:
    """How records name the schema that they were written with; here they all have one."""

    def __init__(self, schema: pa.Schema, values: OptionValues) -> None:
        self._parsed = fastavro.parse_schema(record_schema(schema))

    def writer_schema(self, record: bytes) -> tuple[Any, int]:
        """The parsed schema of a record, and where its value begins; raises `ValueError`."""
        return self._parsed, 0

    def header(self, schema: dict[str, Any]) -> bytes:
        """The bytes before each value that is written with `schema`."""
        return b""


class AvroDecoder:
    """A `Decoder` of records; columns are the fields of the same name, in any order."""

    def __init__(self, schema: pa.Schema, framing: Framing) -> None:
        self._schema, self._framing = schema, framing
        record_schema(schema)

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        found = ParsedRows([], [])
        found.read(records, lambda record: [self._value(record)])
        arrays = [self._column(field, found) for field in self._schema]
        return found.decoded(arrays, self._schema, ignore=False)

    def _column(self, field: pa.Field, found: ParsedRows) -> pa.Array:
        convert = exact.converter(field.type, JsonOptions(), _leaf)
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

    def __init__(self, schema: pa.Schema, framing: Framing) -> None:
        own = pa.schema([field for field in schema if field.name != ROW_KIND])
        self._raw = record_schema(own)
        self._names = own.names
        self._framing = framing
        self._header: bytes | None = None
        self._parsed = fastavro.parse_schema(self._raw)

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        if self._header is None:
            self._header = self._framing.header(self._raw)
        try:
            columns = [
                [_plain(value, column.type) for value in column.to_pylist()]
                for column in map(rows.column, self._names)
            ]
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


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value that fastavro writes: maps as dicts, times without zone as UTC."""
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


FORMAT = Format(
    "avro",
    DeclaredOptions.of(__package__).options,
    lambda schema, values: AvroDecoder(schema, Framing(schema, values)),
    lambda schema, values: AvroEncoder(schema, Framing(schema, values)),
)
