"""Finds formats by their Flink names, and their options among those of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.formats.base import Format
from streamhouse.options import Option

_MODULES = {
    "avro": "avro.plain:FORMAT",
    "avro-confluent": "avro.confluent:FORMAT",
    "canal-json": "json.changelog:CANAL",
    "csv": "csv.format:FORMAT",
    "debezium-json": "json.changelog:DEBEZIUM",
    "json": "json.format:FORMAT",
    "raw": "raw:FORMAT",
}


def names() -> tuple[str, ...]:
    """The names of all formats, sorted."""
    return tuple(sorted(_MODULES))


@cache
def format_of(name: str, key: str = "format") -> Format:
    """The format of that name; `OptionError` names the option `key` if there is none."""
    if name not in _MODULES:
        raise OptionError(f"option '{key}': unknown format '{name}'; {nearest(name, names())}")
    module, _, attribute = _MODULES[name].partition(":")
    found: Format = getattr(import_module(f"streamhouse.formats.{module}"), attribute)
    return found


def format_options(options: Mapping[str, str], name: str, before: str = "") -> dict[str, str]:
    """The options of a format, without their prefix `<before><name>.`.

    `before` is `""` for `'format'`, `value.` for `'value.format'`, `key.` for `'key.format'`.
    """
    prefix = f"{before}{name}."
    return {
        key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)
    }


def declared_options(formats: Iterable[Format], before: str = "") -> tuple[Option, ...]:
    """The options of formats with their prefixes, as a connector declares them."""
    return tuple(
        Option(
            f"{before}{known.name}.{option.key}", option.type, option.doc, option.default,
            option.required,
        )
        for known in formats
        for option in known.options
    )  # fmt: skip
