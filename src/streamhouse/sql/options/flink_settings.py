"""Flink settings that are accepted and have no effect here.

A script written for a Flink cluster tunes state, restarts and operators. Here such a setting is
either always in effect, or there is nothing that it could tune, so it is accepted with a notice. A
setting that would change results is an error, unless its value is the behaviour here.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.close_matches import closest
from streamhouse.errors import OptionError
from streamhouse.options import by_key, table_of

_TABLE = table_of(__package__, "flink_settings.toml")
_INEFFECTIVE = by_key(_TABLE["ineffective"])
"""Keys or beginnings of keys, and why these settings have no effect."""
SYNONYMS: Mapping[str, str] = _TABLE["synonyms"]
"""Synonyms of keys that have an effect."""
_TYPO_SIMILARITY = 0.93


def ineffective(key: str, value: str, effective: frozenset[str]) -> str | None:
    """Why a Flink setting has no effect here; None for any other key.

    `effective` are the keys that do have an effect. A key that is nearly one of them gives None,
    too: it is more likely a typo. Raises `OptionError` for a setting that would change results.
    """
    if key in _TABLE["unsupported"]:
        raise OptionError(f"option '{key}': {_TABLE['unsupported'][key]}")
    only = _TABLE["only_value"].get(key)
    if only is not None:
        if value.strip().lower() != only:
            raise OptionError(
                f"option '{key}': '{value}' is not supported; the only supported value is '{only}'"
            )
        return "it is the only supported value"
    if closest(key, effective, _TYPO_SIMILARITY):
        return None
    return next((why for start, why in _INEFFECTIVE.items() if key.startswith(start)), None)
