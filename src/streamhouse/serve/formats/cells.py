"""Converts an Arrow column to JSON values, CSV fields or the cells of a text table.

The encodings in JSON and CSV:

| Arrow            | JSON                                      | CSV                       |
|------------------|-------------------------------------------|---------------------------|
| integers, bool   | number, true or false                     | the same                  |
| float, double    | number; JSON has none of NaN, Infinity    | the same words, unquoted  |
|                  | and -Infinity: strings, as in the format  |                           |
|                  | `json`                                    |                           |
| decimal          | string, all digits, no exponent: a number | the same digits           |
|                  | would lose digits in most JSON readers    |                           |
| date, time       | string, ISO 8601                          | the same                  |
| timestamp        | string, ISO 8601, with the fraction of    | the same                  |
|                  | the type's unit; `Z` if it has a zone     |                           |
| binary           | string, base64                            | the same                  |
| list, struct     | array, object                             | JSON text                 |
| map              | object if its keys are strings, else an   | JSON text                 |
|                  | array of [key, value]                     |                           |
| null             | null                                      | empty, unquoted           |
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.mysql.values.types import zoned
from streamhouse.source import ROW_KIND

_ISO = "%Y-%m-%dT%H:%M:%S"
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


_BREAKS = (("\x85", r"\u0085"), ("\u2028", r"\u2028"), ("\u2029", r"\u2029"))
"""Characters that some SSE clients take for line ends, and that `json.dumps` does not escape."""
_ESCAPED = r'["\\\x00-\x1f\x{85}\x{2028}\x{2029}]'
_RESERVED = ("snapshot", ROW_KIND)
"""Keys of a changed row beside its columns."""


def json_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The column's values, ready for `json.dumps`."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in json_values(chunk)]
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _timestamps(column)
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return list(column.cast(pa.string()).to_pylist())
    if pa.types.is_struct(kind):
        return _structs(column)
    if pa.types.is_map(kind):
        return _maps(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column, json_values(column.values))
    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind) or _is_bytes(kind):
        return [_json_value(value) for value in values]
    return values


def csv_values(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """The column's values as CSV fields, before quoting; None is a null."""
    kind = column.type
    if pa.types.is_floating(kind):
        texts = (None if value is None else repr(value) for value in column.to_pylist())
        return [text if text is None else _SPECIAL.get(text, text) for text in texts]
    if pa.types.is_boolean(kind):
        return [None if v is None else str(v).lower() for v in column.to_pylist()]
    return [_csv_value(value) for value in json_values(column)]


def table_texts(column: pa.Array | pa.ChunkedArray, exact: bool = True) -> list[str | None]:
    """The column's values for display in a terminal; None is a null.

    Numbers have thousands separators. Instants of another zone than UTC are its local times.
    Unless `exact`, floating-point numbers are rounded to 2 to 12 decimals, depending on the largest
    value and the same for the whole column, so that the decimal points align.
    """
    kind = column.type
    if is_number(kind):
        decimals = None if exact or not pa.types.is_floating(kind) else _decimals(column)
        return [_number(value, decimals) for value in column.to_pylist()]
    if pa.types.is_timestamp(kind):
        if kind.tz not in (None, "UTC"):
            column = _local(column)
        return [None if v is None else v.replace("T", " ") for v in _timestamps(column)]
    if _is_bytes(kind):
        return [None if v is None else "0x" + v.hex() for v in column.to_pylist()]
    texts = (None if v is None else _csv_value(v) for v in json_values(column))
    return [None if text is None else printable(text) for text in texts]


