"""Checks that different keys stay different in the types to which they are converted.

A value of a key is accepted only if it can be computed back from the converted one. So two values
that become one cannot both be accepted, whichever of them is read first
(docs/decisions/222-values-of-mysql.md).
"""

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.mysql.values.dates import DateReading, is_first
from streamhouse.mysql.values.types import (
    WITH_FRACTIONS,
    MySqlColumn,
    has_fixed_offset,
    key_texts,
    trimmed_fractions,
    zoned,
)
from streamhouse.types import DIGITS, flink_type

# All decimals of so many digits become different numbers.
_FLOAT_DIGITS = {pa.float32(): 6, pa.float64(): 15}
_ZONE = (
    "set 'server-time-zone' (in a sync, with --mysql-conf) to an offset such as '+01:00', or to "
    "'UTC'"
)
_AGAIN = (
    "and start again with a new checkpoint (in a sync, drop the Paimon table, and choose another "
    "--name)"
)


def keeps_apart(column: MySqlColumn, target: pa.DataType, zone: str) -> bool:
    """Whether the conversion to `target` makes no values equal, or raises an error itself.

    `zone`: the server's. Otherwise `check_key` has to compare the values.
    """
    if column.plain == target:
        return True
    if pa.types.is_boolean(target):
        return bool(column.exact == target)
    if column.has_date and column.family != "date":
        if pa.types.is_integer(target):
            return True
        same_unit = pa.types.is_timestamp(target) and target.unit == "us"
        return same_unit and (target.tz == column.plain.tz or has_fixed_offset(zone))
    if column.family in ("int", "uint64", "year", "date"):
        return True
    if column.family == "decimal" and pa.types.is_decimal(column.plain):
        return not pa.types.is_floating(target) or column.precision <= _FLOAT_DIGITS.get(target, 0)
    if column.family == "bit" and pa.types.is_integer(target):
        return True
    if column.family == "set" and pa.types.is_list(target):
        return True
    return bool(pa.types.is_string(target) or pa.types.is_binary(target))


def check_declared(column: MySqlColumn, target: pa.DataType, declared: str) -> None:
    """Raise `TableError` if the declared type of a key column drops digits or is a BOOLEAN."""
    numbers = column.exact == pa.bool_() or column.family in ("int", "uint64", "year")
    if pa.types.is_boolean(target) and not numbers:
        raise TableError(
            f"column '{column.name}' ({column.column_type}) of the primary key cannot be a "
            "BOOLEAN, which does not keep its values apart; declare it as "
            f"{flink_type(column.exact)}"
        )
    if column.family not in ("datetime", "timestamp", "time"):
        return
    if not (pa.types.is_timestamp(target) or pa.types.is_time(target)):
        return
    digits = DIGITS[target.unit]
    if column.fraction > digits:
        zoneless = pa.types.is_timestamp(target) and target.tz is None
        wide = "TIMESTAMP(6)" if zoneless else "TIMESTAMP_LTZ(6)"
        raise TableError(
            f"column '{column.name}' ({column.column_type}) of the key has {column.fraction} "
            f"digits after the seconds, and its declared type {declared} keeps {digits}, so that "
            f"two keys could become one; declare it as "
            f"{wide if pa.types.is_timestamp(target) else 'STRING'}"
        )


def check_key(
    column: MySqlColumn, plain: pa.Array, converted: pa.Array, zone: str, reading: DateReading
) -> None:
    """Raise `TableError` if values of a key column cannot be computed back from `converted`.

    `zone`: the server's. Rounded zero dates, with which nothing else is equal, are not checked.
    """
    if reading.rounds_key:
        plain = pc.if_else(is_first(plain), pa.scalar(None, plain.type), plain)
    values = plain
    try:
        back = _back(plain, converted, zone)
        if pa.types.is_string(plain.type) and column.family in WITH_FRACTIONS:
            values, back = key_texts(column, plain), key_texts(column, back)
        same = pc.fill_null(pc.equal(values, back), False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        same = pa.repeat(pa.scalar(False), len(values))
    different = pc.and_(values.is_valid(), pc.invert(same))
    if pc.any(different).as_py():
        first = pc.index(different, True).as_py()
        raise _merged(column, values.slice(first, 1), converted.slice(first, 1), zone)


def check_instants(column: MySqlColumn, instants: pa.Array, zone: str) -> None:
    """Raise `TableError` if a key has a TIMESTAMP with the local time of another one."""
    if not has_fixed_offset(zone):
        check_key(column, instants, zoned(instants, pa.timestamp("us"), zone), zone, DateReading())


def _back(plain: pa.Array, converted: pa.Array, zone: str) -> pa.Array:
    """The values from which `converted` would be computed, with the type of `plain`."""
    if pa.types.is_timestamp(plain.type):
        is_timestamp = pa.types.is_timestamp(converted.type)
        local = pa.timestamp("us", converted.type.tz if is_timestamp else None)
        return zoned(converted.cast(local), plain.type, zone)
    if pa.types.is_string(plain.type) or pa.types.is_binary(plain.type):
        return _text(converted).cast(plain.type)
    return converted.cast(plain.type)


def _text(converted: pa.Array) -> pa.Array:
    """One text of each value: of a time, without zeros at the end of its fraction."""
    if pa.types.is_floating(converted.type):
        # -0.0 and 0.0 are equal.
        converted = pc.add(converted, pa.scalar(0, converted.type))
    texts = converted.cast(pa.string())
    if not (pa.types.is_time(converted.type) or pa.types.is_timestamp(converted.type)):
        return texts
    return trimmed_fractions(texts)


def _merged(column: MySqlColumn, value: pa.Array, converted: pa.Array, zone: str) -> TableError:
    """The error for a value, and what it is converted to; both are arrays of one."""
    named = f"column '{column.name}' ({column.column_type}) of the key has the value"
    kind = converted.type
    if pa.types.is_timestamp(value.type):
        is_instant = value.type.tz is not None
        other = pa.timestamp("us", tz=None if is_instant else "UTC")
        shifted = zoned(value, other, zone)
        shifts = is_instant or (pa.types.is_timestamp(kind) and kind.tz is not None)
        if shifts and zoned(shifted, value.type, zone) != value:
            text, to = _shown(value), _shown(shifted)
            if is_instant:
                return TableError(
                    f"{named} {text}, whose local time {to} in the zone {zone} another instant "
                    f"has, too, so that two keys could become one; {_ZONE}, or declare the column "
                    f"as TIMESTAMP_LTZ({column.fraction}), {_AGAIN}"
                )
            return TableError(
                f"{named} {text}, a local time that the zone {zone} skips, so that two keys could "
                f"become one; {_ZONE}, or declare the column as TIMESTAMP({column.fraction}), "
                f"{_AGAIN}"
            )
    return TableError(
        f"{named} {_shown(value)}, which its declared type ({flink_type(kind)}) makes "
        f"{_shown(converted)}, so that two keys could become one; declare a type that keeps all "
        f"values apart, such as {flink_type(column.exact)}, {_AGAIN}"
    )


def _shown(value: pa.Array) -> str:
    kind = value.type
    if pa.types.is_binary(kind):
        return f"0x{value[0].as_py().hex()}"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return f"{_shown(value.cast(pa.int64()).cast(pa.timestamp(kind.unit)))} UTC"
    return str(_text(value)[0].as_py())
