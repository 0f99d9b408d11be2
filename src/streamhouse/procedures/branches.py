"""Procedures for branches: separate lines of snapshots of a table."""

from typing import Any

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.procedures.arguments import names
from streamhouse.procedures.consumers import refuse_if_held
from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import procedure, row, rows
from streamhouse.procedures.tags import check_tag


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
    with context.java_locked(table) as (jvm, found):
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
            check_tag(found, table, tag)
            snapshot = found.tagManager().getOrThrow(tag).trimToSnapshot()
            if found.snapshotManager().snapshotExists(snapshot.id()):
                found.createBranch(branch, tag)
            else:
                found.createBranch(branch)
                _begin_at(found.switchToBranch(branch), found.tagManager().tagPath(tag), snapshot)
        return row(branch=branch, tag=tag)


def _begin_at(java_branch: Any, tag: Any, snapshot: Any) -> None:
    """Let a new Java branch begin at a tag's snapshot, which the core refuses if it has expired."""
    files, tags, schemas = (
        java_branch.fileIO(),
        java_branch.tagManager(),
        java_branch.schemaManager(),
    )
    for number in schemas.listAllIds():
        if number > snapshot.schemaId():
            schemas.deleteSchema(number)
    files.copyFile(tag, tags.tagPath(str(tag.getName()).removeprefix("tag-")), True)
    path = java_branch.snapshotManager().snapshotPath(snapshot.id())
    files.overwriteFileUtf8(path, snapshot.toJson())


@procedure(branch_name="branch")
def delete_branch(context: Context, table: str, branch: str) -> pa.Table:
    """Drop one or more branches (`a,b`); returns `branch`.

    `remove_orphan_files` deletes the files that only they needed.
    """
    with context.java_locked(table) as (jvm, found):
        for name in names(branch):
            _check_exists(found, table, name)
        for name in names(branch):
            found.deleteBranch(name)
        return rows({"branch": str}, [(name,) for name in names(branch)])


@procedure()
def rename_branch(context: Context, table: str, from_branch: str, to_branch: str) -> pa.Table:
    """Give a branch another name; returns `from_branch`, `to_branch`."""
    with context.java_locked(table) as (jvm, found):
        _check_exists(found, table, from_branch)
        if to_branch in _branches(found):
            raise TableError(
                f"table {table} already has a branch '{to_branch}'; choose another name"
            )
        found.renameBranch(from_branch, to_branch)
        return row(from_branch=from_branch, to_branch=to_branch)


@procedure(branch_name="branch")
def fast_forward(context: Context, table: str, branch: str, force: bool = False) -> pa.Table:
    """Replace a table's snapshots since a branch began by those of the branch.

    Refused, unless `force`, if the table was written since the branch began, as those commits would
    be lost with their tags, or if live queries need later snapshots. Returns `branch`,
    `snapshot_id` (the newest one afterwards).
    """
    with context.java_locked(table) as (jvm, found):
        _check_exists(found, table, branch)
        snapshots = found.switchToBranch(branch).snapshotManager()
        earliest = snapshots.earliestSnapshotId()
        if earliest is None:
            raise TableError(
                f"branch '{branch}' of table {table} has no snapshot to fast-forward to; "
                "insert rows into it first"
            )
        base, branch_table = context.table(table), context.table(f"{table}$branch_{branch}")
        common = _common_snapshot(base, branch_table)
        if not force:
            refuse_if_held(base, int(earliest) - 1, "fast_forward")
            _refuse_if_written(base, branch, common)
        tags = _tag_files(base, common if force else None)
        found.fastForward(branch)
        _drop_between(found.snapshotManager(), common, int(earliest))
        for path, text in tags.items():
            if not base.files.exists(path):
                base.files.write_text(path, text)
        latest = found.snapshotManager().latestSnapshotId()
        return row(branch=branch, snapshot_id=int(latest))


def _drop_between(snapshots: Any, common: int, earliest: int) -> None:
    """Delete the snapshots that are not of the branch's history, and that the core leaves.

    They would stand in the way of later commits after a rollback.
    """
    stale = [number for number in range(common + 1, earliest) if snapshots.snapshotExists(number)]
    for number in stale:
        snapshots.deleteSnapshot(number)
    if stale and not snapshots.snapshotExists(common):
        snapshots.commitEarliestHint(earliest)


def _common_snapshot(table: Table, branch: Table) -> int:
    """The newest snapshot that a branch is known to have in common with its table; else 0.

    The first snapshot of a branch may have expired, and the table may have been rolled back.
    """
    known = _tagged(table)
    first = branch.snapshot(branch.earliest_snapshot_id() or 0)
    candidates = {**_tagged(branch), first.id: first}
    common = [number for number, snapshot in candidates.items()
              if snapshot in (known.get(number), table.snapshots.find(number))]  # fmt: skip
    return max(common, default=0)


def _tagged(table: Table) -> dict[int, Snapshot]:
    """The snapshots that have tags, by their ids."""
    tags = (table.tag(name) for name in table.tags())
    return {tag.id: tag for tag in tags if tag is not None}


def _tag_files(table: Table, until: int | None) -> dict[str, str]:
    """The files of a table's tags, of those up to a snapshot if one is given."""
    files = {}
    for name in table.tags():
        tag = table.tag(name)
        path = f"{table.root}/tag/tag-{name}"
        text = table.files.read_text(path)
        if tag is not None and text is not None and (until is None or tag.id <= until):
            files[path] = text
    return files


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
            f"'{branch}' began at snapshot {began}, and they would be lost. INSERT INTO {name} "
            f"SELECT * FROM `{name}$branch_{branch}` EXCEPT SELECT * FROM {name} VERSION AS OF the "
            "tag that it began with copies the branch's new rows, but equal ones once, and none of "
            "its deletions. To lose the commits anyway, give force => true"
        )


def _branches(table: Any) -> list[str]:
    return [str(name) for name in table.branchManager().branches()]


def _check_exists(table: Any, name: str, branch: str) -> None:
    known = _branches(table)
    if branch not in known:
        raise TableError(f"table {name} has no branch '{branch}'; {nearest(branch, known)}")