def is_number(kind: pa.DataType) -> bool:
    """Whether the type is numeric; its values are right-aligned in a table."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def printable(text: str) -> str:
    """The text with unprintable characters escaped, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _timestamps(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    if column.type.tz is None:
        return list(pc.strftime(column, format=_ISO).to_pylist())
    utc = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return list(pc.strftime(utc, format=_ISO + "Z").to_pylist())


def _local(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Instants as local times of the zone of their type."""
    unit, zone = column.type.unit, column.type.tz
    micros = column.cast(pa.timestamp("us", zone), safe=False)
    return zoned(micros, pa.timestamp("us"), zone).cast(pa.timestamp(unit))


def _json_value(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else _SPECIAL[repr(value)]
        case decimal.Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode("ascii")
    return value


def _lists(column: pa.Array, values: list[Any]) -> list[Any]:
    ends = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [values[ends[i] : ends[i + 1]] if ok else None for i, ok in enumerate(valid)]


def _maps(column: pa.Array) -> list[Any]:
    keys, items = json_values(column.keys), json_values(column.items)
    pairs = _lists(column, list(zip(keys, items, strict=True)))
    if pa.types.is_string(column.type.key_type):
        return [None if entries is None else dict(entries) for entries in pairs]
    return [None if entries is None else [list(pair) for pair in entries] for entries in pairs]


def _structs(column: pa.Array) -> list[Any]:
    names = [field.name for field in column.type]
    fields = [json_values(column.field(i)) for i in range(len(names))]
    valid = column.is_valid().to_pylist()
    rows = zip(*fields, strict=True)
    return [
        dict(zip(names, row, strict=True)) if ok else None
        for row, ok in zip(rows, valid, strict=True)
    ]


def _csv_value(value: Any) -> str | None:
    match value:
        case None:
            return None
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case list() | dict():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def _decimals(column: pa.Array | pa.ChunkedArray) -> int:
    sizes = (abs(v) for v in column.to_pylist() if v is not None and math.isfinite(v))
    largest = max(sizes, default=0.0)
    if not largest:
        return 2
    return min(12, max(2, 2 - math.floor(math.log10(largest))))


def _number(value: Any, decimals: int | None) -> str | None:
    if value is None:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    if isinstance(value, float) and abs(value) >= 1e15:
        return repr(value)
    if decimals is not None:
        return f"{value:,.{decimals}f}"
    return format(value, ",f" if isinstance(value, decimal.Decimal) else ",")


def compact(value: Any) -> str:
    """A value as JSON without spaces, in one line, also by Unicode's definition of line ends."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char, escaped in _BREAKS:
        if char in text:
            text = text.replace(char, escaped)
    return text


def unreserved_names(names: Sequence[str]) -> list[str]:
    """The columns' names as keys of a changed row: `_` is appended to reserved names.

    The results are distinct, also if a column already has such a name.
    """
    used = {*names, *_RESERVED}
    result = []
    for name in names:
        if name in _RESERVED:
            while name in used:
                name += "_"
            used.add(name)
        result.append(name)
    return result


def objects(batch: pa.RecordBatch) -> bytes:
    """The rows as JSON objects, separated by commas, in UTF-8."""
    if not batch.num_rows or not batch.num_columns:
        return b""
    parts: list[Any] = []
    opening = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts += [pa.scalar(f"{opening}{compact(name)}:", pa.large_string()), _texts(column)]
        opening = ","
    ends = pa.scalar("},", pa.large_string())
    rows = pc.binary_join_element_wise(*parts, ends, pa.scalar("", pa.large_string()))
    # The buffer holds the texts of all rows back to back; drop the last comma.
    _, offsets, texts = rows.buffers()
    end = memoryview(offsets).cast("q")[len(rows)]
    return memoryview(texts)[: end - 1].tobytes()


def _texts(column: pa.Array) -> pa.Array:
    """Each value as JSON, a null as `null`."""
    kind, text = column.type, pa.large_string()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        texts = column.cast(text)
    elif pa.types.is_floating(kind):
        # Python's shortest representation, as elsewhere; numbers contain no commas.
        texts = pa.array(compact(json_values(column))[1:-1].split(","), text)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = _strings(column.cast(text))
    else:
        encode = _quoted if _is_plain(kind) else compact
        texts = pa.array(list(map(encode, json_values(column))), text)
    return pc.fill_null(texts, "null")


def _strings(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        return pa.array(list(map(compact, column.to_pylist())), pa.large_string())
    quote = pa.scalar('"', pa.large_string())
    return pc.binary_join_element_wise(quote, column, quote, pa.scalar("", pa.large_string()))


def _is_plain(kind: pa.DataType) -> bool:
    """Whether the JSON values of the type are strings that never need escaping."""
    return bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


def _quoted(value: str | None) -> str:
    return "null" if value is None else f'"{value}"'


def iso(time_ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC, with milliseconds."""
    commit = datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC)
    return commit.strftime("%Y-%m-%dT%H:%M:%S") + f".{time_ms % 1000:03d}Z"
