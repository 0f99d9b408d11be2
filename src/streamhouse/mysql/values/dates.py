"""Reads DATE, DATETIME and TIMESTAMP values, also those that are no dates.

MySQL has zero dates (`0000-00-00`), dates with a zero month or day (`2023-00-00`), and days that do
not exist (`2023-02-31`). See docs/decisions/222-values-of-mysql.md.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError

if TYPE_CHECKING:
    from streamhouse.mysql.values.types import MySqlColumn

OPTION = "jdbc.properties.zeroDateTimeBehavior"
ZeroDates = Literal["CONVERT_TO_NULL", "ROUND", "EXCEPTION"]
ZERO_DATES: tuple[ZeroDates, ...] = get_args(ZeroDates)

DAY_US = 86_400_000_000
EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
FIRST_DAY = datetime.date.min.toordinal() - EPOCH_DAY
"""0001-01-01 in days since 1970: as this date, `ROUND` reads zero dates."""
FIRST_US = FIRST_DAY * DAY_US
_EPOCH = datetime.datetime(1970, 1, 1)
_NO_DATE = r"^(0000|\d{4}-00|\d{4}-\d\d-00)"
_ZERO = r"^[0:. -]*$"
_SECONDS_CHARACTERS = len("0000-00-00 00:00:00")


@dataclass(frozen=True)
class DateReading:
    """How to read the values of one column that are no dates.

    `zero_dates`: the option's value. `in_key`: the column is in the key, so that different values
    must stay different. `as_text`: the values are read as MySQL's text, TIMESTAMP in UTC.
    """

    zero_dates: ZeroDates = "CONVERT_TO_NULL"
    in_key: bool = False
    as_text: bool = False

    @property
    def is_default(self) -> bool:
        """Whether all values that are no dates are NULL."""
        return self == AS_NULL

    @property
    def rounds_key(self) -> bool:
        """Whether zero dates are read as a date that no other key may have."""
        return self.zero_dates == "ROUND" and self.in_key and not self.as_text


AS_NULL = DateReading()


def text_keys(key: Iterable[str], types: dict[str, pa.DataType]) -> frozenset[str]:
    """The names of the key's columns that are written as STRING, or not at all.

    Their dates are read as texts. `types`: those of the columns that are written.
    """
    return frozenset(name for name in key if name not in types or pa.types.is_string(types[name]))


def parsed(
    column: MySqlColumn, texts: pa.Array, plain: pa.DataType, reading: DateReading
) -> pa.Array:
    """The plain array of MySQL's texts of a column."""
    if reading.as_text and reading.zero_dates != "EXCEPTION":
        return texts
    naive = pa.date32() if pa.types.is_date32(plain) else pa.timestamp("us")
    dates = _dates(texts, naive)
    if reading.rounds_key:
        first = texts.filter(is_first(dates))
        if len(first):
            raise _same_as_zero(column, first[0].as_py())
    if dates.null_count > texts.null_count and not reading.is_default:
        dates = _without_gaps(column, texts, dates, reading)
    if reading.as_text:
        return texts
    return dates if naive == plain else dates.cast(pa.int64()).cast(plain)


def _dates(texts: pa.Array, naive: pa.DataType) -> pa.Array:
    """The dates or local times; NULL for values that are no dates."""
    dates = _cast(texts, naive)
    if dates is None:
        # The server would need half of the time of its SELECT to find them.
        is_zero = pc.match_substring_regex(texts, _NO_DATE)
        some = pc.if_else(is_zero, pa.scalar(None, pa.string()), texts)
        dates = _cast(some, naive)
    if dates is None:
        dates = pa.array([_date(text, naive) for text in texts.to_pylist()], naive)
    return dates


def _cast(texts: pa.Array, naive: pa.DataType) -> pa.Array | None:
    """The timestamps or dates; None if some do not exist or are of the year 0."""
    try:
        timestamps = texts.cast(naive)
    except pa.ArrowInvalid:
        return None
    units = 1 if pa.types.is_date32(naive) else DAY_US
    least = pc.min(_numbers(timestamps)).as_py()
    return timestamps if least is None or least >= FIRST_DAY * units else None


def _numbers(dates: pa.Array) -> pa.Array:
    return dates.cast(pa.int32() if pa.types.is_date32(dates.type) else pa.int64())


def _date(text: str | None, naive: pa.DataType) -> datetime.date | None:
    """None for a day that does not exist, such as 31 February (with ALLOW_INVALID_DATES)."""
    try:
        timestamp = datetime.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return timestamp.date() if timestamp and pa.types.is_date32(naive) else timestamp


def _without_gaps(
    column: MySqlColumn, texts: pa.Array, dates: pa.Array, reading: DateReading
) -> pa.Array:
    """The dates, with a value for each text that is none; `TableError` if there must not be any."""
    missing = pc.and_(dates.is_null(), texts.is_valid())
    if reading.zero_dates == "ROUND":
        zero = pc.and_(missing, pc.match_substring_regex(texts, _ZERO))
        dates = pc.if_else(pc.fill_null(zero, False), first_scalar(dates.type), dates)
        missing = pc.and_(dates.is_null(), texts.is_valid())
        if not reading.in_key:
            return dates
    bad = texts.filter(missing)
    if len(bad):
        text = bad[0].as_py()
        if reading.zero_dates == "EXCEPTION":
            raise _exception(column, text)
        raise _no_date_in_key(column, text, reading.zero_dates)
    return dates


