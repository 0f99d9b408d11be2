"""The option by which a `-D` removes the record of its key (`remove-record-on-delete`)."""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.sql.options.merge_functions import MERGING_ENGINES


def remove_option(options: Mapping[str, str]) -> str | None:
    """The option by which a `-D` removes a record; None for a merge engine that has none."""
    engine = options.get("merge-engine", "")
    return f"{engine}.remove-record-on-delete" if engine in MERGING_ENGINES else None


def removes_records(options: Mapping[str, str]) -> bool:
    """Whether a `-D` removes the record of its key, regardless of the rows merged into it."""
    option = remove_option(options)
    return option is not None and options.get(option, "").lower() == "true"


def purges_remove_rows(options: Mapping[str, str]) -> bool:
    """Whether the compaction after a DELETE removes rows that were visible before it.

    Without the option, the `-D` of the DELETE only subtracts, and leaves a row of zeros and nulls.
    """
    return remove_option(options) is not None and not removes_records(options)
