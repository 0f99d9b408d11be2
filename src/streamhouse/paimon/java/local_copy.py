"""Local copies of small tables in object stores, in which the Java core compacts (decision 217).

On the store itself the Java core takes some hundred requests for a compaction, one after the other,
thirty of them while its commit holds the table's lock. In a copy it takes none: the metadata and
the data files that are not here yet are fetched, and what the Java core has written is uploaded,
several files at a time. Most are here: it has written them itself, or a query on this machine has.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from streamhouse.errors import CommitConflictError, LostCommitError, StoreError, StreamhouseError
from streamhouse.paimon.java.bucket_compaction import compacted
from streamhouse.paimon.java.unfinished_compactions import compaction_marker
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.options.iceberg_metadata import has_iceberg_metadata
from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.lock import LOCK_WAIT_S, commit_lock
from streamhouse.paimon.storage.metadata_mirror.commit import MirroredTable, UnpublishedCommit
from streamhouse.paimon.storage.metadata_mirror.folder import object_store_parts
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles

_MOST_BYTES = 16 << 20
_MOST_FILES = 64
_MOST_COPIES = 16
_REFUSED_S = 60.0
_UNUSUAL = ("data-file.external-paths", "commit.callbacks", "tag.automatic-creation")
"""Options by which the Java core reads or writes more than data files and metadata."""


class LocalCopy(MirroredTable):
    """The copy of one table, kept from one compaction to the next; for one thread at a time.

    It has at most 16 MB of data files. It must be closed after an error.
    """

    def __init__(self, table: Table, files: ObjectFiles, snapshots: FollowedSnapshots) -> None:
        super().__init__(table, files, snapshots)
        self._schema_id = table.schema_id
        self.refused = False
        """Whether the last `fetch` has found that the table does not fit here."""
        self._attempted = False

    @classmethod
    def of(cls, table: Table) -> LocalCopy | None:
        """The copy of a followed table; None if the Java core must work on the store itself."""
        parts = object_store_parts(table)
        if parts is None or has_iceberg_metadata(table.options):
            return None
        if any(name.startswith(_UNUSUAL) for name in table.options):
            return None
        return cls(table, *parts)

    def fits(self, table: Table) -> bool:
        """Whether this is a copy of the table, with its schema."""
        return (self._root, self._schema_id) == (table.root, table.schema_id)

    def hold_newest(self) -> int | None:
        """Bring the metadata up to date; returns the newest snapshot.

        None if the Java core must work on the store itself, also as there is no snapshot.
        """
        self._snapshots.take_notice()
        # It also probes for newer ones.
        self._snapshots.verify()
        return self._hold()

    def _hold(self) -> int | None:
        newest = self._snapshots.latest_id(LOCK_WAIT_S)
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
        buckets = self.fetch(java, full)
        if not buckets:
            return None if buckets is None else False
        identifier = newest + 1
        with compaction_marker(followed.files, followed.root) as names:
            table = java.copy({**options, **names})
            before = self.data_files()
            messages = compacted(jvm, table, buckets, full, identifier, user)
            if not any(not message.isEmpty() for message in messages):
                return False
            with (
                self.conflicts_reported(),
                self.uploaded(before),
                closing(open_commit(table)) as commit,
            ):
                if not self.commit(lambda: commit.commit(identifier, messages)):
                    raise LostCommitError(f"table {followed.identifier}: no snapshot was made")
        return True

    def fetch(self, java: Any, full: bool) -> list[tuple[Any, int]] | None:
        """Fetch the data files of the buckets to compact; returns the partitions and buckets.

        Without `full`, these are the buckets with files of level 0. None if the files are too many
        or too large, or have another schema: then the Java core must work on the store itself.
        """
        buckets = self._fetched(java, full)
        self.refused = buckets is None
        return buckets

    def _fetched(self, java: Any, full: bool) -> list[tuple[Any, int]] | None:
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
        if any(int(file.schemaId()) != self._schema_id for file in files):
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
        here = self.data_files()
        self.folder.delete(sorted(here - needed))
        try:
            self.folder.fetch(sorted(needed - here))
        except OSError:
            return False
        return True

    def data_files(self) -> set[str]:
        """The data files that are here, relative to the folder."""
        return {name for name in self.folder.names() if not name.startswith("manifest/")}

    @contextmanager
    def conflicts_reported(self) -> Iterator[None]:
        """Report a lost commit to the caller as `CommitConflictError`: nothing was changed."""
        try:
            yield
        except LostCommitError as error:
            raise CommitConflictError(f"{error}; nothing was changed: call again") from None

    @contextmanager
    def uploaded(self, before: set[str]) -> Iterator[None]:
        """Upload what the Java core has written since `before`; deletes it if the commit is lost.

        Once the snapshot may be there, the files stay at any other error.
        """
        names, self._attempted = sorted(self.data_files() - before), False
        try:
            self.folder.upload(names)
            yield
        except LostCommitError:
            self._delete(names)
            raise
        except BaseException:
            if not self._attempted:
                self._delete(names)
            raise

    def commit(self, work: Callable[[], None]) -> bool:
        """Commit what `work` commits to the copy; new data files must be `uploaded` before.

        Returns False if `work` has not made one snapshot. Raises `LostCommitError` if the schema
        was altered, or another writer does not wait for the lock.
        """
        # A commit of the Java core takes as long as some of a query, which need not wait for it.
        prepared = self._prepared(work)
        if prepared is None:
            return False
        in_vain: list[str] = []
        try:
            with commit_lock(self._root):
                self._snapshots.probe()
                if not self._is_newest(prepared):
                    in_vain += self._forgotten(prepared)
                    prepared = None
                    prepared = self._prepared(work)
                    if prepared is None:
                        return False
                ready, prepared = prepared, None
                self._publish(ready)
            return True
        finally:
            if prepared is not None:
                in_vain += self._forgotten(prepared)
            self._delete(in_vain)

    def _prepared(self, work: Callable[[], None]) -> UnpublishedCommit | None:
        """Have `work` commit to the copy; None if it has not made one snapshot."""
        newest = self._hold()
        etag = None if newest is None else self._snapshots.etag(newest)
        if newest is None or etag is None:
            raise LostCommitError(f"the table at {self._root} has been replaced")
        return self.begin(newest, etag, work)

    def _is_newest(self, made: UnpublishedCommit) -> bool:
        """Whether no one has committed since, as far as is known here."""
        newest = self._snapshots.latest_id(LOCK_WAIT_S)
        return newest == made.base and self._snapshots.etag(newest) == made.etag

    def _publish(self, made: UnpublishedCommit) -> None:
        if not self.verify(made):
            self.delete(made.names)
            raise LostCommitError(f"the schema of the table at {self._root} was altered")
        self._attempted = True
        self.publish(made)

    def _forgotten(self, made: UnpublishedCommit) -> Sequence[str]:
        """Delete a commit that no one has seen from here; returns what may be in the store."""
        with suppress(StreamhouseError):
            made.uploaded()
        self.folder.forget(made.base + 1, made.names)
        return made.names

    def _delete(self, names: Sequence[str]) -> None:
        # What stays is removed by the marker of the compaction.
        with suppress(StoreError):
            self.delete(names)


class LocalCopies:
    """The copies of several tables; thread-safe."""

    def __init__(self) -> None:
        self._copies: dict[str, LocalCopy] = {}
        self._refused_at: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self, name: str, table: Table) -> Iterator[LocalCopy | None]:
        """The copy of a followed table, for the block alone, and closed if the block raises.

        None if the Java core must work on the store itself, also for a minute after that was found.
        """
        if time.monotonic() - self._refused_at.get(name, float("-inf")) < _REFUSED_S:
            yield None
            return
        with self._lock:
            copy = self._copies.pop(name, None)
        if copy is not None and not copy.fits(table):
            copy.close()
            copy = None
        copy = copy or LocalCopy.of(table)
        try:
            yield copy
        except BaseException:
            if copy is not None:
                copy.close()
            raise
        if copy is not None and copy.refused:
            self._refused_at[name] = time.monotonic()
            copy.close()
        elif copy is not None:
            self._keep(name, copy)

    def _keep(self, name: str, copy: LocalCopy) -> None:
        with self._lock:
            others = [self._copies.pop(name, None)]
            self._copies[name] = copy
            if len(self._copies) > _MOST_COPIES:
                others.append(self._copies.pop(next(iter(self._copies))))
        for other in others:
            if other is not None:
                other.close()

    def close(self) -> None:
        """Delete the copies."""
        with self._lock:
            copies, self._copies = self._copies, {}
        for copy in copies.values():
            copy.close()
