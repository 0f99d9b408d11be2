"""Java's date patterns: as DuckDB's `strftime` patterns, or formatted and parsed here.

The letters are those of `java.time.format.DateTimeFormatter`, in English and UTC. So are the
widths: `y` is the year in as many digits as it has, `yy` its last two digits, `MMM` a short month
name, `MMMM` a full one, and n times `S` the first n digits of the fraction of a second.
"""

import calendar
import datetime
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from streamhouse.sql.functions.expression_builders import ArgumentError

_STRFTIME = {
    "yyyy": "%Y", "yy": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%-m",
    "dd": "%d", "d": "%-d", "DDD": "%j", "HH": "%H", "H": "%-H", "hh": "%I",
    "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S", "SSS": "%g",
    "SSSSSS": "%f", "a": "%p", "EEEE": "%A", "EEE": "%a", "E": "%a",
}  # fmt: skip
"""Parts of patterns as DuckDB's strftime writes them."""
_EPOCH = datetime.datetime(1970, 1, 1)
_PART = re.compile(r"''|'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+|'")


class Timestamp(NamedTuple):
    """A timestamp to the microsecond (UTC), and the 0 to 999 nanoseconds beyond it."""

    at: datetime.datetime
    nanos: int


class Part(NamedTuple):
    """A pattern letter, repeated `width` times, or a literal text (with an empty `letter`)."""

    letter: str
    width: int
    text: str


@lru_cache(maxsize=256)
def parts(pattern: str) -> tuple[Part, ...]:
    """The parts of a pattern; `ArgumentError` for an unknown letter or an unclosed quote."""
    parsed_parts = []
    for match in _PART.finditer(pattern):
        text = match.group()
        if match[1]:
            if match[1] not in _FORMATS:
                raise ArgumentError(
                    f"'{text}' in the pattern '{pattern}' is not supported; known letters: "
                    f"{' '.join(sorted(_FORMATS))}",
                    unsupported=True,
                )
            parsed_parts.append(Part(match[1], len(text), text))
        elif text == "'":
            message = f"the pattern '{pattern}' has a quote that is never closed"
            raise ArgumentError(message, unsupported=True)
        elif text == "''":
            parsed_parts.append(Part("", 0, "'"))
        else:
            plain = text[1:-1].replace("''", "'") if text.startswith("'") else text
            parsed_parts.append(Part("", 0, plain))
    return tuple(parsed_parts)


def strftime(pattern: str) -> str | None:
    """DuckDB's strftime pattern of a Java pattern; None if only `formatted` can apply it."""
    try:
        texts = [
            _STRFTIME.get(part.text) if part.letter else part.text.replace("%", "%%")
            for part in parts(pattern)
        ]
    except ArgumentError:
        return None
    return "".join(text or "" for text in texts) if None not in texts else None


def formatted(micros: int, nanos: int, pattern: str) -> str | None:
    """Format a timestamp, given in microseconds since 1970 and the nanoseconds beyond them.

    None for a timestamp that Python's `datetime` cannot hold (years 1 to 9999).
    """
    try:
        timestamp = Timestamp(_EPOCH + datetime.timedelta(microseconds=micros), nanos)
    except OverflowError:
        return None
    return "".join(
        _FORMATS[part.letter](timestamp, part.width) if part.letter else part.text
        for part in parts(pattern)
    )


def _number(get: Callable[[datetime.datetime], int]) -> Callable[[Timestamp, int], str]:
    return lambda timestamp, width: str(get(timestamp.at)).zfill(width)


def _year(timestamp: Timestamp, width: int) -> str:
    text = str(timestamp.at.year)
    return text.zfill(2)[-2:] if width == 2 else text.zfill(width)


def _month(timestamp: Timestamp, width: int) -> str:
    if width >= 3:
        name = calendar.month_name[timestamp.at.month]
        return name[:1] if width == 5 else name if width == 4 else name[:3]
    return str(timestamp.at.month).zfill(width)


def _weekday(timestamp: Timestamp, width: int) -> str:
    name = calendar.day_name[timestamp.at.weekday()]
    return name[:1] if width == 5 else name if width == 4 else name[:3]


def _fraction(timestamp: Timestamp, width: int) -> str:
    return f"{timestamp.at.microsecond:06}{timestamp.nanos:03}".ljust(width, "0")[:width]


def _quarter(timestamp: Timestamp, width: int) -> str:
    quarter = (timestamp.at.month + 2) // 3
    if width >= 3:
        names = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
        return names[quarter - 1] if width == 4 else f"Q{quarter}"
    return str(quarter).zfill(width)


def _sunday_week(at: datetime.datetime) -> int:
    """The week of the year as in the United States: it starts on Sunday, week 1 has 1 January."""
    first = datetime.datetime(at.year, 1, 1)
    return ((at - first).days + (first.weekday() + 1) % 7) // 7 + 1


