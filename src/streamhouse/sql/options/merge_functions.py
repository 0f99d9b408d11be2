"""Finds the function by which Paimon merges a column of an aggregating table."""

from collections.abc import Iterable, Mapping

MERGING_ENGINES = ("aggregation", "partial-update")
"""Values of `merge-engine` that merge the rows of a key column by column."""


def merge_function(options: Mapping[str, str], column: str) -> str:
    """The function for a column outside the key of an aggregation or partial-update table."""
    default = options.get("fields.default-aggregate-function", "last_non_null_value")
    return options.get(f"fields.{column}.aggregate-function", default)


def ignores_retractions(options: Mapping[str, str], column: str) -> bool:
    """Whether the merge function of a column ignores retractions (`ignore-retract`)."""
    return options.get(f"fields.{column}.ignore-retract", "").lower() == "true"


def sequence_fields(options: Mapping[str, str]) -> list[str]:
    """The columns of `sequence.field`, in their order; empty if there are none."""
    return [name.strip() for name in options.get("sequence.field", "").split(",") if name.strip()]


def group_sequence_fields(options: Mapping[str, str]) -> list[str]:
    """The columns by which the sequence groups of a partial-update table are ordered."""
    suffix = ".sequence-group"
    keys = (key for key in options if key.startswith("fields.") and key.endswith(suffix))
    names = (key.removeprefix("fields.").removesuffix(suffix).split(",") for key in keys)
    return [name.strip() for group in names for name in group]


def order_columns(options: Mapping[str, str], columns: Iterable[str]) -> set[str]:
    """The columns whose order decides which row or value of a key is kept."""
    extremes = {name for name in columns if merge_function(options, name) in ("max", "min")}
    return {*sequence_fields(options), *group_sequence_fields(options), *extremes}


def remove_option(options: Mapping[str, str]) -> str | None:
    """The option by which a `-D` removes a record; None for a merge engine that has none."""
    engine = options.get("merge-engine", "")
    return f"{engine}.remove-record-on-delete" if engine in MERGING_ENGINES else None


def removes_records(options: Mapping[str, str]) -> bool:
    """Whether a `-D` removes the record of its key, regardless of the rows merged into it."""
    option = remove_option(options)
    return option is not None and options.get(option, "").lower() == "true"


def keeps_removals_apart(options: Mapping[str, str]) -> bool:
    """Whether a table distinguishes an update from a removal and a later row of its key."""
    return options.get("merge-engine") == "partial-update" and removes_records(options)


def purges_remove_rows(options: Mapping[str, str]) -> bool:
    """Whether the compaction after a DELETE removes rows that were visible before it.

    Without the option, the `-D` of the DELETE only subtracts, and leaves a row of zeros and nulls.
    """
    return remove_option(options) is not None and not removes_records(options)
