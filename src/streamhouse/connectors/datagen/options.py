"""The options of the `datagen` connector, under Flink's names."""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.close_matches import nearest
from streamhouse.connectors.datagen.columns import columns_of, own_options
from streamhouse.connectors.datagen.disorder import Disorder
from streamhouse.connectors.datagen.field_options import FIELD_OPTIONS
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, check_known, integer
from streamhouse.sql.plan import Column

OPTIONS = DeclaredOptions.of(__package__).options
COMMON_OPTIONS = tuple(option for option in OPTIONS if not option.key.startswith("fields."))
"""The options of all connectors of generated rows."""


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
