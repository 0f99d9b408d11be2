"""Random texts of patterns and regular expressions; pools of texts made by the package Faker."""

import re
import string
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.datagen.random_streams import Bits
from streamhouse.errors import OptionError
from streamhouse.options import table_of

# Python's own parser of regular expressions, which has no public name.
codes: Any = import_module("re._constants")
parser: Any = import_module("re._parser")

_MORE = 10
"""How many repetitions `*`, `+` and `{n,}` add at most."""
_MOST = 1_000
_PRINTABLE = string.ascii_letters + string.digits
_CATEGORIES = {
    codes.CATEGORY_DIGIT: string.digits,
    codes.CATEGORY_WORD: _PRINTABLE + "_",
    codes.CATEGORY_SPACE: " ",
}

Random = Callable[[str], Bits]
"""Random bits for each row, by the name of a stream."""


POOL, _SAMPLE = 1_000, 20
"""How many texts are made for each kind; it takes about a tenth of a second."""
_TABLE = table_of(__package__, "pools.toml")
_METHODS: Mapping[str, str] = _TABLE["methods"]
"""The methods of Faker for the directives of flink-faker, by their keys."""
_WORDS: Mapping[str, str] = _TABLE["words"]
COMBINED: Mapping[str, str] = _TABLE["combined"]
"""The expressions of directives of several pools, by their keys."""
_EXCLUDED = re.compile(
    r"^_|^(add_|get_|set_|del_|seed|parse|format|random$|factories|locales|items|provider|enum)"
    r"|date|time|unix|year|month|century|day|age$|birth|expire|profile|agent|firefox|passport|full$"
)
"""Attributes of Faker that are no values, and methods whose texts depend on today's date."""


def regex_texts(pattern: str, count: int, random: Random) -> pa.Array:
    """Texts that match a regular expression; raises `ValueError`."""
    try:
        tree = parser.parse(pattern)
    except re.error as error:
        raise ValueError(f"'{pattern}' is not a regular expression: {error}") from None
    return _Regex(count, random).texts(tree, "")


class _Regex:
    def __init__(self, count: int, random: Random) -> None:
        self._count, self._random = count, random

    def texts(self, nodes: Sequence[Any], path: str) -> pa.Array:
        return joined(
            [self._node(kind, value, f"{path}.{n}") for n, (kind, value) in enumerate(nodes)],
            self._count,
        )

    def _node(self, kind: Any, value: Any, path: str) -> pa.Array | pa.Scalar:
        if kind is codes.LITERAL:
            return pa.scalar(chr(value))
        if kind is codes.AT:
            return pa.scalar("")
        if kind is codes.ANY:
            return _chosen(_PRINTABLE, self._random(path))
        if kind is codes.NOT_LITERAL:
            return _chosen(_without(chr(value)), self._random(path))
        if kind is codes.IN:
            return _chosen(_members(value), self._random(path))
        if kind is codes.SUBPATTERN:
            return self.texts(value[3], path)
        if kind is codes.BRANCH:
            branches = [self.texts(part, f"{path}.{n}") for n, part in enumerate(value[1])]
            picked = (self._random(path) % np.uint64(len(branches))).astype(np.int64)
            return pc.choose(pa.array(picked), *branches)
        if kind in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inner = value
            return self._repeated(least, most, inner, path)
        raise ValueError(f"{str(kind).lower()} in a regular expression is not supported")

    def _repeated(self, least: int, most: Any, nodes: Sequence[Any], path: str) -> pa.Array:
        most = least + _MORE if most is codes.MAXREPEAT else int(most)
        if most > _MOST:
            raise ValueError(f"{most} repetitions are too many; the most are {_MOST}")
        spread = np.uint64(most - least + 1)
        counts = least + (self._random(f"{path}.count") % spread).astype(np.int64)
        parts: list[pa.Array] = []
        for turn in range(most):
            text = self.texts(nodes, f"{path}.{turn}")
            has_turn = pa.array(counts > turn)
            parts.append(text if turn < least else pc.if_else(has_turn, text, ""))
        return joined(parts, self._count)


def _members(nodes: Sequence[Any]) -> str:
    found = ""
    for kind, value in nodes:
        if kind is codes.LITERAL:
            found += chr(value)
        elif kind is codes.RANGE:
            found += "".join(map(chr, range(value[0], value[1] + 1)))
        elif kind is codes.CATEGORY and value in _CATEGORIES:
            found += _CATEGORIES[value]
        elif kind is not codes.NEGATE:
            raise ValueError(f"{str(value).lower()} in a set of characters is not supported")
    return _without(found) if nodes[0][0] is codes.NEGATE else found


def _without(excluded: str) -> str:
    left = "".join(char for char in _PRINTABLE if char not in excluded)
    if not left:
        raise ValueError("a set of characters excludes all letters and digits")
    return left


def _chosen(characters: str, bits: Bits) -> pa.Array:
    return picked(pa.array(list(characters), pa.string()), bits)


def picked(pool: pa.Array, bits: Bits) -> pa.Array:
    """A value of a pool for each row."""
    return pool.take(pa.array((bits % np.uint64(len(pool))).astype(np.int64)))


def joined(parts: Sequence[pa.Array | pa.Scalar], count: int) -> pa.Array:
    """The texts of `count` rows; a scalar is a part of all of them."""
    if not any(isinstance(part, pa.Array) for part in parts):
        return pa.repeat("".join(part.as_py() for part in parts), count)
    return pc.binary_join_element_wise(*parts, pa.scalar(""))


def known() -> list[str]:
    """The keys of the directives that have a pool."""
    return [*_METHODS, *_WORDS]


@lru_cache(maxsize=256)
def pool(key: str, name: str, locale: str, sample: bool = False) -> pa.Array | None:
    """The texts of a directive by its key and its name, with `sample` a few; None without any.

    A directive that flink-faker does not have is a method of Faker: `#{LicensePlate}`,
    `#{automotive.licensePlate}`.
    """
    if key in _WORDS:
        return pa.array([word.replace("_", " ") for word in _WORDS[key].split()])
    fake = _fake(locale)
    method = _METHODS.get(key)
    for candidate in [method] if method else _candidates(name):
        if hasattr(fake, candidate):
            return _made(fake, candidate, _SAMPLE if sample else POOL)
    return None


def check_locale(locale: str) -> None:
    """Raise `OptionError` for a locale that Faker does not have."""
    try:
        _fake(locale)
    except AttributeError:
        raise OptionError(
            f"option 'locale': '{locale}' is not a locale of Faker; write one such as 'en_US' or "
            "'de_DE'"
        ) from None


@lru_cache(maxsize=8)
def _fake(locale: str) -> Any:
    # Imported here: it takes a tenth of a second.
    from faker import Faker

    return Faker(locale)


def _made(fake: Any, method: str, size: int) -> pa.Array | None:
    # Its own seed: a pool must not depend on which pools were made before it.
    fake.seed_instance(zlib.crc32(method.encode()))
    texts = []
    for _ in range(size):
        try:
            value = getattr(fake, method)()
        except TypeError:
            return None
        if not isinstance(value, str | int | float):
            return None
        texts.append(str(value))
    return pa.array(texts, pa.string())


def _candidates(name: str) -> list[str]:
    """The methods of Faker that a directive may mean."""
    provider, _, method = name.rpartition(".")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", method).lower()
    names = [snake, f"{provider.lower()}_{snake}"] if provider else [snake]
    return [entry for entry in names if not _EXCLUDED.search(entry)]
