"""Removes the files of compactions that were killed.

The files of a compaction have a unique prefix. Before a compaction begins, it writes a marker: the
file `.compaction-<id>` in the folder of the table, or of its branch, with the snapshot at which it
begins. It deletes the marker if it succeeds. On local disks its process locks the marker as long as
it lives, so a marker without a lock is of a dead compaction. A compaction is one commit: either all
of its files are in a snapshot, or none is.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamhouse.paimon.storage.data_files import data_files
from streamhouse.paimon.storage.files import Files, LocalFiles, local_path
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles

if TYPE_CHECKING:
    from streamhouse.paimon.java.sidecar import Sidecar
    from streamhouse.paimon.read.table import Table

_LOG = logging.getLogger("streamhouse.maintenance")
_MARKER = ".compaction-"


def marker_path(root: str, compaction_id: str) -> str:
    """The path of a compaction's marker."""
    return f"{root}/{_MARKER}{compaction_id}"


def prefixes(compaction_id: str) -> dict[str, str]:
    """The table options that give a compaction's files their prefix."""
    return {
        "data-file.prefix": f"compact-{compaction_id}-",
        "changelog-file.prefix": f"compact-{compaction_id}-changelog-",
    }


@contextmanager
def compaction_marker(files: Files, root: str, snapshot: int) -> Iterator[dict[str, str]]:
    """Write the marker of a compaction that begins at `snapshot` (0: none); yields its `prefixes`.

    The marker is deleted unless the block raises.
    """
    compaction_id = uuid.uuid4().hex[:12]
    path = marker_path(root, compaction_id)
    marker = files.open_output(path)
    try:
        marker.write(json.dumps({"snapshot": snapshot, "time": time.time()}).encode())
        if isinstance(files, LocalFiles):
            marker.flush()
            fcntl.flock(marker.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            marker.close()
        yield prefixes(compaction_id)
        if isinstance(files, ObjectFiles):
            files.delete_file(path)
        else:
            files.delete(path)
    finally:
        marker.close()


@dataclass(frozen=True)
class _DeadCompaction:
    """The marker of a dead compaction: the snapshot at which it began.

    `after_ns` (since 1970) is set for a writer that made several compactions
    (`paimon.java.long_lived_writer`): the files of the last one are newer than that.
    """

    snapshot: int
    after_ns: int | None = None


def remove_leftovers(sidecar: Sidecar, table: Table, age_s: float) -> int:
    """Delete the files of compactions of `table` that died; returns how many files.

    Object stores have no locks, so markers there that are younger than `age_s` seconds are skipped.
    """
    removed = 0
    for name, is_folder in table.files.names(table.root):
        if is_folder or not name.startswith(_MARKER):
            continue
        path = f"{table.root}/{name}"
        dead = _dead(table.files, path, age_s)
        if dead is not None:
            removed += _remove(sidecar, table, name.removeprefix(_MARKER), dead)
            table.files.delete(path)
    return removed


def _dead(files: Files, path: str, age_s: float) -> _DeadCompaction | None:
    """Parse the marker of a dead compaction; None while the compaction may be alive."""
    local = isinstance(files, LocalFiles)
    if local and _is_locked(path):
        return None
    text = files.read_text(path)
    if text is None:
        return None
    try:
        marker = json.loads(text)
    except json.JSONDecodeError:
        # Killed before it had written the marker, and so before it wrote any other file.
        return _DeadCompaction(0, _modified_ns(path) if local else None)
    if not local and time.time() - float(marker["time"]) < age_s:
        return None
    return _DeadCompaction(
        int(marker["snapshot"]), _modified_ns(path) if marker.get("kept") else None
    )


def _modified_ns(path: str) -> int:
    return os.stat(local_path(path)).st_mtime_ns


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(local_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _remove(sidecar: Sidecar, table: Table, compaction_id: str, dead: _DeadCompaction) -> int:
    prefix, snapshot = f"compact-{compaction_id}-", dead.snapshot
    files = data_files(table, table.location)
    paths = [f"{folder}/{name}" for folder, name in files if name.startswith(prefix)]
    if dead.after_ns is not None:
        paths = [path for path in paths if _modified_ns(path) > dead.after_ns]
    if not paths:
        return 0
    first = table.earliest_snapshot_id() or 0
    if first > snapshot + 1:
        _LOG.info(
            "table '%s': kept %d files of a killed compaction, since the snapshots after it have "
            "expired; sys.remove_orphan_files removes them",
            table.identifier,
            len(paths),
        )
        return 0
    if sidecar.call(table.identifier, lambda jvm, java: _committed(java, prefix, snapshot)):
        return 0
    for path in paths:
        table.files.delete(path)
    _LOG.info("table '%s': removed %d files of a killed compaction", table.identifier, len(paths))
    return len(paths)


def _committed(java: Any, prefix: str, after: int) -> bool:
    """Whether a compaction after a snapshot committed files with this prefix."""
    store, snapshots = java.store(), java.snapshotManager()
    manifests, lists = store.manifestFileFactory().create(), store.manifestListFactory().create()
    for number in range(after + 1, int(snapshots.latestSnapshotId() or 0) + 1):
        snapshot = snapshots.snapshot(number)
        if snapshot.commitKind().toString() != "COMPACT":
            continue
        # A file that only moves to another level keeps its name: then the changelog alone is new.
        for read_list in (lists.readDeltaManifests, lists.readChangelogManifests):
            for manifest in read_list(snapshot):
                for entry in manifests.read(manifest.fileName()):
                    if entry.file().fileName().startswith(prefix):
                        return True
    return False
