"""Options as users write them (`'key' = 'value'`), checked and converted in one place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError

_SECRETS = (
    "password", "secret", "token", "access-key", "accesskey", "credential", "jaas.config",
    "user-info",
    "keystore.key", "ssl.key.pem",
)  # fmt: skip
_SECRET_VALUE = re.compile(
    r"""(?ix) ( (?: password | passwd | secret[\w.-]* | access[.-]?key | token ) ["']? \s*[=:]\s* )
        (?: "[^"]*" | '(?:[^']|'')*' | [^\s,;)}]+ )"""
)
_URL_SECRET = re.compile(r"(://[^\s/:@]*:)[^\s/@]+@")

_DURATION = re.compile(r"^\s*(\d+)\s*([a-zA-Zµ]*)\s*$")
_DURATION_MS: dict[str, float] = {
    "": 1,
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


@dataclass(frozen=True)
class Option:
    """One option of a connector's or a format's tables; docs and messages are generated from it.

    `type` is shown in the docs: `STRING`, `INT`, `BOOLEAN`, `DURATION`, `MEMORY SIZE`, or the
    allowed values. `key` may contain `<column>` for the name of a column. `doc` is Markdown.
    """

    key: str
    type: str
    doc: str
    default: str | None = None
    required: bool = False


def check_known(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise `OptionError` for the first option of `given` that is not in `known`."""
    names = set(known)
    for key in given:
        if key not in names:
            raise OptionError(f"{where}: unknown option '{key}'; {nearest(key, names)}")


def duration_ms(key: str, value: str) -> int:
    """Milliseconds of a duration such as `500ms`, `1 s`, `2 min`; bare numbers are milliseconds."""
    match = _DURATION.match(value)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in _DURATION_MS:
        raise OptionError(
            f"option '{key}': '{value}' is not a duration; write a number and a unit, "
            "such as '500ms', '1s', '2 min'"
        )
    return int(int(match.group(1)) * _DURATION_MS[unit])


def integer(key: str, value: str, minimum: int | None = None) -> int:
    """An integer option, at least `minimum`."""
    try:
        number = int(value)
    except ValueError:
        raise OptionError(f"option '{key}': '{value}' is not a whole number") from None
    if minimum is not None and number < minimum:
        raise OptionError(f"option '{key}': {number} is too small; the least is {minimum}")
    return number


def boolean(key: str, value: str) -> bool:
    """A boolean option: `true` or `false` in any case."""
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise OptionError(f"option '{key}': '{value}' is neither 'true' nor 'false'")
    return lowered == "true"


def choice(key: str, value: str, allowed: Iterable[str]) -> str:
    """An option with a fixed set of values."""
    names = list(allowed)
    if value not in names:
        raise OptionError(f"option '{key}': '{value}' is not one of {', '.join(names)}")
    return value


def required(options: Mapping[str, str], key: str, where: str) -> str:
    """The value of an option that must be there."""
    if key not in options:
        raise OptionError(f"{where}: option '{key}' is missing")
    return options[key]


def is_secret(key: str) -> bool:
    """Whether the value of an option must not be shown, judging by the option's name."""
    return any(word in key.lower() for word in _SECRETS)


def hide_secrets(text: str) -> str:
    """The text with the values of passwords, keys and tokens replaced by stars."""
    return _URL_SECRET.sub(r"\1***@", _SECRET_VALUE.sub(r"\1***", text))


_SIZE = re.compile(r"^\s*(\d+)\s*([a-zA-Z]*)\s*$")
_SIZES = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mib"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gib"), 1 << 30),
}


def memory_bytes(key: str, value: str) -> int:
    """Bytes of a size such as `256MB` or `1 gb`; as in Paimon, a KB has 1,024 bytes."""
    match = _SIZE.match(value)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in _SIZES:
        raise OptionError(
            f"option '{key}': '{value}' is not a size; write a number and a unit, such as '256MB'"
        )
    return int(match.group(1)) * _SIZES[unit]
