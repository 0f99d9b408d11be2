"""Encodes rows as JSON objects."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.formats import times
from streamhouse.formats.base import RecordError
from streamhouse.formats.json.options import JsonOptions
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


_Values: TypeAlias = Callable[[pa.Array], list[Any]]
"""From an Arrow array to what orjson writes."""


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
        columns = [_values_of(rows.schema.field(n), self._options)(rows.column(n)) for n in names]
        found = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        if not names:
            found = [{} for _ in range(rows.num_rows)]
        if self._options.ignore_null_fields:
            return [{k: v for k, v in record.items() if v is not None} for record in found]
        return found


def _values_of(field: pa.Field, options: JsonOptions) -> _Values:
    kind = field.type
    if pa.types.is_list(kind):
        return _list(field, options)
    if pa.types.is_map(kind):
        return _map(field, options)
    if pa.types.is_struct(kind):
        return _row(kind, options)
    if pa.types.is_floating(kind):
        return _floats
    if pa.types.is_decimal(kind):
        return _decimals
    if pa.types.is_timestamp(kind):
        return lambda array: list(times.timestamp_texts(array, options.standard).to_pylist())
    if pa.types.is_time(kind):
        return times.time_texts
    if pa.types.is_date(kind):
        return lambda array: list(array.cast(pa.string()).to_pylist())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _binaries
    return lambda array: list(array.to_pylist())


def _floats(array: pa.Array) -> list[Any]:
    if pa.types.is_float32(array.type):
        # The shortest text of the number as a FLOAT, not that of the nearest DOUBLE.
        array = array.cast(pa.string()).cast(pa.float64())
    values = array.to_pylist()
    return [value if value is None or math.isfinite(value) else _special(value) for value in values]


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _decimals(array: pa.Array) -> list[Any]:
    values = array.to_pylist()
    return [None if value is None else orjson.Fragment(f"{value:f}") for value in values]


def _binaries(array: pa.Array) -> list[Any]:
    values = array.to_pylist()
    return [None if value is None else base64.b64encode(value).decode() for value in values]


def _sliced(array: pa.Array, flat: Sequence[Any]) -> list[Any]:
    """Cuts the values of all lists into one list each."""
    offsets = array.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    valid = array.is_valid().to_pylist()
    return [
        flat[offsets[row] - first : offsets[row + 1] - first] if valid[row] else None
        for row in range(len(array))
    ]


def _inner(array: pa.Array, values: pa.Array) -> pa.Array:
    """The part of a list array's values that its offsets cover."""
    offsets = array.offsets
    if not len(array):
        return values.slice(0, 0)
    first, last = offsets[0].as_py(), offsets[len(array)].as_py()
    return values.slice(first, last - first)


def _list(field: pa.Field, options: JsonOptions) -> _Values:
    items = _values_of(field.type.value_field, options)

    def values(array: pa.Array) -> list[Any]:
        return _sliced(array, items(_inner(array, array.values)))

    return values


def _map(field: pa.Field, options: JsonOptions) -> _Values:
    keys = _values_of(field.type.key_field, options)
    items = _values_of(field.type.item_field, options)

    def values(array: pa.Array) -> list[Any]:
        pairs = list(
            zip(
                keys(_inner(array, array.keys)),
                items(_inner(array, array.items)),
                strict=True,
            )
        )
        return [
            None if value is None else _object(field.name, value, options)
            for value in _sliced(array, pairs)
        ]

    return values


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


def _row(kind: pa.DataType, options: JsonOptions) -> _Values:
    fields = [(field.name, _values_of(field, options)) for field in kind]

    def values(array: pa.Array) -> list[Any]:
        valid = array.is_valid().to_pylist()
        names = [name for name, _ in fields]
        inner = [values_of for _, values_of in fields]
        columns = [f(column) for f, column in zip(inner, array.flatten(), strict=True)]
        rows = zip(*columns, strict=True)
        return [
            dict(zip(names, row, strict=True)) if here else None
            for row, here in zip(rows, valid, strict=True)
        ]

    return values
