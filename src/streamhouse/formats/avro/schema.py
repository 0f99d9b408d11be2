"""Avro's schema for columns, as Flink derives it."""

from __future__ import annotations

from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from streamhouse.errors import OptionError
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
