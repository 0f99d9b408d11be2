"""Parses arguments as in Paimon's own procedures: options, partitions, times, lists of names."""

import datetime
import re
from collections.abc import Collection, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.paimon.schema.options.table_options import check_table_options
from streamhouse.sql.options.renamed_options import current

_RUN_OPTIONS = ("sink.parallelism", "scan.parallelism")
"""Options of the job, not of the table."""
_OUTSIDE_QUOTES = "(?=(?:[^']*'[^']*')*[^']*$)"


def parse_options(given: Mapping[str, str] | str | None, where: str) -> dict[str, str]:
    """Parse and check `key=value,key=value`; `OptionError` for unknown table options."""
    if given is None:
        return {}
    options = current(dict(given) if isinstance(given, Mapping) else pairs(given, where))[0]
    check_table_options(
        {key: value for key, value in options.items() if key not in _RUN_OPTIONS}, where
    )
    return options


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the table, and those of the job."""
    job = {key: value for key, value in options.items() if key in _RUN_OPTIONS}
    return {key: value for key, value in options.items() if key not in job}, job


def pairs(text: str, where: str) -> dict[str, str]:
    """Parse `key=value,key=value`; a semicolon separates, too, and neither does in quotes."""
    pairs = {}
    for part in re.split(f"[,;]{_OUTSIDE_QUOTES}", text):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"{where}: '{part.strip()}' is not key=value")
        pairs[key.strip()] = value.strip()
    return pairs


def parse_partitions(text: str) -> list[dict[str, str]]:
    """Parse `dt=1,hh='0,8';dt=2`: a comma means AND, a semicolon OR."""
    parts = re.split(f";{_OUTSIDE_QUOTES}", text)
    return [pairs(part, "argument 'partitions'") for part in parts if part.strip()]


def parse_where(text: str, columns: Collection[str], kind: str) -> exp.Expr:
    """Parse a condition over some columns, in Spark's syntax; `kind` says which they are."""
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise OptionError(f"argument 'where': {text!r} cannot be read: {first}") from None
    if tree.find(exp.Query, exp.Command, exp.DDL, exp.DML):
        raise OptionError(f"argument 'where' must be a condition over {kind}")
    for column in tree.find_all(exp.Column):
        check_column("where", column.name, columns, kind)
    return tree


def check_column(key: str, name: str, columns: Collection[str], kind: str) -> None:
    """Raise `OptionError` if an argument names another column than the `columns`."""
    if name not in columns:
        raise OptionError(
            f"argument '{key}': '{name}' is not one of the {kind}; {nearest(name, columns)}"
        )


def names(text: str) -> list[str]:
    """Parse `a, b` into a list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def timestamp_ms(key: str, text: str) -> int:
    """Milliseconds since 1970 of `2026-01-31 12:00:00[.123]`, in the machine's time zone.

    A whole number of more than eight digits is taken as milliseconds since 1970.
    """
    stripped = text.strip()
    if stripped.isdigit() and len(stripped) > 8:
        return int(stripped)
    try:
        return int(datetime.datetime.fromisoformat(stripped).timestamp() * 1000)
    except ValueError:
        raise OptionError(
            f"argument '{key}': '{text}' is not a point in time; write it as "
            "'2026-01-31 12:00:00', or as milliseconds since 1970"
        ) from None
