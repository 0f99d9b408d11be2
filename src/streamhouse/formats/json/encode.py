"""Encodes rows as JSON objects."""

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.formats import times
from streamhouse.formats.json.exact import JsonOptions
from streamhouse.source import ROW_KIND
from streamhouse.types import mapped

Value: TypeAlias = Callable[[Any], Any]
"""From a value, as `to_pylist` of its `readable` column returns it, to what `dumps` writes."""
QUOTE = '"'
_DECIMAL_SCALE = 6
"""Up to this scale, Arrow never writes a decimal with an exponent."""


class JsonValues:
    """Writes the values of Arrow columns as Flink's JSON; a subclass may write some differently.

    Decimals are numbers, BYTES are Base64, and NaN and infinities are strings.
    """

    escaped = r'["\\\x00-\x1f]'
    """Finds the texts that are not written as they are, between quotes."""

    def __init__(self, options: JsonOptions) -> None:
        self._options = options

    def dumps(self, value: Any) -> str:
        """The JSON text of one of `values`."""
        return orjson.dumps(value).decode()

    def values(self, column: pa.Array | pa.ChunkedArray) -> list[Any]:
        """The values as `dumps` takes them."""
        kind = mapped(column.type, _in_utc)
        values: list[Any] = column.cast(kind).cast(mapped(kind, self.readable)).to_pylist()
        convert = self._converter(kind)
        return values if convert is _same else list(map(convert, values))

    def objects(self, columns: Iterable[tuple[str, pa.Array]]) -> pa.StringArray:
        """The rows of one or more columns, as objects."""
        parts: list[pa.Array | str] = []
        for name, column in columns:
            parts.append(f"{',' if parts else '{'}{self.dumps(name)}:")
            texts, quote = self.texts(column)
            if quote and texts.null_count:
                texts, quote = pc.binary_join_element_wise(quote, texts, quote, ""), ""
            texts = texts.fill_null("null")
            parts += [quote, texts, quote] if quote else [texts]
        return pc.binary_join_element_wise(*parts, "}", "")

    def texts(self, column: pa.Array) -> tuple[pa.Array, str]:
        """The JSON of each value, null for null, without the quotes on both sides."""
        kind = column.type
        plain = pa.types.is_decimal(kind) and 0 <= kind.scale <= _DECIMAL_SCALE
        if plain or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return column.cast(pa.string()), ""
        if pa.types.is_string(kind):
            return self._strings(column)
        if pa.types.is_date(kind):
            return column.cast(pa.string()), QUOTE
        if pa.types.is_timestamp(kind):
            return times.timestamp_texts(column, self._options.standard), QUOTE
        values = self.values(column)
        return pa.array([None if v is None else self.dumps(v) for v in values], pa.string()), ""

    def _strings(self, array: pa.Array) -> tuple[pa.Array, str]:
        escaped = pc.match_substring_regex(array, self.escaped)
        if not pc.any(escaped).as_py():
            return array, QUOTE
        texts = [
            None if value is None else self.dumps(value)
            for value in array.filter(escaped).to_pylist()
        ]
        quoted = pc.binary_join_element_wise(QUOTE, array, QUOTE, "")
        found = pc.replace_with_mask(quoted, escaped.fill_null(False), pa.array(texts, pa.string()))
        return found, ""

    def readable(self, kind: pa.DataType) -> pa.DataType:
        """The type with texts for dates and timestamps: Python's have fewer years and digits."""
        return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else kind

    def leaf(self, kind: pa.DataType) -> Value:
        """Converts a value of a type that is not nested."""
        if pa.types.is_floating(kind):
            return _float32 if pa.types.is_float32(kind) else finite
        if pa.types.is_decimal(kind):
            return lambda value: orjson.Fragment(f"{value:f}")
        if pa.types.is_timestamp(kind):
            return partial(times.shortened, standard=self._options.standard)
        if pa.types.is_time(kind):
            return times.time_text
        if is_bytes(kind):
            return lambda value: base64.b64encode(value).decode()
        return _same

    def map_of(self, pairs: Sequence[tuple[Any, Any]], kind: pa.MapType) -> Any:
        """A MAP of converted keys and values."""
        # Maps of Arrow have no null keys.
        return {k if isinstance(k, str) else self.dumps(k): value for k, value in pairs}

    def _converter(self, kind: pa.DataType) -> Value:
        """Converts a value or null."""
        convert = self._of_value(kind)
        if convert is _same:
            return _same
        return lambda value: None if value is None else convert(value)

    def _of_value(self, kind: pa.DataType) -> Value:
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            item = self._converter(kind.value_type)
            return _same if item is _same else lambda value: list(map(item, value))
        if pa.types.is_map(kind):
            key, item = (self._converter(one) for one in (kind.key_type, kind.item_type))
            return lambda value: self.map_of([(key(k), item(v)) for k, v in value], kind)
        if pa.types.is_struct(kind):
            fields = {field.name: self._converter(field.type) for field in kind}
            return lambda value: {field: fields[field](one) for field, one in value.items()}
        return self.leaf(kind)


class JsonEncoder:
    """An `Encoder` of JSON objects in the order of the columns."""

    def __init__(self, schema: pa.Schema, options: JsonOptions) -> None:
        self._names = [name for name in schema.names if name != ROW_KIND]
        self._options, self._values = options, JsonValues(options)

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        if self._names and not self._options.ignore_null_fields:
            columns = ((name, rows.column(name)) for name in self._names)
            return self._values.objects(columns).cast(pa.binary())
        return pa.array([orjson.dumps(record) for record in self.objects(rows)], pa.binary())

    def objects(self, rows: pa.RecordBatch) -> list[dict[str, Any]]:
        """The rows as dicts that orjson can write."""
        names = self._names
        columns = [self._values.values(rows.column(name)) for name in names]
        found = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        if not names:
            found = [{} for _ in range(rows.num_rows)]
        if self._options.ignore_null_fields:
            return [{k: v for k, v in record.items() if v is not None} for record in found]
        return found


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a type is one of bytes."""
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(is_binary or pa.types.is_fixed_size_binary(kind))


def finite(value: float) -> Any:
    """A number, or the text of NaN or an infinity, which are no numbers of JSON."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _same(value: Any) -> Any:
    """What `dumps` writes as it is."""
    return value


def _float32(value: float) -> Any:
    # The shortest text of the number as a FLOAT, not that of the nearest DOUBLE.
    return finite(float(str(np.float32(value))))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    is_zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return pa.timestamp(kind.unit, "UTC") if is_zoned else kind
