"""Options that the SQL layer itself checks: SET keys, lookup joins.

A script written for a Flink cluster tunes state, restarts and operators. Here such a setting is
either always in effect, or there is nothing that it could tune, so it is accepted with a notice. A
setting that would change results is an error, unless its value is the behaviour here.

For an unknown key, each `check_*` raises `OptionError` and names the nearest known key.
"""

from collections.abc import Mapping

from streamhouse.close_matches import closest
from streamhouse.errors import OptionError
from streamhouse.options import OptionValues, by_key, check_known, options_of, table_of
from streamhouse.sql.expressions.zones import ZONE_OPTION, zone_named

_FLINK = table_of(__package__, "flink_settings.toml")
_INEFFECTIVE = by_key(_FLINK["ineffective"])
"""Keys or beginnings of keys, and why these settings have no effect."""
SYNONYMS: Mapping[str, str] = _FLINK["synonyms"]
"""Synonyms of keys that have an effect."""
_TYPO_SIMILARITY = 0.93
_LOOKUP = table_of(__package__, "lookup_options.toml")
LOOKUP_OPTIONS = {
    option.key: option for option in options_of(_LOOKUP["effective"] | _LOOKUP["without_effect"])
}
"""Dynamic options of a dimension table that concern the join, with their effect here."""
SET_OPTIONS = {
    option.key: option for option in options_of(table_of(__package__, "set_options.toml"))
}
"""The options that SET takes, by their keys."""


def check_set(key: str, value: str) -> str | None:
    """Check one SET; raises `OptionError` for an unknown key or a value that is not allowed.

    Returns a notice if it is a Flink setting that has no effect here, else None.
    """
    key = SYNONYMS.get(key, key)
    if key not in SET_OPTIONS:
        why = ineffective(key, value, frozenset(SET_OPTIONS))
        if why is not None:
            return f"SET '{key}' has no effect here: {why}"
    check_known([key], SET_OPTIONS, "SET")
    SET_OPTIONS[key].value(value)
    if key == ZONE_OPTION:
        zone_named(key, value)
    if key == "pipeline.name" and not value.strip():
        raise OptionError(f"option '{key}' is empty; give the pipeline a name")
    return None


def ineffective(key: str, value: str, effective: frozenset[str]) -> str | None:
    """Why a Flink setting has no effect here; None for any other key.

    `effective` are the keys that do have an effect. A key that is nearly one of them gives None,
    too: it is more likely a typo. Raises `OptionError` for a setting that would change results.
    """
    if key in _FLINK["unsupported"]:
        raise OptionError(f"option '{key}': {_FLINK['unsupported'][key]}")
    only = _FLINK["only_value"].get(key)
    if only is not None:
        if value.strip().lower() != only:
            raise OptionError(
                f"option '{key}': '{value}' is not supported; the only supported value is '{only}'"
            )
        return "it is the only supported value"
    if closest(key, effective, _TYPO_SIMILARITY):
        return None
    return next((why for start, why in _INEFFECTIVE.items() if key.startswith(start)), None)


def is_lookup_option(key: str) -> bool:
    """Whether a dynamic option of a dimension table belongs to the join, not to the table."""
    return key.startswith("lookup.") or key in LOOKUP_OPTIONS


def check_lookup(options: Mapping[str, str], where: str) -> list[str]:
    """Check the options of a lookup join that belong to the join itself.

    Returns the keys that have no effect here, so that the runtime can report them. It ignores
    options of the table itself (see `is_lookup_option`), which its connector checks.
    """
    join_options = {key: value for key, value in options.items() if is_lookup_option(key)}
    OptionValues(LOOKUP_OPTIONS.values(), join_options).check(where)
    return [key for key in join_options if key in _LOOKUP["without_effect"]]
