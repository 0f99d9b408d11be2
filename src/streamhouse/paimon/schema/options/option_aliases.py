"""Corrects common misspellings of table options and their values."""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamhouse.sql.options.renamed_options import current

KEY_ALIASES = {
    "lookup.wait": "lookup-wait",
    "buckets": "bucket",
    "bucket-num": "bucket",
    "changelog.producer": "changelog-producer",
    "merge.engine": "merge-engine",
    "sequence-field": "sequence.field",
    "sequence.fields": "sequence.field",
    "deletion-vector.enabled": "deletion-vectors.enabled",
    "deletion-vectors.enable": "deletion-vectors.enabled",
    "full-compaction.delta-commit": "full-compaction.delta-commits",
    "fields.default-aggregation-function": "fields.default-aggregate-function",
}
"""Misspelled keys and the correct ones."""

_FUNCTION_KEY = re.compile(
    r"(fields\..+)\.(aggregation-function|agg-function|aggregate_function|aggregate\.function)"
)
_FUNCTION = re.compile(r"fields\..+\.aggregate-function|fields\.default-aggregate-function")

FUNCTION_ALIASES = {
    "last_non_null": "last_non_null_value",
    "last_not_null": "last_non_null_value",
    "last_not_null_value": "last_non_null_value",
    "first_not_null_value": "first_non_null_value",
    "first_non_null": "first_non_null_value",
    "first_not_null": "first_non_null_value",
    "last": "last_value",
    "first": "first_value",
    "list_agg": "listagg",
    "hll": "hll_sketch",
    "theta": "theta_sketch",
}
VALUE_ALIASES = {
    "merge-engine": {
        "aggregate": "aggregation",
        "dedup": "deduplicate",
        "deduplication": "deduplicate",
    },
    "changelog-producer": {"full-compact": "full-compaction", "fullcompaction": "full-compaction"},
}


def resolved(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options in Paimon's current spelling, and a notice for each that was corrected.

    A misspelled key stays as it is if the correct key is given, too. Options of earlier Paimon
    releases are translated by `renamed_options.current`, which adds its own notices.
    """
    corrected: dict[str, str] = {}
    notices = []
    for key, value in options.items():
        correct_key = _key(key)
        if correct_key in options and correct_key != key:
            correct_key = key
        correct_value = _value(correct_key, value)
        if correct_key != key:
            notices.append(f"option '{key}' is read as '{correct_key}'")
        if correct_value != value:
            notices.append(f"option '{correct_key}': '{value}' is read as '{correct_value}'")
        corrected[correct_key] = correct_value
    current_options, rename_notices = current(corrected)
    return current_options, [*notices, *rename_notices]


def _key(key: str) -> str:
    field = _FUNCTION_KEY.fullmatch(key)
    return f"{field[1]}.aggregate-function" if field else KEY_ALIASES.get(key, key)


def _value(key: str, value: str) -> str:
    if _FUNCTION.fullmatch(key):
        plain = value.strip().lower().replace("-", "_")
        return FUNCTION_ALIASES.get(plain, plain)
    if key in VALUE_ALIASES:
        plain = value.strip().lower().replace("_", "-")
        return VALUE_ALIASES[key].get(plain, plain)
    return value
