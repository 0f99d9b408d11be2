"""Groups changes that are computed together, and computes those of many snapshots from one read.

If the changes of a snapshot are few, all buckets are compared at once: every key is in one bucket
only, and each comparison costs milliseconds however few the rows.

If the last row written for a key is its row, many consecutive snapshots need only one read of the
table. A commit's own files hold the rows of its keys after it. The rows before it are known from
the earlier commits, and for the first one from that read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon_rust.datafusion import Split

from streamhouse.paimon.changelog.snapshot_changes import (
    MOST_KEYS,
    Difference,
    bucket_folder,
    gathered,
    keys_of,
)
from streamhouse.paimon.changelog.state_difference import Differ
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.paimon.storage.split_groups import file_ids
from streamhouse.source import ROW_KIND

Group = tuple[bytes, ...] | Difference


class Stretch(NamedTuple):
    """Groups that can be read at once.

    If `simple`, they are differences of one or more consecutive snapshots, for
    `multi_snapshot_changes`. Otherwise they are differences of one snapshot, for `changed_rows`,
    or one group of splits.
    """

    groups: list[Group]
    simple: bool


def last_row_wins(table: Table) -> bool:
    """Whether a key's row is simply the one that was committed last."""
    options = table.options
    return (
        options.get("merge-engine", "deduplicate") == "deduplicate"
        and "sequence.field" not in options
        and options.get("ignore-delete", "false") == "false"
        and not hides_new_rows(table)
    )


def stretches(table: Table, groups: Sequence[Group]) -> Iterator[Stretch]:
    """The groups of a piece in order, combined into stretches that can be read at once.

    The snapshots of differences that are combined wrote at most `MOST_KEYS` rows.
    """
    wins = last_row_wins(table)
    held: list[Group] = []
    rows = 0
    for _, run in groupby(groups, _snapshot):
        found = list(run)
        count = _rows(found)
        simple = wins and count is not None and _written_once(found)
        if held and (count is None or not simple or rows + count > MOST_KEYS):
            yield Stretch(held, True)
            held, rows = [], 0
        if count is None:
            for one in found:
                few = wins and _rows([one]) is not None and _written_once([one])
                yield Stretch([one], few)
        elif simple:
            held += found
            rows += count
        else:
            yield Stretch(found, False)
    if held:
        yield Stretch(held, True)


def multi_snapshot_changes(
    table: Table, stretch: Sequence[Difference], columns: Sequence[str], differ: Differ
) -> Iterator[pa.RecordBatch]:
    """The same as `changed_rows` of the differences of each snapshot, in turn."""
    key = table.primary_key
    wanted = [*columns, *(name for name in key if name not in columns)]
    schema = table.read_schema(columns, row_kind=True)
    before: dict[str, tuple[bytes, ...]] = {}
    for one in stretch:
        before.setdefault(bucket_folder(one.written[0]), one.old)
    old = [split for splits in before.values() for split in splits]
    state = gathered(table, wanted, old, keys_of(table, _all_written(stretch)))
    for _, run in groupby(stretch, _snapshot):
        written = _written(table, wanted, list(run), state.schema)
        kept = differ.without(state, written.select(list(key)), key)
        there = pc.invert(pc.starts_with(written.column(ROW_KIND), "-"))
        after = pa.concat_tables([kept, written.filter(there).select(wanted)])
        found = differ.by_key(state, after, key)
        state = after
        yield from found.select([*columns, ROW_KIND]).cast(schema).to_batches()


def _snapshot(group: Group) -> int | None:
    return group.snapshot if isinstance(group, Difference) else None


def _rows(groups: Sequence[Group]) -> int | None:
    """How many rows were written; None if that is unknown, or more than `MOST_KEYS`."""
    differences = [one for one in groups if isinstance(one, Difference) and one.written]
    if len(differences) < len(groups):
        return None
    count = sum(int(Split.deserialize(one).row_count()) for one in _all_written(differences))
    return count if count <= MOST_KEYS else None


def _written_once(groups: Sequence[Group]) -> bool:
    """Whether each difference has one written file, and so each key once among its rows."""
    return all(
        isinstance(one, Difference) and len(one.written) == 1 and len(file_ids(*one.written)) == 1
        for one in groups
    )


def _all_written(differences: Sequence[Difference]) -> list[bytes]:
    return [split for one in differences for split in one.written]


def _written(
    table: Table, columns: Sequence[str], differences: Sequence[Difference], schema: pa.Schema
) -> pa.Table:
    kinds = schema.append(pa.field(ROW_KIND, pa.string()))
    batches = table.read(columns, splits=_all_written(differences), row_kind=True)
    return pa.Table.from_batches([batch.cast(kinds) for batch in batches], kinds)
