"""Encodes rows as JSON objects."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.formats import times
from streamhouse.formats.base import RecordError
from streamhouse.formats.json.exact import JsonOptions
from streamhouse.source import ROW_KIND

_Texts: TypeAlias = Callable[[pa.Array], tuple[pa.Array, str]]
"""From the values of a column to their JSON, null for null, without the quotes on both sides."""

_QUOTE = '"'
_ESCAPED = r'["\\\x00-\x1f]'
_DECIMAL_SCALE = 6
"""Up to this scale, Arrow never writes a decimal with an exponent."""


def objects(rows: pa.RecordBatch, names: Sequence[str], standard: str) -> pa.BinaryArray | None:
    """A JSON object with the columns `names` of each row; None if a type has no text here."""
    if not names:
        return None
    columns: list[pa.Array | str] = []
    for number, name in enumerate(names):
        texts_of = _texts_of(rows.schema.field(name).type, standard)
        if texts_of is None:
            return None
        columns.append(f"{',' if number else '{'}{orjson.dumps(name).decode()}:")
        texts, quote = texts_of(rows.column(name))
        if quote and texts.null_count:
            texts, quote = pc.binary_join_element_wise(quote, texts, quote, ""), ""
        columns += [quote, texts.fill_null("null"), quote] if quote else [texts.fill_null("null")]
    return pc.binary_join_element_wise(*columns, "}", "").cast(pa.binary())


def _texts_of(kind: pa.DataType, standard: str) -> _Texts | None:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _plain
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= _DECIMAL_SCALE:
        return _plain
    if pa.types.is_string(kind):
        return _strings
    if pa.types.is_date(kind):
        return lambda array: (array.cast(pa.string()), _QUOTE)
    if pa.types.is_timestamp(kind):
        return lambda array: (times.timestamp_texts(array, standard), _QUOTE)
    return None


def _plain(array: pa.Array) -> tuple[pa.Array, str]:
    return array.cast(pa.string()), ""


def _strings(array: pa.Array) -> tuple[pa.Array, str]:
    escaped = pc.match_substring_regex(array, _ESCAPED)
    if not pc.any(escaped).as_py():
        return array, _QUOTE
    texts = [
        None if value is None else orjson.dumps(value).decode()
        for value in array.filter(escaped).to_pylist()
    ]
    quoted = pc.binary_join_element_wise(_QUOTE, array, _QUOTE, "")
    found = pc.replace_with_mask(quoted, escaped.fill_null(False), pa.array(texts, pa.string()))
    return found, ""


_Value: TypeAlias = Callable[[Any], Any]
"""From a value, as `to_pylist` of its `_readable` column returns it, to what orjson writes."""


class JsonEncoder:
    """An `Encoder` of JSON objects in the order of the columns.

    As Flink's: decimals are numbers, BYTES are Base64, and NaN and infinities are strings.
    """

    changelog = False

    def __init__(self, schema: pa.Schema, options: JsonOptions) -> None:
        self._names = [name for name in schema.names if name != ROW_KIND]
        self._options = options

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        if not self._options.ignore_null_fields:
            found = objects(rows, self._names, self._options.standard)
            if found is not None:
                return found
        return pa.array([orjson.dumps(record) for record in self.objects(rows)], pa.binary())

    def objects(self, rows: pa.RecordBatch) -> list[dict[str, Any]]:
        """The rows as dicts that orjson can write."""
        names = self._names
        columns = [_values(name, rows.column(name), self._options) for name in names]
        found = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        if not names:
            found = [{} for _ in range(rows.num_rows)]
        if self._options.ignore_null_fields:
            return [{k: v for k, v in record.items() if v is not None} for record in found]
        return found


def _values(name: str, array: pa.Array, options: JsonOptions) -> list[Any]:
    values: list[Any] = array.cast(_readable(array.type)).to_pylist()
    convert = _converter(array.type, name, options)
    return values if convert is _same else list(map(convert, values))


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type with texts for dates and timestamps: Python's have fewer years and digits."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_readable(kind.key_type), _readable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable(field.type)) for field in kind])
    return kind


def _converter(kind: pa.DataType, name: str, options: JsonOptions) -> _Value:
    """Converts a value or null, in the column `name`."""
    convert = _of_value(kind, name, options)
    return _same if convert is _same else lambda value: None if value is None else convert(value)


def _of_value(kind: pa.DataType, name: str, options: JsonOptions) -> _Value:
    if pa.types.is_list(kind):
        item = _converter(kind.value_type, name, options)
        return _same if item is _same else lambda value: list(map(item, value))
    if pa.types.is_map(kind):
        key, item = (_converter(one, name, options) for one in (kind.key_type, kind.item_type))
        return lambda value: _object(name, [(key(k), item(v)) for k, v in value], options)
    if pa.types.is_struct(kind):
        fields = {field.name: _converter(field.type, name, options) for field in kind}
        return lambda value: {field: fields[field](one) for field, one in value.items()}
    if pa.types.is_floating(kind):
        return _float32 if pa.types.is_float32(kind) else _float
    if pa.types.is_decimal(kind):
        return lambda value: orjson.Fragment(f"{value:f}")
    if pa.types.is_timestamp(kind):
        return partial(times.shortened, standard=options.standard)
    if pa.types.is_time(kind):
        return times.time_text
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    return _same


def _same(value: Any) -> Any:
    """What orjson writes as it is."""
    return value


def _float(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _float32(value: float) -> Any:
    # The shortest text of the number as a FLOAT, not that of the nearest DOUBLE.
    return _float(float(str(np.float32(value))))


def _object(name: str, pairs: Sequence[tuple[Any, Any]], options: JsonOptions) -> dict[str, Any]:
    made = {}
    for key, value in pairs:
        if key is None:
            if options.null_key_mode == "DROP":
                continue
            if options.null_key_mode == "FAIL":
                raise RecordError(
                    f"column '{name}' has a MAP with a null key, which JSON cannot express; set "
                    "'map-null-key.mode' to 'DROP' or 'LITERAL'"
                )
            key = options.null_key_literal
        made[_key(key)] = value
    return made


def _key(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()
