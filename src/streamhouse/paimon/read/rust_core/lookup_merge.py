"""Merge on read for tables with lookup compaction: only a key's newest compacted row counts.

A lookup compaction (`changelog-producer` = `lookup`, `force-lookup`) merges a new row with the
key's row above level 0, whatever its level, and writes the result to a lower level. The older row
stays until a compaction takes files of both levels. So of a key's rows above level 0, the one on
the lowest level holds the whole value, and the others are obsolete. Paimon's Java core merges by
that rule (`LookupMergeFunction`). The Rust core merges the rows of all levels, and so counts values
twice if the merge engine aggregates (decision 105).

Level 0 together with one other level holds at most one compacted row of each key, which the Rust
core merges correctly. So each level above 0 is read together with level 0, and each key's row is
taken from the lowest level that has the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.arrow_batches import gathered
from streamhouse.paimon.read.conditions import Filter, only_on
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.source import of_kind
from streamhouse.sql.options.merge_functions import MERGING_ENGINES

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_GATHERED_ROWS = 1_000_000
"""The most rows to buffer before their keys are compared with those of lower levels."""


def newest_level_counts(options: Mapping[str, str], primary_key: Sequence[str]) -> bool:
    """Whether this rule changes the merged rows of a table.

    It needs a primary key. `deduplicate` keeps the newest row of all levels anyway, `first-row` the
    oldest. With deletion vectors, obsolete rows are masked.
    """
    return (
        bool(primary_key)
        and options.get("merge-engine", "").lower() in MERGING_ENGINES
        and options.get("deletion-vectors.enabled", "").lower() != "true"
        and (
            options.get("changelog-producer", "").lower() == "lookup"
            or options.get("force-lookup", "").lower() == "true"
        )
    )


def has_levels(split: bytes) -> bool:
    """Whether a split has files on several levels above 0 whose rows are to be merged."""
    frame = SplitFrame.parse(split)
    return not frame.streaming and len(_levels(frame)) > 1


def read(
    table: Table,
    columns: Sequence[str] | None,
    filter: Filter | None,
    split: bytes,
    row_kind: bool,
) -> Iterator[pa.RecordBatch]:
    """The merged rows of a split for which `has_levels` is true, as `Table.read` returns them."""
    schema, with_kind = table.read_schema(columns), table.read_schema(columns, True)
    key = [name for name in table.primary_key if name not in table.partition_keys]
    names = [*schema.names, *(name for name in key if name not in schema.names)]
    frame = SplitFrame.parse(split)
    *lower, top = _levels(frame)
    newer_keys = table.read_schema(key).empty_table()
    for level in (*lower, top):
        level_keys = None if level == top else _keys(table, key, filter, frame, level)
        part = replace(frame.on_levels(0, level), raw=False).serialize()
        merged = table.read_merged(names, filter, [part])
        for rows in _newest_rows(merged, level_keys, newer_keys):
            for batch in rows.select(schema.names).to_batches():
                yield of_kind(batch, "+I").cast(with_kind) if row_kind else batch
        if level_keys is not None:
            newer_keys = pa.concat_tables([newer_keys, level_keys])


def _newest_rows(
    batches: Iterable[pa.RecordBatch], level_keys: pa.Table | None, newer_keys: pa.Table
) -> Iterator[pa.Table]:
    """The rows of one level whose keys no lower level above 0 has.

    `level_keys` are the keys on the level, `newer_keys` those on lower levels. On the top level,
    `level_keys` is None, so that keys which are only on level 0 are selected there.
    """
    on_level = None if level_keys is None else KeySet(level_keys)
    newer = KeySet(newer_keys)
    # The cost of a comparison is that of the larger one of the buffered rows and the key set.
    largest = max(len(newer), 0 if on_level is None else len(on_level))
    for group in gathered(batches, min(largest, _GATHERED_ROWS)):
        rows = pa.Table.from_batches(group)
        mask = ~newer.mask(rows)
        if on_level is not None:
            mask &= on_level.mask(rows)
        yield rows.filter(pa.array(mask))


def _keys(
    table: Table, key: Sequence[str], filter: Filter | None, frame: SplitFrame, level: int
) -> pa.Table:
    """The keys on one level, those of deletes included; at least those that match the filter."""
    part = replace(frame.on_levels(level), streaming=True).serialize()
    batches = table.read_merged(key, only_on(filter, key.__contains__), [part])
    return pa.Table.from_batches(batches, table.read_schema(key))


def _levels(frame: SplitFrame) -> list[int]:
    return sorted({file.level for file in frame.files if file.level > 0})
