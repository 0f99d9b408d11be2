"""The compacted part of a table: the state that a changelog made by compaction continues."""

from __future__ import annotations

from collections.abc import Sequence

from streamhouse.paimon.table import Table
from streamhouse.paimon.visibility import Moment, least_level


def compacted_only(table: Table, splits: Sequence[bytes], moment: Moment) -> list[bytes]:
    """The splits without files that wait for `moment`.

    A `lookup` changelog holds all rows above level 0, a `full-compaction` one those of the top
    level. Rows below are left out: the changelog will bring them once they are compacted.
    """
    # pypaimon takes half a second to import, so only those who need it do.
    from pypaimon.read.split_serializer import deserialize_split_v1, serialize_split_v1
    from pypaimon.schema.data_types import DataTypeParser

    least = least_level(table.options, moment)
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
