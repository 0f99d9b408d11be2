"""Dates and times as text, in Flink's two standards, to Arrow's numbers and back.

`SQL` writes `2024-05-01 12:00:00.5`, and `2024-05-01 12:00:00.5Z` for TIMESTAMP_LTZ; `ISO-8601` has
a `T` instead of the space. Fractions of a second have up to nine digits; those beyond the column's
precision are cut off. An offset such as `+02:00` is also read for TIMESTAMP_LTZ.
"""

import datetime
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.types import DIGITS

SQL, ISO = "SQL", "ISO-8601"
STANDARDS = (SQL, ISO)
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)([ T])(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?Z?", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1)
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SHORTEST, _LONGEST = len("2024-05-01 12:00:00"), len("2024-05-01 12:00:00.123456789")
_SEPARATOR = 10


def separator(standard: str) -> str:
    """What stands between date and time."""
    return " " if standard == SQL else "T"


def parse_timestamp(text: str, kind: pa.TimestampType, standard: str) -> int:
    """A timestamp's number in the unit of its Arrow type; `ValueError` for another text."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None or match[4] != separator(standard):
        raise ValueError(text)
    if (match[9] is None) != (kind.tz is None):
        raise ValueError(text)
    parts = [int(match[n]) for n in (1, 2, 3, 5, 6, 7)]
    since = datetime.datetime(*parts) - _EPOCH  # type: ignore[arg-type]
    seconds = since.days * 86_400 + since.seconds
    if match[9] and match[9] != "Z":
        hours, minutes = int(match[9][1:3]), int(match[9][4:6])
        if hours > 18 or minutes > 59:
            raise ValueError(text)
        offset = hours * 3600 + minutes * 60
        seconds += offset if match[9][0] == "-" else -offset
    number = seconds * PER_SECOND[kind.unit] + _fraction(match[8], kind.unit)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number


def _fraction(digits: str | None, unit: str) -> int:
    length = DIGITS[unit]
    return int((digits or "").ljust(length, "0")[:length] or 0)


def parse_time(text: str, unit: str) -> int:
    """A time of day's number in `unit`; `ValueError` for another text."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    hours, minutes, seconds = (int(match[n] or 0) for n in (1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(text)
    whole = hours * 3600 + minutes * 60 + seconds
    return whole * PER_SECOND[unit] + _fraction(match[4], unit)


def parse_date(text: str) -> int:
    """A date's days since 1970; `ValueError` for another text."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return (datetime.date(*(int(part) for part in match.groups())) - _EPOCH.date()).days


def parse_timestamps(texts: pa.Array, kind: pa.TimestampType, standard: str) -> pa.Array | None:
    """All timestamps of a string array at once; None if one of them needs `parse_timestamp`."""
    plain = texts
    if kind.tz is not None:
        if not _all(pc.ends_with(texts, "Z")):
            return None
        plain = pc.utf8_slice_codeunits(texts, 0, -1)
    bounds = pc.min_max(pc.binary_length(plain)).as_py()
    if bounds["min"] is None:
        return texts.cast(kind)
    if bounds["min"] < _SHORTEST or bounds["max"] > _LONGEST:
        return None
    if not _are_separated(plain, bounds["min"] == bounds["max"], separator(standard)):
        return None
    try:
        return plain.cast(pa.timestamp(kind.unit)).cast(kind)
    except pa.ArrowInvalid:
        return None


def _are_separated(texts: pa.Array, same_length: bool, mark: str) -> bool:
    """Whether `mark` stands between date and time in each text that is not null."""
    if same_length and not texts.null_count:
        _, places, data = texts.buffers()
        first, last = np.frombuffer(places, np.int32)[[texts.offset, texts.offset + len(texts)]]
        by_text = np.frombuffer(data, np.uint8)[first:last].reshape(len(texts), -1)
        return bool((by_text[:, _SEPARATOR] == ord(mark)).all())
    found = pc.utf8_slice_codeunits(texts, _SEPARATOR, _SEPARATOR + 1)
    return _all(pc.equal(found, mark))


def _all(mask: pa.Array) -> bool:
    return bool(pc.all(mask).as_py() is not False)


def timestamp_texts(array: pa.Array, standard: str) -> pa.StringArray:
    """Timestamps as text, with as few digits of a second as they need."""
    unit = array.type.unit
    texts = array.cast(pa.timestamp(unit)).cast(pa.string())
    if unit != "s":
        texts = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    if standard == ISO:
        texts = pc.replace_substring(texts, " ", "T")
    if array.type.tz is not None:
        texts = pc.binary_join_element_wise(texts, "Z", "")
    return texts


def shortened(text: str, standard: str) -> str:
    """A timestamp as Arrow writes it, with as few digits of a second as it needs."""
    plain = text.removesuffix("Z")
    if "." in plain:
        plain = plain.rstrip("0").rstrip(".")
    return plain.replace(" ", separator(standard)) + text[len(text.removesuffix("Z")) :]


def time_text(value: datetime.time) -> str:
    """A time of day as text, with as few digits of a second as it needs."""
    text = value.strftime("%H:%M:%S")
    return f"{text}.{value.microsecond:06d}".rstrip("0") if value.microsecond else text
