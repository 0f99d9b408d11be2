"""Pools of texts, made once in each process by the package Faker, from which rows are sampled."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from streamhouse.options import table_of

POOL, _SAMPLE = 1_000, 20
"""How many texts are made for each kind; it takes about a tenth of a second."""
_TABLE = table_of(__package__, "pools.toml")
_METHODS: Mapping[str, str] = _TABLE["methods"]
"""The methods of Faker for the directives of flink-faker, by their keys."""
_WORDS: Mapping[str, str] = _TABLE["words"]
_EXCLUDED = re.compile(
    r"^_|^(add_|get_|set_|del_|seed|parse|format|random$|factories|locales|items|provider|enum)"
    r"|date|time|unix|year|month|century|day|age$|birth|expire|profile|agent|firefox|passport|full$"
)
"""Attributes of Faker that are no values, and methods whose texts depend on today's date."""


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
    """Raise `ValueError` for a locale that Faker does not have."""
    try:
        _fake(locale)
    except AttributeError:
        raise ValueError(
            f"'{locale}' is not a locale of Faker; write one such as 'en_US' or 'de_DE'"
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
