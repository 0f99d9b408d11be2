"""The options of the `datagen` connector, under Flink's names, and which columns take them."""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.connectors.base import Option
from streamhouse.errors import OptionError
from streamhouse.options import check_known, choice, duration_ms, integer, nearest
from streamhouse.sql.plan import Column
from streamhouse.sql.types import base

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT")
_NUMBERS = (*_INTEGERS, "FLOAT", "DOUBLE", "DECIMAL")
_TEXTS = ("STRING", "VARCHAR", "CHAR", "BYTES", "BINARY", "VARBINARY")
_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ", "DATE", "TIME")
_OTHERS = ("BOOLEAN",)
_TYPES = (*_NUMBERS, *_TEXTS, *_TIMES, *_OTHERS)

# Field option: the types of columns that take it (None: all).
FIELD_OPTIONS: dict[str, tuple[str, ...] | None] = {
    "kind": None,
    "min": _NUMBERS,
    "max": _NUMBERS,
    "start": _INTEGERS,
    "end": _INTEGERS,
    "length": _TEXTS,
    "max-past": ("TIMESTAMP", "TIMESTAMP_LTZ"),
    "null-rate": None,
}
_SEQUENCE_ONLY = ("start", "end")
_RANDOM_ONLY = ("min", "max", "length", "max-past", "null-rate")

OPTIONS = (
    Option("rows-per-second", "INT", "rows generated per second, at least 1", "10000"),
    Option(
        "number-of-rows",
        "INT",
        "the number of rows after which the source ends; default: unbounded",
    ),
    Option("fields.<column>.kind", "`random`, `sequence`", "how values are generated", "random"),
    Option("fields.<column>.start", "INT", "first number of a sequence; required for a sequence"),
    Option("fields.<column>.end", "INT", "last number of a sequence, with which the source ends"),
    Option(
        "fields.<column>.min",
        "number",
        "smallest random number; default: the smallest of an integer type, else 0",
    ),
    Option(
        "fields.<column>.max",
        "number",
        "largest random number; default: the largest of an integer type, else 1000000 or the "
        "largest that a DECIMAL can hold",
    ),
    Option("fields.<column>.length", "INT", "characters of random strings, or bytes", "100"),
    Option(
        "fields.<column>.max-past",
        "DURATION",
        "the maximum age of random timestamps when their row is due; default: 0",
    ),
    Option("fields.<column>.null-rate", "DOUBLE", "the share of nulls, 0 to 1", "0"),
)


def check(options: Mapping[str, str], columns: tuple[Column, ...], where: str) -> None:
    """Check a datagen table's options against its columns."""
    by_name = {column.name: column for column in columns}
    for column in columns:
        if base(column.type) not in _TYPES:
            raise OptionError(
                f"{where}: datagen cannot generate {column.type} (column '{column.name}')"
            )
    plain = [key for key in options if not key.startswith("fields.")]
    check_known(plain, ["connector", *(option.key for option in OPTIONS)], where)
    for key, least in (("rows-per-second", 1), ("number-of-rows", 0)):
        if key in options:
            integer(key, options[key], least)
    by_field: dict[str, dict[str, str]] = {}
    for key, value in options.items():
        if not key.startswith("fields."):
            continue
        name, _, option = key.removeprefix("fields.").rpartition(".")
        if name not in by_name:
            raise OptionError(
                f"{where}: '{key}': there is no column '{name}'; {nearest(name, by_name)}"
            )
        if option not in FIELD_OPTIONS:
            raise OptionError(f"{where}: unknown option '{key}'; {nearest(option, FIELD_OPTIONS)}")
        by_field.setdefault(name, {})[option] = value
    for name, field_options in by_field.items():
        _check_field(by_name[name], field_options, where)


def _check_field(column: Column, options: Mapping[str, str], where: str) -> None:
    prefix, type_name = f"fields.{column.name}.", base(column.type)
    kind = choice(f"{prefix}kind", options.get("kind", "random"), ("random", "sequence"))
    for option in options:
        types = FIELD_OPTIONS[option]
        if types is not None and type_name not in types:
            raise OptionError(
                f"{where}: '{prefix}{option}' does not apply to {column.type}; "
                f"it applies to {', '.join(types)}"
            )
        if option in (_RANDOM_ONLY if kind == "sequence" else _SEQUENCE_ONLY):
            other = "random" if kind == "sequence" else "sequence"
            raise OptionError(f"{where}: '{prefix}{option}' needs '{prefix}kind' = '{other}'")
        _check_value(f"{prefix}{option}", option, options[option], type_name)
    if kind == "sequence":
        _check_sequence(prefix, options, type_name, where)
    low, high = options.get("min"), options.get("max")
    if low is not None and high is not None and float(low) > float(high):
        raise OptionError(f"{where}: '{prefix}min' is greater than '{prefix}max'")


def _check_sequence(prefix: str, options: Mapping[str, str], type_name: str, where: str) -> None:
    if type_name not in _INTEGERS:
        raise OptionError(f"{where}: '{prefix}kind' = 'sequence' needs an integer column")
    for option in _SEQUENCE_ONLY:
        if option not in options:
            raise OptionError(f"{where}: a sequence needs '{prefix}{option}'")
    if int(options["start"]) > int(options["end"]):
        raise OptionError(f"{where}: '{prefix}start' is greater than '{prefix}end'")


def _check_value(key: str, option: str, value: str, type_name: str) -> None:
    if option in ("start", "end"):
        integer(key, value)
    elif option in ("min", "max"):
        _check_number(key, value, whole=type_name in _INTEGERS)
    elif option == "length":
        integer(key, value, 0)
    elif option == "max-past":
        duration_ms(key, value)
    elif option == "null-rate":
        _check_number(key, value, whole=False)
        if not 0 <= float(value) <= 1:
            raise OptionError(f"option '{key}': '{value}' is not between 0 and 1")


def _check_number(key: str, value: str, whole: bool) -> None:
    if whole:
        integer(key, value)
        return
    try:
        float(value)
    except ValueError:
        raise OptionError(f"option '{key}': '{value}' is not a number") from None