_FORMATS: dict[str, Callable[[Timestamp, int], str]] = {
    "A": _number(
        lambda at: int(
            (at - at.replace(hour=0, minute=0, second=0, microsecond=0))
            / datetime.timedelta(milliseconds=1)
        )
    ),  # fmt: skip
    "D": _number(lambda at: at.timetuple().tm_yday),
    "E": _weekday,
    "G": lambda timestamp, width: "Anno Domini" if width == 4 else "AD",
    "H": _number(lambda at: at.hour),
    "K": _number(lambda at: at.hour % 12),
    "L": _month,
    "M": _month,
    "Q": _quarter,
    "S": _fraction,
    "V": lambda timestamp, width: "UTC",
    "X": lambda timestamp, width: "Z",
    "Z": lambda timestamp, width: "GMT" if width == 4 else "Z" if width == 5 else "+0000",
    "a": lambda timestamp, width: "PM" if timestamp.at.hour >= 12 else "AM",
    "d": _number(lambda at: at.day),
    "e": _number(lambda at: (at.weekday() + 1) % 7 + 1),
    "h": _number(lambda at: at.hour % 12 or 12),
    "k": _number(lambda at: at.hour or 24),
    "m": _number(lambda at: at.minute),
    "n": lambda timestamp, width: str(timestamp.at.microsecond * 1000 + timestamp.nanos).zfill(
        width
    ),
    "q": _quarter,
    "s": _number(lambda at: at.second),
    "u": _year,
    "w": _number(_sunday_week),
    "x": lambda timestamp, width: "+00" if width == 1 else "+00:00" if width in (3, 5) else "+0000",
    "y": _year,
    "z": lambda timestamp, width: "UTC",
}

_MONTHS = {name[:3].lower(): place for place, name in enumerate(calendar.month_name) if name}
_NAMES = "|".join(name for name in calendar.month_name if name)
_READ = {
    "y": "year", "u": "year", "M": "month", "L": "month", "d": "day", "D": "yday", "H": "hour",
    "k": "hour24", "K": "hour12", "h": "hour12", "m": "minute", "s": "second", "S": "fraction",
    "a": "half", "E": "weekday",
}  # fmt: skip
"""Letters that `parsed` supports, and their fields."""


def check_readable(pattern: str) -> None:
    """Raise `ArgumentError` for letters that `parsed` does not support."""
    for part in parts(pattern):
        if part.letter and part.letter not in _READ:
            raise ArgumentError(
                f"'{part.text}' in the pattern '{pattern}' cannot be parsed from a text; known "
                f"letters: {' '.join(sorted(_READ))}",
                unsupported=True,
            )


def _field(field: str, width: int, before_letter: bool) -> tuple[str, Callable[[str], int]]:
    """The regular expression of a field, and what makes a number of its text.

    `before_letter`: another field follows, so that a number has a certain width.
    """
    if field == "half":
        return "[AaPp][Mm]", lambda text: int(text.lower() == "pm")
    if field == "weekday":
        return "[A-Za-z]+", lambda _: 0
    if field == "month" and width >= 3:
        # There is no month 0.
        form = _NAMES if width == 4 else "[A-Za-z]{3}"
        return form, lambda text: _MONTHS.get(text[:3].lower(), 0)
    if field == "fraction":
        return rf"\d{{1,{width}}}", lambda text: int(text.ljust(9, "0")[:9])
    convert = (lambda text: 2000 + int(text)) if field == "year" and width == 2 else int
    if before_letter or (width >= 2 and field != "year"):
        return rf"\d{{{width}}}", convert
    least = 4 if field == "year" and width == 4 else 1
    most = {"year": 4, "yday": 3}.get(field, 2)
    return rf"\d{{{least},{max(width, most)}}}", convert


@lru_cache(maxsize=256)
def _reader(pattern: str) -> tuple[re.Pattern[str], tuple[tuple[str, Callable[[str], int]], ...]]:
    """The regular expression of a pattern, and the field of each of its groups."""
    pattern_text, groups, every = "", [], parts(pattern)
    for part, after in zip(every, [*every[1:], Part("", 0, "")], strict=True):
        if not part.letter:
            pattern_text += re.escape(part.text)
            continue
        form, convert = _field(_READ[part.letter], part.width, bool(after.letter))
        pattern_text += f"({form})"
        groups.append((_READ[part.letter], convert))
    return re.compile(pattern_text), tuple(groups)


def parsed(text: str, pattern: str) -> datetime.datetime | None:
    """Parse a text by a pattern; None if it does not match or is no valid date.

    Fields that the pattern does not have are those of 1970-01-01 00:00:00.
    """
    expression, groups = _reader(pattern)
    match = expression.fullmatch(text)
    if match is None:
        return None
    found = zip(groups, match.groups(), strict=True)
    values = {field: convert(value) for (field, convert), value in found}
    hour = values.get("hour", values.get("hour24", 0) % 24)
    if "hour12" in values:
        hour = values["hour12"] % 12 + 12 * values.get("half", 0)
    try:
        day = datetime.datetime(
            values.get("year", 1970),
            values.get("month", 1),
            values.get("day", 1),
            hour,
            values.get("minute", 0),
            values.get("second", 0),
            values.get("fraction", 0) // 1000,
        )
    except ValueError:
        return None
    if "yday" in values and "month" not in values:
        day += datetime.timedelta(days=values["yday"] - 1)
    return day
