"""Converts dates that are read as texts, or whose zero dates are rounded, to a column's type."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.mysql_cdc.server.values.dates import (
    DateReading,
    first_scalar,
    is_first,
    same_as_zero,
    texts_of,
    with_digits,
    zero_text,
)
from streamhouse.connectors.mysql_cdc.server.values.key_targets import check_instants
from streamhouse.connectors.mysql_cdc.server.values.types import MySqlColumn, convert, zoned


def convert_dates(
    column: MySqlColumn, plain: pa.Array, target: pa.DataType, zone: str, reading: DateReading
) -> pa.Array:
    """Convert a plain array to the type `target`, as `types.convert` does.

    `zone`: the server's. A rounded zero date is 0001-01-01 00:00:00 in any type, and never shifted
    to another zone: in a TIMESTAMP_LTZ it is that time in UTC.
    """
    if reading.as_text:
        return _zoned_texts(column, plain, zone)
    if reading.zero_dates == "ROUND":
        return _rounded(column, plain, target, zone, reading.in_key)
    return convert(column, plain, target, zone)


def _zoned_texts(column: MySqlColumn, texts: pa.Array, zone: str) -> pa.Array:
    """MySQL's texts as the server shows them, with the digits of `column`."""
    if column.family == "date":
        return texts
    if column.family == "datetime":
        return with_digits(texts, column.fraction)
    zero = zero_text(column, 0)
    is_zero = pc.starts_with(texts, zero)
    instants = pc.if_else(is_zero, pa.scalar(None, pa.string()), texts).cast(pa.timestamp("us"))
    plain = instants.cast(pa.int64()).cast(column.plain)
    check_instants(column, plain, zone)
    local = texts_of(zoned(plain, pa.timestamp("us"), zone), column.fraction)
    return pc.if_else(is_zero, zero_text(column, column.fraction), local)


def _rounded(
    column: MySqlColumn, plain: pa.Array, target: pa.DataType, zone: str, in_key: bool
) -> pa.Array:
    first = _first(target, column)
    if plain.type == target or first is None:
        return convert(column, plain, target, zone)
    is_zero = is_first(plain)
    some = pc.any(is_zero).as_py()
    if some:
        # A shift to another zone could leave the years that dates can have.
        plain = pc.if_else(is_zero, pa.scalar(None, plain.type), plain)
    converted = convert(column, plain, target, zone)
    if in_key and pc.any(pc.equal(converted, first)).as_py():
        raise same_as_zero(column, target)
    return pc.if_else(is_zero, first, converted) if some else converted


def _first(target: pa.DataType, column: MySqlColumn) -> pa.Scalar | None:
    """0001-01-01 in a type; None for types that have no dates."""
    if pa.types.is_date(target) or pa.types.is_timestamp(target):
        return first_scalar(target)
    if pa.types.is_string(target):
        kind = pa.date32() if column.family == "date" else pa.timestamp("us")
        return texts_of(pa.array([first_scalar(kind)]), column.fraction)[0]
    return None
