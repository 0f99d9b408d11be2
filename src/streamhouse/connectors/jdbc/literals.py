"""Arrow values as literals of MySQL's SQL, column by column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.mysql_cdc.server.values.types import MySqlColumn, zoned
from streamhouse.errors import TableError

_NOTHING = pa.scalar(b"")
_QUOTE = pa.scalar(b"'")
_BINARY = pa.scalar(b"_binary'")
_LOCAL, _INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
_SECONDS_TEXT = len("2024-01-02 03:04:05")


def literals(column: MySqlColumn, values: pa.Array, zone: str) -> pa.Array:
    """A literal for each value, as binary values; nulls stay null.

    The session's time zone is UTC, and its SQL mode has backslash escapes. `zone`: between DATETIME
    and instants, as for reading. Raises `TableError` for values that MySQL cannot hold.
    """
    kind = values.type
    if pa.types.is_boolean(kind):
        return pc.if_else(values, pa.scalar(b"1"), pa.scalar(b"0"))
    if pa.types.is_integer(kind):
        return _text(values)
    if pa.types.is_floating(kind):
        _check_finite(column, values)
        return _quoted(_text(values))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(_escaped(values.cast(pa.string()).cast(pa.binary())))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _bytes(column, values.cast(pa.binary()))
    if pa.types.is_timestamp(kind):
        return _quoted(_timestamps(column, values, zone))
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return _quoted(_text(values))
    if pa.types.is_list(kind) and column.family == "set":
        return _quoted(_escaped(pc.binary_join(values, ",").cast(pa.binary())))
    raise TableError(
        f"column '{column.name}': MySQL has no type for {kind}; write it as text, such as "
        "JSON_OBJECT(…) AS STRING, or leave the column out"
    )


def _text(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()).cast(pa.binary())


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _NOTHING)


def _escaped(texts: pa.Array) -> pa.Array:
    for mark in (b"\\", b"'"):
        if pc.any(pc.match_substring(texts, mark)).as_py():
            texts = pc.replace_substring(texts, pattern=mark, replacement=b"\\" + mark)
    return texts


def _bytes(column: MySqlColumn, values: pa.Array) -> pa.Array:
    if column.family == "bit":
        hexadecimal = [
            None if v is None else b"X'" + v.hex().encode() + b"'" for v in values.to_pylist()
        ]
        return pa.array(hexadecimal, pa.binary())
    return pc.binary_join_element_wise(_BINARY, _escaped(values), _QUOTE, _NOTHING)


def _timestamps(column: MySqlColumn, values: pa.Array, zone: str) -> pa.Array:
    """Texts of timestamps, without the digits that the column does not hold."""
    zoned_type = _LOCAL if values.type.tz is None else _INSTANT
    micros = values.cast(zoned_type, safe=False)
    if column.family == "timestamp":
        micros = zoned(micros, _INSTANT, zone)
    elif column.family in ("datetime", "date"):
        micros = zoned(micros, _LOCAL, zone)
    local = micros.cast(pa.int64()).cast(_LOCAL)
    digits = column.fraction if column.family in ("datetime", "timestamp") else 6
    end = _SECONDS_TEXT + (1 + digits if digits else 0)
    return pc.utf8_slice_codeunits(local.cast(pa.string()), 0, end).cast(pa.binary())


def _check_finite(column: MySqlColumn, values: pa.Array) -> None:
    if not pc.all(pc.is_finite(values)).as_py() and values.null_count < len(values):
        raise TableError(
            f"column '{column.name}' ({column.column_type}): MySQL has no NaN and no infinity; "
            f"write NULL instead, such as IF(IS_DECIMAL(CAST(x AS STRING)), x, NULL)"
        )
