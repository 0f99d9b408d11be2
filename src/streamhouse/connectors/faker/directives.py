"""Computes directives for all rows at once: numbers, times, texts of pools and of patterns."""

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.close_matches import nearest
from streamhouse.connectors.datagen.random_streams import Bits, Numbers, RowNumbers, unit_interval
from streamhouse.connectors.faker import patterns
from streamhouse.connectors.faker.patterns import joined, picked, regex_texts
from streamhouse.errors import OptionError

_DIRECTIVE = re.compile(
    r"#\{\s*(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)\s*"
    r"(?P<arguments>(?:'[^']*'\s*,?\s*)*)\}"
)
_ARGUMENT = re.compile(r"'([^']*)'")


@dataclass(frozen=True)
class Directive:
    """`#{provider.method 'argument', …}`; `name` as it was written."""

    name: str
    arguments: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name without case and underscores: `Name.fullName` is `name.full_name`."""
        return self.name.replace("_", "").lower()

    def __str__(self) -> str:
        given = ",".join(f"'{argument}'" for argument in self.arguments)
        return f"#{{{self.name}{' ' if given else ''}{given}}}"


def parse_expression(key: str, text: str) -> list[str | Directive]:
    """The parts of an expression; `key`: its option, for messages."""
    parts: list[str | Directive] = []
    at = 0
    for match in _DIRECTIVE.finditer(text):
        parts.append(text[at : match.start()])
        parts.append(Directive(match["name"], tuple(_ARGUMENT.findall(match["arguments"]))))
        at = match.end()
    parts.append(text[at:])
    for part in parts:
        if isinstance(part, str) and "#{" in part:
            raise OptionError(
                f"option '{key}': '{part[part.index('#{') :][:60]}' is not a directive; write "
                "#{provider.method} or #{provider.method 'argument','argument'}"
            )
    return [part for part in parts if part != ""]


Arguments: TypeAlias = tuple[str, ...]
_Compute: TypeAlias = Callable[..., pa.Array]
"""The values of rows for a stream of random numbers, and the arguments of a directive."""

_UNITS_MS = {
    "MILLISECONDS": 1,
    "SECONDS": 1_000,
    "MINUTES": 60_000,
    "HOURS": 3_600_000,
    "DAYS": 86_400_000,
}
_YEAR_MS = 31_557_600_000
_LETTERS = {"#": "[0-9]", "?": "[a-z]"}
"""What the marks of a pattern stand for."""
_EPOCH = datetime.datetime(1970, 1, 1)


def evaluate(
    parts: Sequence[str | Directive], rows: RowNumbers, stream: str, locale: str
) -> pa.Array:
    """The values of an expression: those of its only directive, else texts."""
    values = [
        _computed(part, rows, f"{stream}.{number}", locale)
        if isinstance(part, Directive)
        else pa.scalar(part)
        for number, part in enumerate(parts)
    ]
    if len(values) == 1 and isinstance(values[0], pa.Array):
        return values[0]
    return joined([value.cast(pa.string()) for value in values], len(rows))


def _computed(directive: Directive, rows: RowNumbers, stream: str, locale: str) -> pa.Array:
    """The values of a directive; raises `ValueError` with the reason if it cannot be computed."""
    if directive.key in _OF_TEXTS:
        return _OF_TEXTS[directive.key](rows, stream, directive.arguments)
    if directive.key in _OF_NUMBERS:
        counts, compute = _OF_NUMBERS[directive.key]
        return compute(rows, stream, *_numbers(directive.name, directive.arguments, counts))
    _numbers(directive.name, directive.arguments, (0,))
    parts = _COMBINED.get(directive.key)
    if parts is not None:
        return evaluate(parts, rows, stream, locale)
    pool = patterns.pool(directive.key, directive.name, locale, rows.sample)
    if pool is None:
        names = [*_OF_TEXTS, *_OF_NUMBERS, *_COMBINED, *patterns.known()]
        raise ValueError(f"unknown directive '{directive.name}'; {nearest(directive.key, names)}")
    return picked(pool, rows.bits(stream))


def _within(bits: Bits, low: int, high: int) -> Numbers:
    """Numbers from `low` to `high`, inclusive."""
    return low + (bits % np.uint64(high - low + 1)).astype(np.int64)


def _numbers(name: str, arguments: Arguments, counts: tuple[int, ...]) -> list[int]:
    """The arguments of a directive as whole numbers, of which there must be one of these counts."""
    if arguments and counts == (0,):
        raise ValueError(f"directive '{name}' takes no arguments")
    try:
        numbers = [int(argument) for argument in arguments]
    except ValueError:
        numbers = None
    if numbers is None or len(numbers) not in counts:
        wanted = " or ".join(map(str, counts))
        raise ValueError(f"directive '{name}' takes {wanted} whole numbers, not {arguments}")
    return numbers


def _number_between(rows: RowNumbers, stream: str, low: int, high: int) -> pa.Array:
    if not -(2**62) < low <= high < 2**62:
        raise ValueError(f"'number.numberBetween': {low} is greater than {high}, or out of range")
    # As Datafaker's, the upper bound is exclusive, unless it equals the lower one.
    return pa.array(_within(rows.bits(stream), low, max(low, high - 1)))


def _random_double(rows: RowNumbers, stream: str, digits: int, low: int, high: int) -> pa.Array:
    values = low + unit_interval(rows.bits(stream)) * (high - low)
    return pa.array(np.round(values, digits))


def _range(low: int, high: int) -> _Compute:
    return lambda rows, stream: pa.array(_within(rows.bits(stream), low, high))


def _digits(rows: RowNumbers, stream: str, count: int) -> pa.Array:
    return _pattern(rows, stream, "#" * count, "#")


def _boolean(rows: RowNumbers, stream: str) -> pa.Array:
    return pa.array((rows.bits(stream) & np.uint64(1)).astype(bool))


def _option(rows: RowNumbers, stream: str, arguments: Arguments) -> pa.Array:
    if not arguments:
        raise ValueError("directive 'Options.option' needs values: #{Options.option 'a','b'}")
    return picked(pa.array(arguments, pa.string()), rows.bits(stream))


def _regexify(rows: RowNumbers, stream: str, arguments: Arguments) -> pa.Array:
    if len(arguments) != 1:
        raise ValueError("directive 'regexify' takes one expression: #{regexify '[a-z]{3}'}")
    return regex_texts(arguments[0], len(rows), lambda part: rows.bits(f"{stream}/{part}"))


def _pattern(rows: RowNumbers, stream: str, pattern: str, marks: str) -> pa.Array:
    text = "".join(_LETTERS[one] if one in marks else re.escape(one) for one in pattern)
    # The same random numbers as in earlier releases: without the dot before the place.
    return regex_texts(text, len(rows), lambda part: rows.bits(f"{stream}/{part[1:]}"))


def _marked(marks: str) -> _Compute:
    def computed(rows: RowNumbers, stream: str, arguments: Arguments) -> pa.Array:
        if len(arguments) != 1:
            raise ValueError(f"takes one pattern, in which {' and '.join(marks)} are replaced")
        return _pattern(rows, stream, arguments[0], marks)

    return computed


def _characters(rows: RowNumbers, stream: str, low: int = 255, high: int | None = None) -> pa.Array:
    text = f"[a-z0-9]{{{low},{low if high is None else high}}}"
    return regex_texts(text, len(rows), lambda part: rows.bits(f"{stream}/{part}"))


def _uuid(rows: RowNumbers, stream: str) -> pa.Array:
    halves = np.stack([rows.bits(stream, "high"), rows.bits(stream, "low")], axis=1)
    halves[:, 0] = (halves[:, 0] & ~np.uint64(0xF000)) | np.uint64(0x4000)
    halves[:, 1] = (halves[:, 1] & ~np.uint64(3 << 62)) | np.uint64(1 << 63)
    digits = [row.tobytes().hex() for row in halves.byteswap()]
    texts = [f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in digits]
    return pa.array(texts, pa.string())


def _joined_numbers(count: int, base: str, separator: str, digits: int) -> _Compute:
    """Numbers below 256 ** `digits` in hexadecimal or decimal, with separators: addresses."""
    size = 256**digits
    names = pa.array([format(n, base) for n in range(size)], pa.string())

    def computed(rows: RowNumbers, stream: str) -> pa.Array:
        parts = [picked(names, rows.bits(stream, f"{place}")) for place in range(count)]
        return pc.binary_join_element_wise(*parts, pa.scalar(separator))

    return computed


def _degrees(most: int) -> _Compute:
    return lambda rows, stream: pa.array(
        np.round((unit_interval(rows.bits(stream)) * 2 - 1) * most, 6)
    )


def _price(rows: RowNumbers, stream: str, low: int = 0, high: int = 100) -> pa.Array:
    return _random_double(rows, stream, 2, low, high)


def _relative_time(sign: int) -> _Compute:
    """`atMost`, [`atLeast`,] `unit`: a time before or after that of the row."""

    def computed(rows: RowNumbers, stream: str, arguments: Arguments) -> pa.Array:
        *amounts, unit = arguments or ("",)
        if unit.upper() not in _UNITS_MS:
            raise ValueError(
                f"'{unit}' is not a unit; write #{{date.past '15','SECONDS'}}, with one of "
                f"{', '.join(_UNITS_MS)}"
            )
        numbers = _numbers("date", tuple(amounts), (1, 2))
        least, most = (numbers[1], numbers[0]) if len(numbers) == 2 else (0, numbers[0])
        if not 0 <= least <= most:
            raise ValueError(f"at least {least} and at most {most} {unit} leave no time")
        scale = _UNITS_MS[unit.upper()]
        share = unit_interval(rows.bits(stream))
        return _timestamps(rows.due_ms + sign * (least + share * (most - least)) * scale)

    return computed


def _birthday(rows: RowNumbers, stream: str, youngest: int = 18, oldest: int = 65) -> pa.Array:
    years = youngest + unit_interval(rows.bits(stream)) * (oldest - youngest)
    return _timestamps(rows.due_ms - years * _YEAR_MS)


def _date_between(rows: RowNumbers, stream: str, arguments: Arguments) -> pa.Array:
    try:
        first, last = (datetime.datetime.fromisoformat(argument) for argument in arguments)
    except ValueError:
        raise ValueError(
            "directive 'date.between' takes two dates: #{date.between '2024-01-01','2024-12-31'}"
        ) from None
    low, high = ((time - _EPOCH) // datetime.timedelta(milliseconds=1) for time in (first, last))
    return _timestamps(low + unit_interval(rows.bits(stream)) * (high - low))


def _timestamps(ms: npt.NDArray[Any]) -> pa.Array:
    return pa.array(np.floor(ms).astype(np.int64)).cast(pa.timestamp("ms"))


_OF_NUMBERS: Mapping[str, tuple[tuple[int, ...], _Compute]] = {
    "number.numberbetween": ((2,), _number_between),
    "number.randomdouble": ((3,), _random_double),
    "number.randomdigit": ((0,), _range(0, 9)),
    "number.digit": ((0,), _range(0, 9)),
    "number.randomdigitnotzero": ((0,), _range(1, 9)),
    "number.randomnumber": ((0,), _range(0, 10**9 - 1)),
    "number.positive": ((0,), _range(1, 2**31 - 1)),
    "number.negative": ((0,), _range(-(2**31), -1)),
    "number.digits": ((1,), _digits),
    "bool.bool": ((0,), _boolean),
    "lorem.characters": ((0, 1, 2), _characters),
    "internet.uuid": ((0,), _uuid),
    "internet.ipv4address": ((0,), _joined_numbers(4, "d", ".", 1)),
    "internet.ipv6address": ((0,), _joined_numbers(8, "04x", ":", 2)),
    "internet.macaddress": ((0,), _joined_numbers(6, "02x", ":", 1)),
    "address.latitude": ((0,), _degrees(90)),
    "address.longitude": ((0,), _degrees(180)),
    "commerce.price": ((0, 2), _price),
    "date.birthday": ((0, 2), _birthday),
}
"""Directives whose arguments are whole numbers: how many, and what computes them."""
_OF_TEXTS: Mapping[str, _Compute] = {
    "options.option": _option,
    "regexify": _regexify,
    "expression.regexify": _regexify,
    "numerify": _marked("#"),
    "letterify": _marked("?"),
    "bothify": _marked("#?"),
    "date.past": _relative_time(-1),
    "date.future": _relative_time(1),
    "date.between": _date_between,
}
_COMBINED = {key: parse_expression(key, text) for key, text in patterns.COMBINED.items()}
"""Directives of several pools."""
