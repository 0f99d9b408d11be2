"""The options that Paimon 1.4 and its Flink connector know for a table, and their values.

`table_options.toml` has the options.
"""

import re
from collections.abc import Iterator, Mapping

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.options import CONVERSIONS, choice, table_of
from streamhouse.sql.options.renamed_options import dropped_option

TABLE = table_of(__package__, "table_options.toml")
TYPES = {key: kind for kind, keys in TABLE["by_type"].items() for key in keys.split()}
"""The options by the type of their values; a list of values stands for itself."""
CORE_KEYS = frozenset(TYPES)
FLINK_KEYS = frozenset(TABLE["flink"]["keys"].split())
"""Options of the Flink connector, stored with a table since scripts written for Flink set them."""
FIELD_TYPES: Mapping[str, str] = TABLE["field"]
"""The options of a column, `fields.<column>.…`, by the type of their values."""
FIELD = re.compile(r"fields\.(?P<columns>.+)\.(?P<what>[a-z-]+)")
_PATTERNS = tuple(map(re.compile, TABLE["patterns"]))


def check_table_options(options: Mapping[str, str], where: str) -> None:
    """Raise the first of the `option_faults`."""
    for fault in option_faults(options, where):
        raise fault


def option_faults(options: Mapping[str, str], where: str) -> Iterator[OptionError]:
    """Unknown keys, with the nearest known one, and values that are not of an option's type."""
    for key, value in options.items():
        fault = unknown_key(key, where)
        if fault is None:
            try:
                _check_value(key, value)
            except OptionError as error:
                fault = OptionError(f"{where}: {error}")
        if fault is not None:
            yield fault


def unknown_key(key: str, where: str) -> OptionError | None:
    """The error for a key that Paimon does not know, with the nearest key."""
    field = FIELD.fullmatch(key)
    if field and key not in CORE_KEYS:
        if field["what"] in FIELD_TYPES:
            return None
        hint = nearest(field["what"], FIELD_TYPES)
        return OptionError(f"{where}: unknown option '{key}'; options of a column: {hint}")
    known = CORE_KEYS | FLINK_KEYS
    # Some options of earlier releases have no effect today.
    if key in known or dropped_option(key) or any(each.fullmatch(key) for each in _PATTERNS):
        return None
    hint = nearest(key, known)
    if not hint.startswith("did"):
        hint = "see Paimon's table options for the known ones"
    return OptionError(f"{where}: unknown table option '{key}'; {hint}")


def value_type(key: str) -> str:
    """The type of an option's values, as in `TYPES`."""
    field = FIELD.fullmatch(key)
    return TYPES.get(key) or (FIELD_TYPES.get(field["what"]) if field else None) or "STRING"


def plain_values(options: Mapping[str, str]) -> dict[str, str]:
    """The options as Paimon's cores read them: no blanks around values, words in lower case."""

    def plain(key: str, value: str) -> str:
        kind = value_type(key)
        if kind == "STRING" and key != "bucket":
            return value
        return value.strip() if kind in CONVERSIONS or key == "bucket" else value.strip().lower()

    return {key: plain(key, value) for key, value in options.items()}


def _check_value(key: str, value: str) -> None:
    kind = value_type(key)
    if kind in CONVERSIONS:
        CONVERSIONS[kind](key, value)
    elif kind != "STRING":
        word = re.sub(r"\(\d+\)", "(<length>)", value.strip().lower())
        choice(key, word, kind.split(" | "))
