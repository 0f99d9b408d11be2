"""Options as users write them (`'key' = 'value'`), checked and converted in one place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

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

_WITH_UNIT = re.compile(r"^\s*(\d+)\s*([a-zA-Zµ]*)\s*$")
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


@dataclass(frozen=True)
class Metadata:
    """A value that a connector knows of each row, for METADATA columns.

    `type` is its Flink type; a column of another precision or length is allowed. `doc` is Markdown.
    """

    key: str
    type: str
    doc: str


def table_of(package: str, name: str) -> dict[str, Any]:
    """The TOML file `name` of a package: tables of options are data, read once by their module."""
    return tomllib.loads((files(package) / name).read_text("utf-8"))


def by_key(groups: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The `why` of each of the `keys` of groups, such as those of `[[without_effect]]`."""
    return {key: group["why"] for group in groups for key in group["keys"]}


@dataclass(frozen=True)
class DeclaredOptions:
    """The options of a connector or a format, from the `options.toml` of its package.

    `without_effect`: accepted keys, or beginnings of keys before a `*`, each with the reason.
    `earlier`: keys of earlier releases, and what they are today. `metadata`: for METADATA columns.
    """

    options: tuple[Option, ...]
    without_effect: Mapping[str, str]
    earlier: Mapping[str, str]
    metadata: tuple[Metadata, ...]

    @classmethod
    def of(cls, package: str, name: str = "options.toml") -> DeclaredOptions:
        """Those of a package."""
        table = table_of(package, name)
        options = (Option(key, **fields) for key, fields in table["options"].items())
        metadata = (Metadata(key, **fields) for key, fields in table.get("metadata", {}).items())
        without_effect, earlier = table.get("without_effect", {}), table.get("earlier", {})
        return cls(tuple(options), without_effect, earlier, tuple(metadata))

    def current(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options that have an effect, under their current names, which take precedence."""
        result = {key: value for key, value in options.items() if key not in self.earlier}
        for key, value in options.items():
            result.setdefault(self.earlier.get(key, key), value)
        return {
            key: value
            for key, value in result.items()
            if no_effect(key, self.without_effect) is None
        }


def no_effect(key: str, without_effect: Mapping[str, str]) -> str | None:
    """Why an option has no effect; None for other options. `x.*` stands for all beginning `x.`."""
    if key in without_effect:
        return without_effect[key]
    return next(
        (
            why
            for known, why in without_effect.items()
            if known.endswith("*") and key.startswith(known[:-1])
        ),
        None,
    )


@dataclass(frozen=True)
class OptionValues:
    """The options that a table has, as values of their declared types.

    A missing option has its default. `before` precedes the keys in errors.
    """

    declared: Iterable[Option]
    given: Mapping[str, str]
    before: str = ""

    def __contains__(self, key: str) -> bool:
        return key in self.given

    def text(self, key: str) -> str:
        """The text of an option; empty if it is missing without a default."""
        option = self._option(key)
        return self.given.get(key, option.default or "")

    def boolean(self, key: str) -> bool:
        return boolean(self.before + key, self.text(key))

    def integer(self, key: str, minimum: int | None = None) -> int:
        return integer(self.before + key, self.text(key), minimum)

    def duration_ms(self, key: str, minimum: int = 0) -> int:
        return duration_ms(self.before + key, self.text(key), minimum)

    def choice(self, key: str) -> str:
        """One of the words in the declared type, in any case."""
        allowed = re.findall("`([^`]+)`", self._option(key).type)
        text = self.text(key)
        spelt = {word.lower(): word for word in allowed}.get(text.strip().lower(), text)
        return choice(self.before + key, spelt, allowed)

    def _option(self, key: str) -> Option:
        return next(option for option in self.declared if option.key == key)


def check_known(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise `OptionError` for the first option of `given` that is not in `known`."""
    names = set(known)
    for key in given:
        if key not in names:
            raise OptionError(f"{where}: unknown option '{key}'; {nearest(key, names)}")


def duration_ms(key: str, value: str, minimum: int = 0) -> int:
    """Milliseconds of a duration such as `500ms`, `1 s`, `2 min`; bare numbers are milliseconds."""
    what = "a duration; write a number and a unit, such as '500ms', '1s', '2 min'"
    duration = _with_unit(key, value, _DURATION_MS, what)
    if duration < minimum:
        raise OptionError(f"option '{key}': '{value}' is too short; the least is '{minimum}ms'")
    return duration


def _with_unit(key: str, value: str, units: Mapping[str, float], what: str) -> int:
    """A whole number times its unit; `what` says in an error what the value is not."""
    match = _WITH_UNIT.match(value)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in units:
        raise OptionError(f"option '{key}': '{value}' is not {what}")
    return int(int(match.group(1)) * units[unit])


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


_SIZES = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mib"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gib"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tib"), 1 << 40),
}


def memory_bytes(key: str, value: str) -> int:
    """Bytes of a size such as `256MB` or `1 gb`; as in Paimon, a KB has 1,024 bytes."""
    what = "a size; write a number and a unit, such as '256MB'"
    return _with_unit(key, value, _SIZES, what)
