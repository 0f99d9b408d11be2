"""Local copies of small tables in object stores, in which the Java core compacts (decision 184).

On the store itself the Java core takes some hundred requests for a compaction, one after the other,
thirty of them while its commit holds the table's lock. In a copy it takes none: the metadata and
the data files that are not here yet are fetched, and what the Java core has written is uploaded,
several files at a time. Most are here: it has written them itself, or a query on this machine has.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError

from streamhouse.errors import CommitConflictError, LostCommitError
from streamhouse.paimon.java.bucket_compaction import committer, compacted
from streamhouse.paimon.java.unfinished_compactions import CompactionMarker
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.options.iceberg_metadata import has_iceberg_metadata
from streamhouse.paimon.storage.lock import LOCK_WAIT_S, commit_lock
from streamhouse.paimon.storage.metadata_mirror.commit import delete_objects, made_by, publish
from streamhouse.paimon.storage.metadata_mirror.folder import (
    MirrorFolder,
    borrowed,
    object_store_parts,
)

_MOST_BYTES = 16 << 20
_MOST_FILES = 64
_MOST_COPIES = 16
_UNUSUAL = ("data-file.external-paths", "commit.callbacks", "tag.automatic-creation")
"""Options by which the Java core reads or writes more than data files and metadata."""


def compact_copy(
    jvm: Any, table: Table, full: bool, options: Mapping[str, str | None], user: str
) -> bool | None:
    """Compact a followed table in a copy, as `user`; returns whether that made a snapshot.

    `options` are those of the Java core's table. None if it must be compacted in the store itself.
    """
    with _newest_copy(table) as folder:
        if folder is None:
            return None
        java, identifier = _java_table(jvm, folder), folder.newest + 1
        buckets = _fetched(folder, java, full)
        if not buckets:
            return None if buckets is None else False
        with CompactionMarker(table.files, table.root) as names:
            copy, before = java.copy({**options, **names}), folder.data_files()
            messages = compacted(jvm, copy, buckets, full, user)
            if all(message.isEmpty() for message in messages):
                return False
            new = sorted(folder.data_files() - before)
            with closing(committer(copy, user)) as commit:
                _commit(folder, lambda: commit.commit(identifier, messages), new)
    return True


def merge_manifests_of_copy(jvm: Any, table: Table, user: str) -> bool:
    """Merge all manifests of a followed table in a copy; False if that is not possible."""
    with _newest_copy(table) as folder:
        if folder is None:
            return False
        with closing(committer(_java_table(jvm, folder), user)) as commit:
            _commit(folder, commit.compactManifests)
    return True


@contextmanager
def _newest_copy(table: Table) -> Iterator[MirrorFolder | None]:
    """The copy of a followed table at its newest snapshot, for the block alone.

    It is kept from one compaction to the next, and removed if the block raises. None if the Java
    core must work on the store itself.
    """
    unusual = has_iceberg_metadata(table.options) or any(
        name.startswith(_UNUSUAL) for name in table.options
    )
    if unusual or object_store_parts(table) is None:
        yield None
        return
    with borrowed(table, _MOST_COPIES) as folder:
        # It also probes for newer ones.
        folder.snapshots.verify()
        yield folder if _hold_newest(folder, LOCK_WAIT_S) else None


def _hold_newest(folder: MirrorFolder, within_s: float) -> bool:
    """Bring the metadata up to date; False if the Java core must work on the store itself."""
    newest = folder.snapshots.latest_id(within_s)
    texts = folder.snapshots.texts(newest, newest) if newest else None
    if not newest or not texts or json.loads(texts[0]).get("indexManifest"):
        # Deletion vectors and indexes of buckets are files besides the manifests.
        return False
    try:
        return folder.hold(newest, newest)
    except OSError:
        # They are gone or large.
        return False


def _java_table(jvm: Any, folder: MirrorFolder) -> Any:
    """The Java core's table on the copy."""
    paimon = jvm.org.apache.paimon
    options = paimon.options.Options.fromMap({"path": folder.path})
    context = paimon.catalog.CatalogContext.create(options)
    return paimon.table.FileStoreTableFactory.create(context)


def _fetched(folder: MirrorFolder, java: Any, full: bool) -> list[tuple[Any, int]] | None:
    """Fetch the data files of the buckets to compact; returns the partitions and buckets.

    Without `full`, these are the buckets with files of level 0. None if the files are too many or
    too large, or have another schema: then the Java core must work on the store itself.
    """
    entries = java.store().newScan().plan().files()
    if int(entries.size()) > _MOST_FILES:
        return None
    levels = [(entry.partition(), int(entry.bucket()), entry.file()) for entry in entries]
    buckets = {
        (partition, bucket): None
        for partition, bucket, file in levels
        if full or not int(file.level())
    }
    chosen = [level for level in levels if level[:2] in buckets]
    files = [file for *_, file in chosen]
    if any(int(file.schemaId()) != folder.schema["id"] for file in files):
        return None
    if sum(int(file.fileSize()) for file in files) > _MOST_BYTES:
        return None
    paths = java.store().pathFactory()
    needed = set()
    for partition, bucket, file in chosen:
        factory = paths.createDataFilePathFactory(partition, bucket)
        needed |= {str(path.toUri().getPath()) for path in file.collectFiles(factory)}
    return list(buckets) if _hold_data(folder, needed) else None


def _hold_data(folder: MirrorFolder, paths: set[str]) -> bool:
    """Have exactly these data files here; False if one is gone, or not below the table."""
    if not all(path.startswith(f"{folder.path}/") for path in paths):
        return False
    needed = {os.path.relpath(path, folder.path) for path in paths}
    here = folder.data_files()
    folder.delete(here - needed)
    try:
        folder.fetch(sorted(needed - here))
    except OSError:
        return False
    return True


def _commit(folder: MirrorFolder, work: Callable[[], None], files: Sequence[str] = ()) -> None:
    """Commit what `work` commits to the copy, with new data `files`, under the table's lock.

    Without `files`, it need not make a snapshot. Raises `CommitConflictError`, and deletes the
    files, if another writer was faster or the schema was altered. After any other error that is not
    the Java core's the snapshot may be there: then the files stay, and the marker of the
    compaction.
    """
    try:
        folder.upload(files)
        with commit_lock(folder.root):
            if not _hold_newest(folder, 0.0):
                raise LostCommitError(f"the table at {folder.root} has been replaced")
            made = made_by(folder, work)
            if made is None and files:
                raise LostCommitError(f"no snapshot of the table at {folder.root} was made")
            if made is not None and not publish(folder, made):
                raise LostCommitError(f"the schema of the table at {folder.root} was altered")
    except LostCommitError as error:
        delete_objects(folder, files)
        raise CommitConflictError(f"{error}; nothing was changed: call again") from None
    except Py4JJavaError:
        delete_objects(folder, files)
        raise
