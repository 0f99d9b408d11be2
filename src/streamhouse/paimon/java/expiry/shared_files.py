"""Expiry of snapshots and tags that deletes a file only if no branch of the table needs it.

Branches share the folders of data files and manifests with their table. When the Java core expires
snapshots or deletes tags, it checks the snapshots and tags of the same branch only, and those of a
branch against the tags of main. So in a table with branches, the core removes the files of
snapshots, tags and changelogs alone. Then every file is deleted that was referenced before and is
not any more, by any branch, as the core's own search for orphan files decides.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MARGIN_MS = 60_000
"""Files that young may belong to a commit in flight."""
_NO_FILES = "/nonexistent/streamhouse"
_BRANCH, _FALLBACK = "branch", "scan.fallback-branch"


def expire_snapshots(jvm: Any, java: Any) -> int:
    """Expire snapshots as the table's options say; returns how many."""
    with _deleting(jvm, java) as store:
        expiry = jvm.org.apache.paimon.table.ExpireSnapshotsImpl(
            java.snapshotManager(),
            java.changelogManager(),
            store.newSnapshotDeletion(),
            java.tagManager(),
        )
        return int(expiry.config(java.coreOptions().expireConfig()).expire())


def expire_changelogs(jvm: Any, java: Any, everything: bool = False) -> int | None:
    """Expire changelogs that outlived their snapshots; returns how many, None for `everything`."""
    with _deleting(jvm, java) as store:
        expiry = jvm.org.apache.paimon.table.ExpireChangelogImpl(
            java.snapshotManager(),
            java.changelogManager(),
            java.tagManager(),
            store.newChangelogDeletion(),
        )
        if everything:
            expiry.expireAll()
            return None
        config = java.coreOptions().expireConfig()
        # The core fails if it has to retain all changelogs.
        earliest = java.changelogManager().earliestLongLivedChangelogId()
        if earliest is None or _changelogs_end(java, config) <= earliest:
            return 0
        return int(expiry.config(config).expire())


def _changelogs_end(java: Any, config: Any) -> int:
    """Before which changelog all may expire, by their least number and by consumers."""
    latest = int(java.snapshotManager().latestSnapshotId() or 0)
    end = latest - int(config.getChangelogRetainMin()) + 1
    consumers = java.consumerManager().minNextSnapshot()
    return min(end, int(consumers.getAsLong())) if consumers.isPresent() else end


def delete_tag(jvm: Any, java: Any, name: str) -> None:
    """Delete a tag of the table or of its branch."""
    with _deleting(jvm, java) as store:
        callbacks = java.store().createTagCallbacks(java)
        java.tagManager().deleteTag(name, store.newTagDeletion(), java.snapshotManager(), callbacks)


@contextmanager
def automatic_tags(jvm: Any, java: Any) -> Iterator[Any]:
    """The core's `TagAutoManager`, which creates and expires tags of the table or of its branch."""
    with _deleting(jvm, java) as store:
        yield jvm.org.apache.paimon.tag.TagAutoManager.create(
            java.coreOptions(),
            java.snapshotManager(),
            java.tagManager(),
            store.newTagDeletion(),
            java.store().createTagCallbacks(java),
        )


def orphan_files(jvm: Any, java: Any, before_ms: int, delete: bool = False) -> list[Any]:
    """Paths of the files, last changed before `before_ms`, that no branch references."""
    search = jvm.org.apache.paimon.operation.LocalOrphanFilesClean
    found = search(java, jvm.java.lang.Long.valueOf(before_ms), not delete).clean()
    return list(found.getDeletedFilesPath())


@contextmanager
def _deleting(jvm: Any, java: Any) -> Iterator[Any]:
    """The store whose `new…Deletion` a step takes; then deletes what no branch needs any more."""
    if java.branchManager().branches().isEmpty():
        yield java.store()
        return
    begun_ms = int(time.time() * 1000)
    before = {str(path) for path in orphan_files(jvm, java, begun_ms)}
    yield _store_without_files(jvm, java)
    for path in orphan_files(jvm, java, begun_ms - _MARGIN_MS):
        if str(path) not in before:
            java.fileIO().deleteQuietly(path)


def _store_without_files(jvm: Any, java: Any) -> Any:
    """The table's store in a folder that does not exist, where deletions find no file."""
    paimon = jvm.org.apache.paimon
    options = dict(java.options())
    for key in ("path", _BRANCH, _FALLBACK):
        options.pop(key, None)
    table = paimon.table.FileStoreTableFactory.createWithoutFallbackBranch(
        paimon.fs.local.LocalFileIO.create(),
        paimon.fs.Path(_NO_FILES),
        java.schema().copy(options),
        paimon.options.Options(),
        java.catalogEnvironment(),
    )
    return table.store()