def first_scalar(kind: pa.DataType) -> pa.Scalar:
    """0001-01-01 00:00:00 as a date or timestamp."""
    if pa.types.is_date(kind):
        return pa.scalar(datetime.date.min, pa.date32()).cast(kind)
    return pa.scalar(FIRST_US, pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)


def is_first(dates: pa.Array) -> pa.Array:
    """Which of a plain array of dates or timestamps are 0001-01-01 00:00:00."""
    is_date = pa.types.is_date32(dates.type)
    return pc.equal(_numbers(dates), FIRST_DAY if is_date else FIRST_US)


def from_values(values: Sequence[Any], plain: pa.DataType, reading: DateReading) -> pa.Array:
    """The plain array of the binlog decoder's values."""
    if reading.as_text:
        return pa.array(values, pa.string())
    number = pa.int32() if pa.types.is_date32(plain) else pa.int64()
    return pa.array(values, number).cast(plain)


def texts_of(dates: pa.Array, digits: int) -> pa.Array:
    """MySQL's texts of a plain array; `digits`: after the seconds."""
    if pa.types.is_date32(dates.type):
        return dates.cast(pa.string())
    texts = dates.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())
    return pc.utf8_slice_codeunits(texts, 0, _text_length(digits))


def with_digits(texts: pa.Array, digits: int) -> pa.Array:
    """MySQL's texts of a DATETIME or TIMESTAMP with another number of digits."""
    seconds = pc.utf8_slice_codeunits(texts, 0, _SECONDS_CHARACTERS)
    if not digits:
        return seconds
    start = _SECONDS_CHARACTERS + 1
    fractions = pc.utf8_slice_codeunits(texts, start, start + digits)
    return pc.binary_join_element_wise(seconds, pc.utf8_rpad(fractions, digits, "0"), ".")


def _text_length(digits: int) -> int:
    return _SECONDS_CHARACTERS + (1 + digits if digits else 0)


def key_of_date(column: MySqlColumn, value: int | str, reading: DateReading) -> str:
    """MySQL's text of a value of a key, from a value of the binlog decoder."""
    if isinstance(value, str):
        return value
    is_date = column.data_type == "date"
    if reading.rounds_key and value == (FIRST_DAY if is_date else FIRST_US):
        return zero_text(column, 0)
    if is_date:
        return datetime.date.fromordinal(value + EPOCH_DAY).isoformat()
    return str(_EPOCH + datetime.timedelta(microseconds=value))


def zero_text(column: MySqlColumn, digits: int) -> str:
    """MySQL's text of the zero date."""
    if column.data_type == "date":
        return "0000-00-00"
    return "0000-00-00 00:00:00.000000"[: _text_length(digits)]


_AS_STRING = (
    "declare the column as STRING, which holds MySQL's text (in a sync, drop the Paimon table, and "
    "start with --type-mapping to-string and another --name)"
)
_AGAIN = "start again with a new checkpoint"


def _named(column: MySqlColumn) -> str:
    return f"column '{column.name}' ({column.column_type})"


def _no_date_in_key(column: MySqlColumn, text: str, zero_dates: ZeroDates) -> TableError:
    if re.fullmatch(_ZERO, text):
        return TableError(
            f"{_named(column)} of the key has the zero date {text}, for which its declared type "
            f"has no value; set '{OPTION}' = 'ROUND', which reads it as 0001-01-01, or "
            f"{_AS_STRING}, and {_AGAIN}"
        )
    rounds = ", and which 'ROUND' does not change" if zero_dates == "ROUND" else ""
    return TableError(
        f"{_named(column)} of the key has the value {text}, which is no date{rounds}; "
        f"{_AS_STRING}, and {_AGAIN}; or change the row in MySQL"
    )


def _same_as_zero(column: MySqlColumn, text: str) -> TableError:
    return TableError(
        f"{_named(column)} of the key has the value {text}, as which '{OPTION}' = 'ROUND' reads "
        f"the zero date, so that two keys could become one; {_AS_STRING}, and {_AGAIN}; or change "
        "the row in MySQL"
    )


def same_as_zero(column: MySqlColumn, target: pa.DataType) -> TableError:
    """The error for a key that the declared type makes equal to the rounded zero date."""
    return TableError(
        f"{_named(column)} of the key has a value that its declared type ({target}) makes equal to "
        f"0001-01-01, as which '{OPTION}' = 'ROUND' reads the zero date, so that two keys would "
        f"become one; {_AS_STRING}, and {_AGAIN}"
    )


def _exception(column: MySqlColumn, text: str) -> TableError:
    return TableError(
        f"{_named(column)} has the value {text}, which is no date, and '{OPTION}' is 'EXCEPTION'; "
        "set it to 'CONVERT_TO_NULL' or 'ROUND', leave the column out, or change the row in "
        f"MySQL, and {_AGAIN}"
    )
