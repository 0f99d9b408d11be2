"""Removes the files of compactions that were killed.

The files of a compaction have a unique prefix. Before a compaction begins, it writes a marker: the
file `.compaction-<id>` in the folder of the table, or of its branch, with the time. It deletes the
marker if it succeeds. On local disks its process locks the marker as long as
it lives, so a marker without a lock is of a dead compaction.
"""

from __future__ import annotations

import fcntl
import json
import logging
import time
import uuid
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from streamhouse.durable_files import locked
from streamhouse.paimon.java.expiry.shared_files import orphan_files
from streamhouse.paimon.storage.data_files import data_files
from streamhouse.paimon.storage.files import Files, LocalFiles, local_path, names_after
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles

if TYPE_CHECKING:
    from streamhouse.paimon.java.sidecar import Sidecar
    from streamhouse.paimon.read.table import Table

_LOG = logging.getLogger("streamhouse.maintenance")
_MARKER = ".compaction-"


def marker_path(root: str, compaction_id: str) -> str:
    """The path of a compaction's marker."""
    return f"{root}/{_MARKER}{compaction_id}"


class CompactionMarker:
    """The marker of a compaction in its `with` block, or of a long-lived writer until `close`."""

    def __init__(self, files: Files, root: str) -> None:
        compaction_id = uuid.uuid4().hex[:12]
        self._files, self._path = files, marker_path(root, compaction_id)
        self._held = ExitStack()
        text = json.dumps({"time": time.time()})
        if isinstance(files, LocalFiles):
            marker = self._held.enter_context(files.open_output(self._path))
            marker.write(text.encode())
            marker.flush()
            fcntl.flock(marker.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            files.write_text(self._path, text)
        self.prefixes = {
            "data-file.prefix": f"compact-{compaction_id}-",
            "changelog-file.prefix": f"compact-{compaction_id}-changelog-",
        }
        """The table options that give the compaction's files their prefix."""

    def __enter__(self) -> dict[str, str]:
        return self.prefixes

    def __exit__(self, error_class: type[BaseException] | None, *_: object) -> None:
        self.close(error_class is None)

    def close(self, ended_well: bool) -> None:
        """Unlock the marker; it is deleted only if the compaction `ended_well`."""
        with self._held:
            if ended_well and isinstance(self._files, ObjectFiles):
                self._files.delete_object(self._path)
            elif ended_well:
                self._files.delete(self._path)


def remove_leftovers(sidecar: Sidecar, table: Table, age_s: float) -> int:
    """Delete the files of compactions of `table` that died; returns how many files.

    Object stores have no locks, so markers there that are younger than `age_s` seconds are skipped.
    """
    removed = 0
    for compaction_id in names_after(table.files, table.root, _MARKER):
        path = marker_path(table.root, compaction_id)
        if _is_dead(table.files, path, age_s):
            removed += _remove(sidecar, table, compaction_id)
            table.files.delete(path)
    return removed


def _is_dead(files: Files, path: str, age_s: float) -> bool:
    if isinstance(files, LocalFiles):
        with suppress(FileNotFoundError), locked(local_path(path), wait_s=0) as is_free:
            return is_free
        return False
    text = files.read_text(path)
    return text is not None and time.time() - float(json.loads(text)["time"]) >= age_s


def _remove(sidecar: Sidecar, table: Table, compaction_id: str) -> int:
    """Delete the files of a compaction, or of a long-lived writer, that no branch references."""
    prefix = f"compact-{compaction_id}-"
    files = data_files(table.files, table.location)
    paths = {name: f"{folder}/{name}" for folder, name in files if name.startswith(prefix)}
    if not paths:
        return 0
    now_ms = int(time.time() * 1000)
    orphans = sidecar.call(
        table.identifier,
        lambda jvm, java: {str(path.getName()) for path in orphan_files(jvm, java, now_ms)},
    )
    for name in orphans & paths.keys():
        table.files.delete(paths[name])
    removed = len(orphans & paths.keys())
    _LOG.info("table '%s': removed %d files of a killed compaction", table.identifier, removed)
    return removed
