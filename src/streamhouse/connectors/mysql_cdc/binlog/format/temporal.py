"""Decodes DATE, DATETIME, TIMESTAMP, TIME and YEAR, also in the formats before MySQL 5.6."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from pymysql.constants import FIELD_TYPE

from streamhouse.connectors.mysql_cdc.binlog.format.table_map import (
    DATETIME2,
    TIMESTAMP2,
    LoggedColumn,
)
from streamhouse.mysql.values.dates import timestamp_text

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Decodes the value at a byte offset; returns it and the offset after it."""

_DAY_MICROS = 86_400_000_000
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_TIME_OFFSET = 0x800000


def days(year: int, month: int, day: int) -> int | None:
    """Days since 1970; None for a zero date, and for a day that does not exist."""
    if year == 0 or month == 0 or day == 0:
        return None
    try:
        return datetime.date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:  # such as 31 February, which ALLOW_INVALID_DATES lets in
        return None


def micros(
    year: int, month: int, day: int, hours: int, minutes: int, seconds: int, fraction: int
) -> int | None:
    """Microseconds since 1970; None where `days` is None."""
    whole = days(year, month, day)
    if whole is None:
        return None
    of_day = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction
    return whole * _DAY_MICROS + of_day


def year_reader(wire: LoggedColumn) -> Read:
    return lambda data, at: (1900 + data[at] if data[at] else 0, at + 1)


def date_reader(wire: LoggedColumn) -> Read:
    def read(data: bytes, at: int) -> tuple[int | None, int]:
        packed = int.from_bytes(data[at : at + 3], "little")
        return days(packed >> 9, packed >> 5 & 15, packed & 31), at + 3

    return read


def datetime_reader(wire: LoggedColumn) -> Read:
    if wire.type == FIELD_TYPE.DATETIME:
        return _old_datetime
    extra = (wire.fraction + 1) // 2

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        months, end = packed >> 22, at + 5 + extra
        whole = days(months // 13, months % 13, packed >> 17 & 31)
        if whole is None:
            return None, end
        hours, minutes, seconds = packed >> 12 & 31, packed >> 6 & 63, packed & 63
        of_day = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
        return whole * _DAY_MICROS + of_day + _fraction(data, at + 5, extra), end

    return read


def timestamp_reader(wire: LoggedColumn) -> Read:
    if wire.type == FIELD_TYPE.TIMESTAMP:
        return _old_timestamp
    extra = (wire.fraction + 1) // 2

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        timestamp = seconds * 1_000_000 + _fraction(data, at + 4, extra)
        return (timestamp or None), at + 4 + extra

    return read


def date_text_reader(wire: LoggedColumn, digits: int) -> Read:
    """Decodes a DATE, DATETIME or TIMESTAMP to MySQL's text, whether or not it is a date.

    `digits`: how many to give after the seconds. A TIMESTAMP is in UTC.
    """
    if wire.type == FIELD_TYPE.DATE:
        return _date_text
    if wire.type in (FIELD_TYPE.TIMESTAMP, TIMESTAMP2):
        read_micros = timestamp_reader(wire)

        def read_timestamp(data: bytes, at: int) -> tuple[str, int]:
            value, end = read_micros(data, at)
            return timestamp_text(value, digits) if value else _datetime_text((0,) * 7, digits), end

        return read_timestamp
    parts_of = _old_datetime_parts
    if wire.type == DATETIME2:
        parts_of = partial(_datetime_parts, (wire.fraction + 1) // 2)

    def read(data: bytes, at: int) -> tuple[str, int]:
        parts, end = parts_of(data, at)
        return _datetime_text(parts, digits), end

    return read


def _date_text(data: bytes, at: int) -> tuple[str, int]:
    packed = int.from_bytes(data[at : at + 3], "little")
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}", at + 3


def _datetime_text(parts: Sequence[int], digits: int) -> str:
    year, month, day, hours, minutes, seconds, fraction = parts
    text = f"{year:04d}-{month:02d}-{day:02d} {hours:02d}:{minutes:02d}:{seconds:02d}"
    return f"{text}.{fraction:06d}"[: len(text) + 1 + digits] if digits else text


def _datetime_parts(extra: int, data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The year, month, …, and microseconds of a DATETIME; `extra`: the bytes of its fraction."""
    packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
    months = packed >> 22
    parts = (
        months // 13, months % 13, packed >> 17 & 31,
        packed >> 12 & 31, packed >> 6 & 63, packed & 63, _fraction(data, at + 5, extra),
    )  # fmt: skip
    return parts, at + 5 + extra


def time_reader(wire: LoggedColumn) -> Read:
    if wire.type == FIELD_TYPE.TIME:
        return _old_time
    digits = wire.fraction
    extra = (digits + 1) // 2
    shift = 8 * extra

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + 3 + extra
        packed = int.from_bytes(data[at:end], "big") - (_TIME_OFFSET << shift)
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        whole, fraction = packed >> shift, packed & ((1 << shift) - 1)
        text = f"{sign}{whole >> 12 & 1023:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
        if digits:
            text += f".{fraction * 100 ** (3 - extra):06d}"[: digits + 1]
        return text, end

    return read


def _fraction(data: bytes, at: int, size: int) -> int:
    scale: int = 100 ** (3 - size)
    return int.from_bytes(data[at : at + size], "big") * scale


def _old_datetime(data: bytes, at: int) -> tuple[int | None, int]:
    parts, end = _old_datetime_parts(data, at)
    return micros(*parts), end


def _old_datetime_parts(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    # The decimal digits YYYYMMDDhhmmss are the number.
    date, clock = divmod(int.from_bytes(data[at : at + 8], "little"), 1_000_000)
    parts = (
        date // 10_000, date // 100 % 100, date % 100,
        clock // 10_000, clock // 100 % 100, clock % 100, 0,
    )  # fmt: skip
    return parts, at + 8


def _old_timestamp(data: bytes, at: int) -> tuple[int | None, int]:
    seconds = int.from_bytes(data[at : at + 4], "little")
    return (seconds * 1_000_000 or None), at + 4


def _old_time(data: bytes, at: int) -> tuple[str, int]:
    # The decimal digits hhhmmss are the number.
    number = int.from_bytes(data[at : at + 3], "little", signed=True)
    sign, number = ("-", -number) if number < 0 else ("", number)
    clock = f"{number // 10_000:02d}:{number // 100 % 100:02d}:{number % 100:02d}"
    return sign + clock, at + 3
