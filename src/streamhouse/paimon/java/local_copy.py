"""Local copies of small tables in object stores, in which the Java core compacts (decision 217).

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
from streamhouse.paimon.java.bucket_compaction import compacted
from streamhouse.paimon.java.unfinished_compactions import compaction_marker
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.options.iceberg_metadata import has_iceberg_metadata
from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.lock import LOCK_WAIT_S, commit_lock
from streamhouse.paimon.storage.metadata_mirror.commit import MirroredTable
from streamhouse.paimon.storage.metadata_mirror.folder import (
    MirrorFolder,
    borrowed,
    object_store_parts,
)
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles

_MOST_BYTES = 16 << 20
_MOST_FILES = 64
_MOST_COPIES = 16
_UNUSUAL = ("data-file.external-paths", "commit.callbacks", "tag.automatic-creation")
"""Options by which the Java core reads or writes more than data files and metadata."""


class LocalCopy(MirroredTable):
    """The copy of one table in a folder, with at most 16 MB of data files."""

    def __init__(
        self, table: Table, files: ObjectFiles, snapshots: FollowedSnapshots, folder: MirrorFolder
    ) -> None:
        super().__init__(table, files, snapshots)
        self.folder = folder

    def hold_newest(self) -> int | None:
        """Bring the metadata up to date; returns the newest snapshot.

        None if the Java core must work on the store itself, also as there is no snapshot.
        """
        # It also probes for newer ones.
        self._snapshots.verify()
        return self._hold(LOCK_WAIT_S)

    def _hold(self, within_s: float) -> int | None:
        newest = self._snapshots.latest_id(within_s)
        texts = self._snapshots.texts(newest, newest) if newest else None
        if not texts or json.loads(texts[0]).get("indexManifest"):
            # Deletion vectors and indexes of buckets are files besides the manifests.
            return None
        try:
            self.folder.hold(texts, True, peer_folders=self._snapshots.peer_folders)
        except OSError:
            # They are gone or large.
            return None
        return newest

    def java(self, jvm: Any) -> Any:
        """The Java core's table on the copy."""
        paimon = jvm.org.apache.paimon
        options = paimon.options.Options.fromMap({"path": self.folder.path})
        context = paimon.catalog.CatalogContext.create(options)
        return paimon.table.FileStoreTableFactory.create(context)

    def compact(
        self,
        jvm: Any,
        followed: Table,
        full: bool,
        options: Mapping[str, str | None],
        user: str,
        open_commit: Callable[[Any], Any],
    ) -> bool | None:
        """Compact with `options` as `user`; returns whether it made a snapshot.

        None if the table must be compacted in the store itself.
        """
        newest = self.hold_newest()
        if newest is None:
            return None
        java = self.java(jvm)
        buckets = self._fetched(java, full)
        if not buckets:
            return None if buckets is None else False
        with compaction_marker(followed.files, followed.root) as names:
            table = java.copy({**options, **names})
            before = self._data_files()
            messages = compacted(jvm, table, buckets, full, user)
            if not any(not message.isEmpty() for message in messages):
                return False
            with closing(open_commit(table)) as commit:
                self.commit(
                    lambda: commit.commit(newest + 1, messages),
                    sorted(self._data_files() - before),
                )
        return True

    def _fetched(self, java: Any, full: bool) -> list[tuple[Any, int]] | None:
        """Fetch the data files of the buckets to compact; returns the partitions and buckets.

        Without `full`, these are the buckets with files of level 0. None if the files are too many
        or too large, or have another schema: then the Java core must work on the store itself.
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
        if any(int(file.schemaId()) != self._schema["id"] for file in files):
            return None
        if sum(int(file.fileSize()) for file in files) > _MOST_BYTES:
            return None
        paths = java.store().pathFactory()
        needed = set()
        for partition, bucket, file in chosen:
            factory = paths.createDataFilePathFactory(partition, bucket)
            needed |= {str(path.toUri().getPath()) for path in file.collectFiles(factory)}
        return list(buckets) if self._hold_data(needed) else None

    def _hold_data(self, paths: set[str]) -> bool:
        """Have exactly these data files here; False if one is gone, or not below the table."""
        if not all(path.startswith(f"{self.folder.path}/") for path in paths):
            return False
        needed = {os.path.relpath(path, self.folder.path) for path in paths}
        here = self._data_files()
        self.folder.delete(sorted(here - needed))
        try:
            self.folder.fetch(sorted(needed - here))
        except OSError:
            return False
        return True

    def _data_files(self) -> set[str]:
        """The data files that are here, relative to the folder."""
        return {name for name in self.folder.names() if not name.startswith("manifest/")}

    def commit(self, work: Callable[[], None], files: Sequence[str] = ()) -> None:
        """Commit what `work` commits to the copy, with new data `files`, under the table's lock.

        Without `files`, it need not make a snapshot. Raises `CommitConflictError`, and deletes the
        files, if another writer was faster or the schema was altered. After any other error that
        is not the Java core's the snapshot may be there: then the files stay, and the marker of
        the compaction.
        """
        try:
            self.folder.upload(files)
            with commit_lock(self._root):
                self._commit(work, bool(files))
        except LostCommitError as error:
            self._delete(files)
            raise CommitConflictError(f"{error}; nothing was changed: call again") from None
        except Py4JJavaError:
            self._delete(files)
            raise

    def _commit(self, work: Callable[[], None], needed: bool) -> None:
        newest = self._hold(0.0)
        etag = None if newest is None else self._snapshots.etag(newest)
        if newest is None or etag is None:
            raise LostCommitError(f"the table at {self._root} has been replaced")
        made = self._made(self.folder, newest, work)
        if made is None and needed:
            raise LostCommitError(f"no snapshot of the table at {self._root} was made")
        if made is not None and not self._publish(self.folder, newest, etag, *made):
            raise LostCommitError(f"the schema of the table at {self._root} was altered")


@contextmanager
def local_copy(table: Table) -> Iterator[LocalCopy | None]:
    """The copy of a followed table, for the block alone, and removed if the block raises.

    It is kept from one compaction to the next. None if the Java core must work on the store itself.
    """
    parts = object_store_parts(table)
    unusual = has_iceberg_metadata(table.options) or any(
        name.startswith(_UNUSUAL) for name in table.options
    )
    if parts is None or unusual:
        yield None
        return
    with borrowed(parts[0], table.root, table.schema, _MOST_COPIES) as folder:
        yield LocalCopy(table, *parts, folder)
