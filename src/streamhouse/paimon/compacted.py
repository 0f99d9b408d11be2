"""The compacted part of a table, where the changelog of a compacting producer goes on from."""

from __future__ import annotations

from collections.abc import Sequence

from streamhouse.paimon.table import Table

_DEFAULT_TRIGGER = 5
"""`num-sorted-run.compaction-trigger`, to which Paimon ties the number of levels."""


def compacted_only(table: Table, splits: Sequence[bytes], producer: str) -> list[bytes]:
    """The splits with only the files whose rows the changelog has already told of.

    A `lookup` changelog has told of all above level 0, a `full-compaction` one of the top level:
    rows that wait below are not read, since the changelog brings them when they are compacted.
    """
    # pypaimon takes half a second to import, so only those who need it do.
    from pypaimon.read.split_serializer import deserialize_split_v1, serialize_split_v1
    from pypaimon.schema.data_types import DataTypeParser

    least = 1 if producer == "lookup" else _top_level(table)
    fields = {one["name"]: one for one in table.schema["fields"]}
    partition = [DataTypeParser.parse_data_field(fields[name]) for name in table.partition_keys]
    key = [
        DataTypeParser.parse_data_field(fields[name])
        for name in table.primary_key
        if name not in table.partition_keys
    ]
    kept = []
    for serialised in splits:
        split = deserialize_split_v1(serialised, partition, key)
        part = split.filter_file(lambda file: file.level >= least)
        if part is not None:
            whole = len(part.files) == len(split.files)
            kept.append(serialised if whole else bytes(serialize_split_v1(part)))
    return kept


def _top_level(table: Table) -> int:
    levels = table.options.get("num-levels")
    if levels is not None:
        return int(levels) - 1
    return int(table.options.get("num-sorted-run.compaction-trigger", _DEFAULT_TRIGGER))
