"""Commits to a table after some snapshot, and those whose rows no reader can see yet."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.split_groups import file_ids
from streamhouse.sql.plan import AsOf

_IDLE = ("COMPACT", "ANALYZE")


def written_since(table: Table, after: int, until: int) -> list[int] | None:
    """The snapshots in (`after`, `until`] that wrote rows.

    None if one of them is an overwrite or has expired.
    """
    numbers = []
    for number in range(after + 1, until + 1):
        snapshot = table.snapshots.find(number)
        if snapshot is None or snapshot.commit_kind == "OVERWRITE":
            return None
        if snapshot.commit_kind not in _IDLE:
            numbers.append(number)
    return numbers


def rows_of(table: Table, snapshots: list[int], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows that snapshots wrote, with `rowkind`, in commit order."""
    batches = [
        batch
        for number in snapshots
        for batch in table.read(columns, splits=table.changes(number - 1, number), row_kind=True)
    ]
    return pa.Table.from_batches(batches, schema=table.read_schema(columns, row_kind=True))


def invisible_snapshots(table: Table, snapshot: int) -> list[int] | None:
    """The snapshots whose rows are invisible at `snapshot` because they wait for a compaction.

    None if one of them has expired.
    """
    waiting = _level0_file_ids(table, snapshot)
    numbers: list[int] = []
    number = snapshot
    while waiting:
        record = table.snapshots.find(number)
        if record is None:
            return None
        if record.commit_kind != "COMPACT":
            ids = file_ids(*table.changes(number - 1, number))
            if waiting & ids:
                numbers.append(number)
                waiting -= ids
        number -= 1
    return numbers[::-1]


def _level0_file_ids(table: Table, snapshot: int) -> set[bytes]:
    """The ids (`file_ids`) of the level-0 files."""
    files = Warehouse(table.catalog_options).readable(
        f"{table.database}.{table.name}$files", AsOf(snapshot=snapshot)
    )
    paths = [
        path
        for batch in files.read(["file_path", "level"])
        for path, level in zip(
            batch.column("file_path").to_pylist(), batch.column("level").to_pylist(), strict=True
        )
        if level == 0
    ]
    return file_ids(*(path.encode() for path in paths))
