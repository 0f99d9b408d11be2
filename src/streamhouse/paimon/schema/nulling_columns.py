"""Columns for which a retraction must not be merged with other rows of its key.

The merge function `last_non_null_value` sets the column to null for a `-U` or `-D` with a value.
Merged with other rows of its key, the retraction becomes a plain row with a null, and a null leaves
the value of older rows as it is: 19, then `-U` of 19 and `+U` of null, show 19 again. So both rows
are written into separate files (`paimon.write.merge_rules.retraction_file_split`), and compactions
of such files take all files of a bucket (`paimon.java.bucket_compaction`).

The functions `collect`, `merge_map` and `nested_update` take the retracted elements out of what was
merged before. A merge without the older rows finds nothing there, and forgets the retraction. So it
must be the only row of its key in a file (decision 121).
"""

from collections.abc import Iterable, Mapping, Sequence

from streamhouse.sql.options.merge_functions import (
    MERGING_ENGINES,
    group_sequence_fields,
    ignores_retractions,
    merge_function,
    sequence_fields,
)

_ORDERLESS = {"sum", "product", "count", "max", "min"}
"""Merge functions whose result does not depend on the order of the rows."""


def nulling_columns(options: Mapping[str, str], columns: Iterable[str]) -> list[str]:
    """The columns that a retraction sets to null; `columns` are those outside the primary key."""
    columns = list(columns)
    found = _retracted(options, columns, ("last_non_null_value",))
    order = [name for name in sequence_fields(options) if name in columns]
    if options.get("merge-engine", "").lower() != "aggregation" or not order:
        return found
    functions = {merge_function(options, name) for name in columns if name not in order}
    if functions <= _ORDERLESS:
        return found
    # They merge by `last_value`. A null there is the oldest sequence in the next merge.
    return [*found, *(name for name in order if not ignores_retractions(options, name))]


def collecting_columns(options: Mapping[str, str], columns: Iterable[str]) -> list[str]:
    """The columns whose elements a retraction removes; `columns` are as for `nulling_columns`."""
    return _retracted(options, columns, ("collect", "merge_map", "nested_update"))


def _retracted(
    options: Mapping[str, str], columns: Iterable[str], functions: Sequence[str]
) -> list[str]:
    engine = options.get("merge-engine", "").lower()
    if engine not in MERGING_ENGINES:
        return []
    ordering = {*sequence_fields(options), *group_sequence_fields(options)}
    # In a partial-update table, only columns with a merge function of their own or by default.
    all_merge = engine == "aggregation" or "fields.default-aggregate-function" in options
    return [
        name
        for name in columns
        if name not in ordering
        and (all_merge or f"fields.{name}.aggregate-function" in options)
        and merge_function(options, name) in functions
        and not ignores_retractions(options, name)
    ]
