"""The options of the `datagen` connector, under Flink's names."""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.close_matches import nearest
from streamhouse.connectors.base import Option
from streamhouse.connectors.datagen.columns import columns_of, own_options
from streamhouse.connectors.datagen.disorder import OPTIONS as DISORDER
from streamhouse.connectors.datagen.disorder import Disorder
from streamhouse.connectors.datagen.field_options import FIELD_OPTIONS
from streamhouse.errors import OptionError
from streamhouse.options import check_known, integer
from streamhouse.sql.plan import Column

RATE_OPTIONS = (
    Option("rows-per-second", "INT", "rows generated per second, at least 1", "10000"),
    Option(
        "number-of-rows",
        "INT",
        "the number of rows after which the source ends; default: unbounded",
    ),
)
"""The options of all connectors of generated rows."""
OPTIONS = (
    *RATE_OPTIONS,
    Option("fields.<column>.kind", "`random`, `sequence`", "how values are generated", "random"),
    Option(
        "fields.<column>.start",
        "INT",
        "first number of a sequence, of numbers or text; required for a sequence",
    ),
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
    Option(
        "fields.<column>.length",
        "INT",
        "characters of random strings, or bytes; default: 100, or fewer if the type holds fewer. "
        "Of an ARRAY or MAP the number of elements; default: 3. The options of its parts are "
        "`fields.<column>.element.…`, `….key.…` and `….value.…`, of a ROW's `….<field>.…`",
    ),
    Option(
        "fields.<column>.var-len",
        "BOOLEAN",
        "whether strings and bytes have from one to `length` characters",
        "false",
    ),
    Option(
        "fields.<column>.max-past",
        "DURATION",
        "the maximum age of random timestamps when their row is due; default: 0",
    ),
    Option("fields.<column>.null-rate", "DOUBLE", "the share of nulls, 0 to 1", "0"),
    Option(
        "fields.<column>.zipf-exponent",
        "DOUBLE",
        "integers from `min` on have frequencies by Zipf's law, such as 1; default: all are "
        "equally frequent",
    ),
    *DISORDER,
)


def check(options: Mapping[str, str], columns: tuple[Column, ...], where: str) -> None:
    """Check a datagen table's options against its columns."""
    plain = [key for key in options if not key.startswith("fields.")]
    check_known(plain, ["connector", *(option.key for option in OPTIONS)], where)
    for key, least in (("rows-per-second", 1), ("number-of-rows", 0)):
        if key in options:
            integer(key, options[key], least)
    try:
        own = dict(option for column in columns for option in own_options(column))
        _check_fields(options, own)
        Disorder.parse(options)
        columns_of(columns, options)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from None


def _check_fields(options: Mapping[str, str], own: Mapping[str, tuple[str, ...] | None]) -> None:
    """Raise `OptionError` for an option of no column, or that no column has."""
    for key in options:
        if not key.startswith("fields."):
            continue
        name, _, option = key.removeprefix("fields.").rpartition(".")
        if name not in own:
            raise OptionError(f"'{key}': there is no column '{name}'; {nearest(name, own)}")
        allowed = own[name] or tuple(FIELD_OPTIONS)
        if option not in allowed:
            raise OptionError(f"unknown option '{key}'; {nearest(option, allowed)}")
