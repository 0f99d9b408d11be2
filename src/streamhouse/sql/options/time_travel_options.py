"""The options of time travel: the snapshot, tag or time at which a table is read."""

import datetime
from collections.abc import Callable, Mapping

from streamhouse.errors import OptionError
from streamhouse.options import integer
from streamhouse.sql.plan import AsOf

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECONDS_FROM = 100_000_000_000
"""Bare numbers from here on are milliseconds; as seconds they would be after the year 5000."""


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], AsOf]:
    """The options without those of `TRAVEL_KEYS`, and the time travel target that these name.

    `scan.timestamp` is in UTC unless it names a zone. Raises `OptionError` for two of them, or a
    wrong value.
    """
    present = [key for key in TRAVEL_KEYS if key in options]
    others = {key: value for key, value in options.items() if key not in TRAVEL_KEYS}
    if not present:
        return others, AsOf()
    if len(present) > 1:
        raise OptionError(f"options {' and '.join(present)} cannot be combined; set one of them")
    return others, _TARGETS[present[0]](present[0], options[present[0]])


def milliseconds(key: str, text: str) -> int:
    """Milliseconds since 1970 of a time such as `2026-01-01 00:00:00`, UTC unless it names a zone.

    A bare number is in seconds, or in milliseconds where seconds would be beyond the year 5000.
    """
    stripped = text.strip()
    if stripped.isdigit():
        return epoch_ms(int(stripped))
    try:
        time = datetime.datetime.fromisoformat(stripped)
    except ValueError:
        raise OptionError(
            f"option '{key}': '{text}' is not a time; write it as '2026-01-01 00:00:00' (UTC)"
        ) from None
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
    return (zoned - _EPOCH) // datetime.timedelta(milliseconds=1)


def epoch_ms(number: int) -> int:
    """Milliseconds of a number of seconds, or of milliseconds from `_MILLISECONDS_FROM` on."""
    return number if number >= _MILLISECONDS_FROM else number * 1000


_TARGETS: Mapping[str, Callable[[str, str], AsOf]] = {
    "scan.snapshot-id": lambda key, value: AsOf(snapshot=integer(key, value, 1)),
    "scan.tag-name": lambda _, value: AsOf(tag=value),
    "scan.version": lambda _, value: AsOf(version=value),
    "scan.timestamp": lambda key, value: AsOf(timestamp_ms=milliseconds(key, value)),
    "scan.timestamp-millis": lambda key, value: AsOf(timestamp_ms=integer(key, value)),
}
TRAVEL_KEYS = tuple(_TARGETS)
