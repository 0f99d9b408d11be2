"""Procedures for branches: separate lines of snapshots of a table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.read.table import Table
from streamhouse.procedures.arguments import names
from streamhouse.procedures.consumers import refuse_if_held
from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import procedure
from streamhouse.procedures.result_rows import row, rows


@procedure(branch_name="branch", tag_name="tag")
def create_branch(
    context: Context,
    table: str,
    branch: str,
    tag: str | None = None,
    ignore_if_exists: bool = False,
) -> pa.Table:
    """Create a branch: empty, or from a tag.

    Returns `branch`, `tag`. Raises `TableError` if it already exists, unless `ignore_if_exists`.
    """

    def work(jvm: Any, found: Any) -> pa.Table:
        if branch in _branches(found):
            if ignore_if_exists:
                return row(branch=branch, tag=tag)
            raise TableError(
                f"table {table} already has a branch '{branch}'; choose another name, or call with "
                "ignore_if_exists => true"
            )
        if tag is None:
            found.createBranch(branch)
        else:
            tags = [str(name) for name in found.tagManager().allTagNames()]
            if tag not in tags:
                raise TableError(f"table {table} has no tag '{tag}'; {nearest(tag, tags)}")
            found.createBranch(branch, tag)
        return row(branch=branch, tag=tag)

    with context.committing(table):
        return context.java(table, work)


@procedure(branch_name="branch")
def delete_branch(context: Context, table: str, branch: str) -> pa.Table:
    """Drop one or more branches (`a,b`); returns `branch`.

    `remove_orphan_files` deletes the files that only they needed.
    """

    def work(jvm: Any, found: Any) -> pa.Table:
        for name in names(branch):
            _check_exists(found, table, name)
        for name in names(branch):
            found.deleteBranch(name)
        return rows({"branch": str}, [(name,) for name in names(branch)])

    with context.committing(table):
        return context.java(table, work)


@procedure()
def rename_branch(context: Context, table: str, from_branch: str, to_branch: str) -> pa.Table:
    """Give a branch another name; returns `from_branch`, `to_branch`."""

    def work(jvm: Any, found: Any) -> pa.Table:
        _check_exists(found, table, from_branch)
        if to_branch in _branches(found):
            raise TableError(
                f"table {table} already has a branch '{to_branch}'; choose another name"
            )
        found.renameBranch(from_branch, to_branch)
        return row(from_branch=from_branch, to_branch=to_branch)

    with context.committing(table):
        return context.java(table, work)


@procedure(branch_name="branch")
def fast_forward(context: Context, table: str, branch: str, force: bool = False) -> pa.Table:
    """Replace a table's snapshots since a branch began by those of the branch.

    Refused, unless `force`, if the table was written since the branch began, as those commits would
    be lost, or if live queries need later snapshots. Returns `branch`, `snapshot_id` (the newest
    one afterwards).
    """

    def work(jvm: Any, found: Any) -> pa.Table:
        _check_exists(found, table, branch)
        snapshots = found.switchToBranch(branch).snapshotManager()
        earliest = snapshots.earliestSnapshotId()
        if earliest is None:
            raise TableError(
                f"branch '{branch}' of table {table} has no snapshot to fast-forward to; "
                "insert rows into it first"
            )
        if not force:
            base, branch_table = context.table(table), context.table(f"{table}$branch_{branch}")
            refuse_if_held(base, int(earliest) - 1, "fast_forward")
            _refuse_if_written(base, branch, _common_snapshot(base, branch_table, int(earliest)))
        found.fastForward(branch)
        latest = found.snapshotManager().latestSnapshotId()
        return row(branch=branch, snapshot_id=int(latest))

    with context.committing(table):
        return context.java(table, work)


def _common_snapshot(table: Table, branch: Table, earliest: int) -> int:
    """The newest snapshot that a branch has in common with its table; 0 if it began empty."""
    snapshot = table.snapshots.find(earliest)
    return earliest if snapshot is None or snapshot == branch.snapshot(earliest) else earliest - 1


def _refuse_if_written(table: Table, branch: str, began: int) -> None:
    """Raise `StreamhouseError` if rows were committed to the table since the branch began."""
    latest = table.latest_snapshot_id() or 0
    numbers = range(began + 1, latest + 1)
    lost = [snapshot for snapshot in map(table.snapshots.find, numbers)
            if snapshot is None or snapshot.commit_kind not in ("COMPACT", "ANALYZE")]  # fmt: skip
    if lost:
        name = table.name
        raise StreamhouseError(
            f"sys.fast_forward: table {table.identifier} had {len(lost)} commits since branch "
            f"'{branch}' began at snapshot {began}, and they would be lost. Copy the branch's "
            f"changes instead: INSERT INTO {name} SELECT * FROM `{name}$branch_{branch}` "
            f"EXCEPT SELECT * FROM {name} VERSION AS OF the tag that it began with. To lose them "
            "anyway, give force => true"
        )


def _branches(table: Any) -> list[str]:
    return [str(name) for name in table.branchManager().branches()]


def _check_exists(table: Any, name: str, branch: str) -> None:
    known = _branches(table)
    if branch not in known:
        raise TableError(f"table {name} has no branch '{branch}'; {nearest(branch, known)}")
