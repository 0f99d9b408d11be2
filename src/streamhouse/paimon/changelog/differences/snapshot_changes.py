"""Computes what a snapshot changed from the states before and after it.

Splits are compared first: those that are the same in both states cannot hold a change and are
never read. The others are divided into parts; each key is in one part only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.changelog.differences.state_difference import Differ
from streamhouse.paimon.read.conditions import Filter, keys_filter
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import (
    PRODUCED,
    changes_visible_at,
    compacted_only,
    producer,
)
from streamhouse.paimon.storage.split_files import SplitFrame, without_snapshot
from streamhouse.source import ROW_KIND, of_kind

MOST_KEYS = 10_000
"""With more keys than this, filtering by key costs more than reading the files."""


@dataclass(frozen=True)
class StateDifference:
    """One part of a table before (`old`) and after (`new`) one snapshot, as serialised splits.

    `written` are the splits of the rows that the snapshot wrote: only their keys can have changed.
    If it is empty, any row may have changed.
    """

    snapshot: int
    written: tuple[bytes, ...]
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]

    @property
    def splits(self) -> tuple[bytes, ...]:
        """The splits that count towards a limit on rows, files or bytes."""
        return self.written or (*self.old, *self.new)


class SnapshotStates:
    """The splits of a table's snapshots, as a stream over it sees them; caches the last two."""

    def __init__(self) -> None:
        self._splits: dict[tuple[object, int], list[bytes]] = {}

    def splits(self, table: Table, snapshot: int) -> list[bytes]:
        """All splits of a snapshot, without files whose changes a compaction is yet to write."""
        if snapshot < 1:
            return []
        key = (table.schema_stamp(), snapshot)
        splits = self._splits.get(key)
        if splits is None:
            splits = table.splits(snapshot, in_commit_order=not table.primary_key)
            compacting = producer(table.options) in PRODUCED
            if table.primary_key and compacting:
                splits = compacted_only(table, splits, changes_visible_at(True, table.options))
            self._splits = {**dict(list(self._splits.items())[-1:]), key: splits}
        return splits

    def differences(self, table: Table, snapshot: int, written: bool) -> list[StateDifference]:
        """The parts of the table in which `snapshot` differs from the one before, in order.

        `written`: the changed keys are those that the snapshot wrote (an APPEND). Raises
        `DataLossError` if one of the two snapshots has expired.
        """
        if snapshot > 1:
            table.snapshot(snapshot - 1)
        before = self.splits(table, snapshot - 1)
        after = self.splits(table, snapshot)
        unchanged = set(map(without_snapshot, before)) & set(map(without_snapshot, after))
        depth = _depth(table, written)
        old = _parts((split for split in before if without_snapshot(split) not in unchanged), depth)
        new = _parts((split for split in after if without_snapshot(split) not in unchanged), depth)
        rows: Mapping[str, list[bytes]] = {}
        if written:
            rows = _parts(table.changes(snapshot - 1, snapshot), depth)
        return [
            StateDifference(
                snapshot,
                tuple(sorted(rows.get(part, ()))),
                tuple(old.get(part, ())),
                tuple(new.get(part, ())),
            )
            for part in sorted(old.keys() | new.keys())
        ]

    def clear(self) -> None:
        self._splits.clear()


def changed_rows(
    table: Table, differences: Sequence[StateDifference], columns: Sequence[str], differ: Differ
) -> Iterator[pa.RecordBatch]:
    """The changes of parts of one snapshot: `columns`, then `rowkind`, each -U just before its +U.

    With a primary key, rows are compared by key, and changes are in its order. Without one, removed
    rows (-D) come before added ones (+I), with as many copies as were removed or added. A change
    of other columns than these is left out.
    """
    key = table.primary_key
    read_columns = [*columns, *(name for name in key if name not in columns)]
    schema = table.read_schema(columns, row_kind=True)
    before = [split for difference in differences for split in difference.old]
    after = [split for difference in differences for split in difference.new]
    if not before or not after:
        row_kind = "+I" if after else "-D"
        # One after the other: the Rust core returns the rows of several in no fixed order.
        for difference in differences:
            for batch in table.read(list(columns), splits=difference.new or difference.old):
                yield of_kind(batch, row_kind).cast(schema)
        return
    keys = written_keys(
        table, [split for difference in differences for split in difference.written]
    )
    old = read_rows(table, read_columns, before, keys)
    new = read_rows(table, read_columns, after, keys)
    changes = differ.by_key(old, new, key) if key else differ.by_row(old, new)
    yield from changes.select([*columns, ROW_KIND]).cast(schema).to_batches()


def check_only_added(batch: pa.RecordBatch, table: Table, snapshot: int) -> None:
    """Raise `StreamhouseError` if an overwrite removed rows from an append table.

    For streams without a `rowkind` column, which cannot report that.
    """
    removed = batch.num_rows - batch.column(ROW_KIND).to_pylist().count("+I")
    if removed:
        raise StreamhouseError(
            f"table {table.identifier}: the overwrite of snapshot {snapshot} removed rows, but a "
            "stream over a table without a primary key has inserts only; set the option "
            "'scan.overwrite' to 'skip' to keep what it removed and miss what it added, read the "
            "column 'rowkind' to get removed rows as -D, or start from a fresh checkpoint"
        )


def _depth(table: Table, written: bool) -> int:
    """How many levels of folders a key never leaves: 2 (its bucket), 1 (its partition) or 0.

    An overwrite may change the number of buckets.
    """
    if table.crosses_partitions:
        return 0
    return 2 if written else 1


def _parts(splits: Iterable[bytes], depth: int) -> dict[str, list[bytes]]:
    parts: dict[str, list[bytes]] = {}
    for split in splits:
        folder = SplitFrame.parse(split).folder
        name = (folder if depth == 2 else folder.rpartition("/")[0]) if depth else ""
        parts.setdefault(name, []).append(split)
    return parts


def written_keys(table: Table, written: Sequence[bytes]) -> Filter | None:
    """A filter that all rows of the written keys pass; None where it would save nothing."""
    names = [name for name in table.primary_key if name not in table.partition_keys]
    if not written or not names:
        return None
    rows = table.rows(names, splits=written)
    return None if rows.num_rows > MOST_KEYS else keys_filter(rows.schema, rows)


def read_rows(
    table: Table, columns: Sequence[str], splits: Sequence[bytes], keys: Filter | None
) -> pa.Table:
    """The rows of splits, all columns nullable; `keys`: only those that pass this filter."""
    rows = table.rows(columns, splits=splits, filter=keys)
    return rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
