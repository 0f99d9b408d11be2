"""The format `raw`: one column holds the whole record."""

import codecs
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamhouse.errors import OptionError
from streamhouse.formats.base import Decoded, Format, ParsedRows, RecordError
from streamhouse.options import DeclaredOptions, OptionValues
from streamhouse.types import flink_type

_NUMBERS = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.float32(): "f",
    pa.float64(): "d",
    pa.bool_(): "?",
}


class RawCodec:
    """A `Decoder` and `Encoder` of one column, whose value is the record itself.

    A record that is None is a row with null, as in Flink.
    """

    def __init__(self, schema: pa.Schema, values: OptionValues) -> None:
        if len(schema) != 1:
            raise OptionError(
                f"format raw has one column, not {len(schema)} ({', '.join(schema.names)}); "
                "declare one BYTES or STRING column, or use another format"
            )
        self._schema = schema
        self._field = schema.field(0)
        kind = self._field.type
        if kind not in (*_NUMBERS, pa.string(), pa.binary()):
            raise OptionError(
                f"format raw cannot hold {flink_type(kind)} (column '{self._field.name}'); declare "
                "it as BYTES, STRING, BOOLEAN or a number"
            )
        self._charset = values["charset"]
        try:
            codecs.lookup(self._charset)
        except LookupError:
            raise OptionError(
                f"option '{values.before}charset': '{self._charset}' is unknown; use 'UTF-8', "
                "'ISO-8859-1' or another encoding that Python knows"
            ) from None
        order, code = values["endianness"], _NUMBERS.get(kind)
        self._format = None if code is None else (">" if order == "big-endian" else "<") + code

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        found = ParsedRows(list(records), None)
        array = found.converted(
            self._field, records, lambda _, one: None if one is None else self._value(one)
        )
        found.check_nulls(self._field, array, "the record has no value")
        return found.decoded([array], self._schema, ignore=False)

    def _value(self, record: bytes) -> Any:
        if self._format is not None:
            size = struct.calcsize(self._format)
            if len(record) != size:
                kind = flink_type(self._field.type)
                raise ValueError(f"{kind} has {size} bytes, but the record has {len(record)}")
            return struct.unpack(self._format, record)[0]
        if pa.types.is_string(self._field.type):
            return record.decode(self._charset)
        return record

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        values = rows.column(self._field.name).to_pylist()
        records = [None if value is None else self._record(value) for value in values]
        return pa.array(records, pa.binary())

    def _record(self, value: Any) -> bytes:
        if self._format is not None:
            return struct.pack(self._format, value)
        if isinstance(value, str):
            try:
                return value.encode(self._charset)
            except UnicodeEncodeError as error:
                raise RecordError(f"column '{self._field.name}': {error}") from None
        return bytes(value)


FORMAT = Format("raw", DeclaredOptions.of(__package__, "raw.toml").options, RawCodec, RawCodec)
