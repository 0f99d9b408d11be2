"""Groups changes that are computed together, and computes those of many snapshots from one read.

If the changes of a snapshot are few, all buckets are compared at once: every key is in one bucket
only, and each comparison costs milliseconds however few the rows.

If the last row written for a key is its row, many consecutive snapshots need only one read of the
table. A commit's own files hold the rows of its keys after it. The rows before it are known from
the earlier commits, and for the first one from that read.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.changelog.differences.snapshot_changes import (
    MOST_KEYS,
    StateDifference,
    read_rows,
    written_keys,
)
from streamhouse.paimon.changelog.differences.state_difference import Differ
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.paimon.storage.split_groups import file_ids, row_count
from streamhouse.source import ROW_KIND

Group = tuple[bytes, ...] | StateDifference


class SnapshotRun(NamedTuple):
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


def snapshot_runs(table: Table, groups: Sequence[Group]) -> Iterator[SnapshotRun]:
    """The groups of a partition in order, combined into runs that can be read at once.

    The snapshots of differences that are combined wrote at most `MOST_KEYS` rows.
    """
    last_wins = last_row_wins(table)
    pending: list[Group] = []
    rows = 0
    for _, run in groupby(groups, _snapshot):
        snapshot_groups = list(run)
        few = _rows(snapshot_groups) is not None
        for part in [snapshot_groups] if few else [[group] for group in snapshot_groups]:
            count = _rows(part) if last_wins and _written_once(part) else None
            if pending and (count is None or not few or rows + count > MOST_KEYS):
                yield SnapshotRun(pending, True)
                pending, rows = [], 0
            if count is None:
                yield SnapshotRun(part, False)
            else:
                pending, rows = [*pending, *part], rows + count
    if pending:
        yield SnapshotRun(pending, True)


def multi_snapshot_changes(
    table: Table, run: Sequence[StateDifference], columns: Sequence[str], differ: Differ
) -> Iterator[pa.RecordBatch]:
    """The same as `changed_rows` of the differences of each snapshot, in turn."""
    key = table.primary_key
    read_columns = [*columns, *(name for name in key if name not in columns)]
    schema = table.read_schema(columns, row_kind=True)
    before: dict[str, tuple[bytes, ...]] = {}
    for difference in run:
        before.setdefault(SplitFrame.parse(difference.written[0]).folder, difference.old)
    old = [split for splits in before.values() for split in splits]
    state = read_rows(table, read_columns, old, written_keys(table, _all_written(run)))
    for _, differences in groupby(run, _snapshot):
        written = _written(table, read_columns, list(differences), state.schema)
        unchanged = KeySet(written.select(list(key))).others(state)
        upserted = pc.invert(pc.starts_with(written.column(ROW_KIND), "-"))
        after = pa.concat_tables([unchanged, written.filter(upserted).select(read_columns)])
        changes = differ.by_key(state, after, key)
        state = after
        yield from changes.select([*columns, ROW_KIND]).cast(schema).to_batches()


def _snapshot(group: Group) -> int | None:
    return group.snapshot if isinstance(group, StateDifference) else None


def _rows(groups: Sequence[Group]) -> int | None:
    """How many rows were written; None if that is unknown, or more than `MOST_KEYS`."""
    differences = [
        group for group in groups if isinstance(group, StateDifference) and group.written
    ]
    if len(differences) < len(groups):
        return None
    count = row_count(_all_written(differences))
    return count if count <= MOST_KEYS else None


def _written_once(groups: Sequence[Group]) -> bool:
    """Whether each difference has one written file, and so each key once among its rows."""
    return all(
        isinstance(group, StateDifference)
        and len(group.written) == 1
        and len(file_ids(*group.written)) == 1
        for group in groups
    )


def _all_written(differences: Sequence[StateDifference]) -> list[bytes]:
    return [split for difference in differences for split in difference.written]


def _written(
    table: Table, columns: Sequence[str], differences: Sequence[StateDifference], schema: pa.Schema
) -> pa.Table:
    schema_with_kind = schema.append(pa.field(ROW_KIND, pa.string()))
    rows = table.rows(columns, splits=_all_written(differences), row_kind=True)
    return rows.cast(schema_with_kind)
