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

import datetime
import decimal
import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamhouse.formats.base import joined
from streamhouse.formats.json.encode import QUOTE, JsonValues, Value, finite, is_bytes
from streamhouse.formats.json.exact import JsonOptions
from streamhouse.mysql.values.types import zoned
from streamhouse.source import ROW_KIND

_BREAKS = (("\x85", r"\u0085"), ("\u2028", r"\u2028"), ("\u2029", r"\u2029"))
"""Characters that some SSE clients take for line ends, and that `json.dumps` does not escape."""
_RESERVED = ("snapshot", ROW_KIND)
"""Keys of a changed row beside its columns."""


class _RowValues(JsonValues):
    """The values of rows for people: exact decimals, whole fractions of seconds, odd MAPs."""

    escaped = r'["\\\x00-\x1f\x{85}\x{2028}\x{2029}]'

    def dumps(self, value: Any) -> str:
        return compact(value)

    def readable(self, kind: pa.DataType) -> pa.DataType:
        return pa.string() if pa.types.is_temporal(kind) else kind

    def leaf(self, kind: pa.DataType) -> Value:
        if pa.types.is_timestamp(kind):
            return lambda text: text.replace(" ", "T")
        if pa.types.is_decimal(kind):
            return "{:f}".format
        return finite if pa.types.is_floating(kind) else super().leaf(self.readable(kind))

    def map_of(self, pairs: Sequence[tuple[Any, Any]], kind: pa.MapType) -> Any:
        return dict(pairs) if pa.types.is_string(kind.key_type) else list(map(list, pairs))

    def texts(self, column: pa.Array) -> tuple[pa.Array, str]:
        kind = column.type
        if pa.types.is_floating(kind):
            # All at once, which is faster; numbers contain no commas.
            return pa.array(compact(self.values(column))[1:-1].split(","), pa.string()), ""
        if pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
            return pa.array(self.values(column), pa.string()), QUOTE
        return super().texts(column)


_VALUES = _RowValues(JsonOptions())
json_values = _VALUES.values
"""The column's values, ready for `json.dumps`."""


def csv_values(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """The column's values as CSV fields, before quoting; None is a null."""
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
        return list(column.cast(pa.string()).to_pylist())
    if is_bytes(kind):
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


def _local(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Instants as local times of the zone of their type."""
    unit, zone = column.type.unit, column.type.tz
    micros = column.cast(pa.timestamp("us", zone), safe=False)
    return zoned(micros, pa.timestamp("us"), zone).cast(pa.timestamp(unit))


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
    rows = _VALUES.objects(zip(batch.schema.names, batch.columns, strict=True))
    return joined(rows, ",")


def iso(time_ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC, with milliseconds."""
    commit = datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC)
    return commit.strftime("%Y-%m-%dT%H:%M:%S") + f".{time_ms % 1000:03d}Z"
