"""Options as users write them (`'key' = 'value'`), checked and converted in one place."""

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from importlib.resources import files
from typing import Any, Self, TypeVar

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
    """One option; checks, messages and docs are generated from it.

    `type` is shown in the docs: `STRING`, `INT`, `BOOLEAN`, `DOUBLE`, `DURATION`, `MEMORY SIZE`, or
    the allowed words. `key` may contain `<column>` for the name of a column, or end with `*`. `doc`
    is Markdown. `minimum` is that of a number, a duration (ms) or a size (bytes). `needs` has the
    options without which it has no effect, each with the value that it needs, or `*`; with
    `paired`, it must be given with them.
    """

    key: str
    type: str
    doc: str = ""
    default: str | None = None
    required: bool = False
    minimum: int | None = None
    needs: Mapping[str, str] = field(default_factory=dict, compare=False)
    paired: bool = False

    def value(self, text: str, before: str = "") -> Any:
        """A text as a value of the type: a duration in ms, a size in bytes, a word as declared.

        `before` precedes the key in errors.
        """
        key, convert = before + self.key, CONVERSIONS.get(self.type)
        if convert is not None:
            return convert(key, text, *(() if self.minimum is None else (self.minimum,)))
        if not self.type.startswith("`"):
            return text
        allowed = re.findall("`([^`]+)`", self.type)
        spelt = {_plain(word): word for word in allowed}.get(_plain(text), text)
        return choice(key, spelt, allowed)


def _plain(word: str) -> str:
    """A word without what its spellings differ in: `VERIFY_CA` is also `verify-ca`."""
    return re.sub("[_-]", "", word.strip().lower())


def options_of(table: Mapping[str, Mapping[str, Any]]) -> tuple[Option, ...]:
    """The options that a table of a TOML file declares, by their keys."""
    return tuple(Option(key, **entry) for key, entry in table.items())


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
    `connector`: other attributes of a connector, by their names.
    """

    options: tuple[Option, ...]
    without_effect: Mapping[str, str]
    earlier: Mapping[str, str]
    metadata: tuple[Metadata, ...]
    connector: Mapping[str, str]

    @classmethod
    def of(cls, package: str, name: str = "options.toml") -> Self:
        """Those of a package."""
        table = table_of(package, name)
        metadata = (Metadata(key, **entry) for key, entry in table.get("metadata", {}).items())
        without_effect, earlier = table.get("without_effect", {}), table.get("earlier", {})
        options, facts = options_of(table["options"]), table.get("connector", {})
        return cls(options, without_effect, earlier, tuple(metadata), facts)

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
    return next((why for known, why in without_effect.items() if _matches(key, known)), None)


def _matches(key: str, known: str) -> bool:
    """Whether a key is a known one; one with `*` or `<column>` stands for all that begin so."""
    beginning = re.split("[*<]", known)[0]
    return key == known or (beginning != known and key.startswith(beginning))


_Record = TypeVar("_Record")


def of_option(key: str, default: Any = MISSING) -> Any:
    """A field of a frozen record that `OptionValues.record` fills with the value of an option.

    `default` is for records of other options. The `repr` hides secrets.
    """
    return field(default=default, repr=not is_secret(key), metadata={"option": key}, kw_only=True)


@dataclass(frozen=True)
class OptionValues:
    """The options that a table has, as values of their declared types.

    A missing option has its default, else None. `before` precedes the keys in errors.
    """

    declared: Collection[Option]
    given: Mapping[str, str]
    before: str = ""

    def __contains__(self, key: str) -> bool:
        return key in self.given

    def __getitem__(self, key: str) -> Any:
        option = next(option for option in self.declared if option.key == key)
        text = self.given.get(key, option.default)
        return None if text is None else option.value(text, self.before)

    def record(self, kind: Callable[..., _Record], **others: Any) -> _Record:
        """A record of a class with fields of `of_option`; `others` are its other fields."""
        declared = {option.key for option in self.declared}
        keys = {one.name: one.metadata.get("option") for one in fields(kind)}  # type: ignore[arg-type]
        own = {name: self[key] for name, key in keys.items() if key in declared}
        return kind(**own, **others)

    def check(self, where: str) -> None:
        """Raise `OptionError` for an option that is unknown, missing, wrong, or needs another."""
        known = [option.key for option in self.declared]
        unknown = [key for key in self.given if not any(_matches(key, one) for one in known)]
        shown = [self.before + key for key in known]
        check_known([self.before + key for key in unknown], shown, where)
        for option in self.declared:
            if option.required and option.key not in self.given:
                key = self.before + option.key
                raise OptionError(f"{where}: option '{key}' is missing; {option.doc}")
            try:
                self[option.key]
                self._check_needs(option)
            except OptionError as error:
                raise OptionError(f"{where}: {error}") from None

    def _check_needs(self, option: Option) -> None:
        for key, value in option.needs.items():
            other = f"'{self.before}{key}'" + (f" = '{value}'" if value != "*" else "")
            fits = key in self.given if value == "*" else self[key] == value
            if option.key in self.given and not fits:
                raise OptionError(f"option '{self.before}{option.key}' needs {other}")
            if option.paired and fits and option.key not in self.given:
                raise OptionError(f"{other} needs '{self.before}{option.key}'")


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
        whole = int(value)
    except ValueError:
        raise OptionError(f"option '{key}': '{value}' is not a whole number") from None
    if minimum is not None and whole < minimum:
        raise OptionError(f"option '{key}': {whole} is too small; the least is {minimum}")
    return whole


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


def memory_bytes(key: str, value: str, minimum: int = 0) -> int:
    """Bytes of a size such as `256MB` or `1 gb`; as in Paimon, a KB has 1,024 bytes."""
    what = "a size; write a number and a unit, such as '256MB'"
    size = _with_unit(key, value, _SIZES, what)
    if size < minimum:
        raise OptionError(f"option '{key}': '{value}' is too small; the least is {minimum} b")
    return size


def number(key: str, value: str) -> float:
    """A number, which may have a fraction."""
    try:
        return float(value)
    except ValueError:
        raise OptionError(f"option '{key}': '{value}' is not a number") from None


def share(key: str, text: str) -> float:
    """A share of all, 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise OptionError(f"option '{key}': '{text}' is not a share from 0 to 1")
    return value


CONVERSIONS: Mapping[str, Callable[..., Any]] = {
    "BOOLEAN": boolean,
    "INT": integer,
    "BIGINT": integer,
    "DOUBLE": number,
    "0 to 1": share,
    "DURATION": duration_ms,
    "MEMORY SIZE": memory_bytes,
}
"""How the texts of options are converted, by their types."""
