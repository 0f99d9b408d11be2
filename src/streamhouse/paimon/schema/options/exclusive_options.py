"""Refuses table options that exclude each other, which Paimon reports only at the first write."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamhouse.errors import OptionError

_VECTORS = ("deletion-vectors.enabled", "true")
_FIRST_ROW = ("merge-engine", "first-row")
_PAIRS = (
    (_VECTORS, ("changelog-producer", "full-compaction")),
    (_VECTORS, _FIRST_ROW),
    (_FIRST_ROW, ("changelog-producer", "input")),
    (_FIRST_ROW, ("changelog-producer", "full-compaction")),
)
"""Option values that the Java core does not accept together."""
_REMOVES = {
    "aggregation.remove-record-on-delete": (".ignore-retract",),
    "partial-update.remove-record-on-delete": ("ignore-delete", ".sequence-group"),
}


_IN_ORDER = ("first_value", "first_non_null_value", "listagg")
"""Merge functions whose result depends on the place of each row in the order of a sequence."""


def check_exclusive(where: str, options: Mapping[str, str], changed: Collection[str]) -> None:
    """Raise `OptionError` for two options that exclude each other, one of them in `changed`."""
    _check_removals(where, options, changed)
    _check_order(where, options, changed)
    for pair in _PAIRS:
        if all(options.get(key, "").lower() == value for key, value in pair) and any(
            key in changed for key, _ in pair
        ):
            first, second = (f"'{key}' = '{value}'" for key, value in pair)
            raise OptionError(
                f"{where}: options {first} and {second} exclude each other: Paimon's Java core "
                "refuses to open such a table; leave one of them out"
            )


def _check_removals(where: str, options: Mapping[str, str], changed: Collection[str]) -> None:
    """If a `-D` removes the whole record, no option may keep parts of it.

    No core writes a table with both.
    """
    for remove, suffixes in _REMOVES.items():
        if options.get(remove, "").lower() != "true":
            continue
        for key, value in options.items():
            enabled = key.endswith(".sequence-group") or value.lower() == "true"
            if key.endswith(suffixes) and enabled and (key in changed or remove in changed):
                raise OptionError(
                    f"{where}: options '{remove}' and '{key}' exclude each other: the first "
                    "removes a row with all its columns; leave one of them out"
                )


def _check_order(where: str, options: Mapping[str, str], changed: Collection[str]) -> None:
    """With a sequence, no function may depend on more than the last row.

    Merged rows have the sequence of the last of them, so a compaction moves the first ones behind
    rows that arrive later with a sequence between them.
    """
    orders = [key for key in options if key == "sequence.field" or key.endswith(".sequence-group")]
    for key, function in options.items():
        if not key.startswith("fields.") or not key.endswith("aggregate-function"):
            continue
        for order in orders if function in _IN_ORDER else ():
            if key in changed or order in changed:
                raise OptionError(
                    f"{where}: options '{key}' = '{function}' and '{order}' exclude each other: "
                    "rows that arrive out of order would be merged differently before and after a "
                    "compaction; leave one of them out"
                )
