"""Uploads a commit that one of Paimon's cores has made in a local copy of a table's metadata.

Its manifests are uploaded first, at the same time, and perhaps before the table's lock is held.
Then, under the lock, it is checked what the core has relied on, and the snapshot is written, on
condition that its number is still free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamhouse.errors import LostCommitError, StoreError
from streamhouse.paimon.storage.metadata_mirror.folder import MirrorFolder
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.parallel import run_parallel, start, submit

_LOG = logging.getLogger("streamhouse.storage")


@dataclass(frozen=True)
class UnpublishedCommit:
    """A commit that is in the folder, but not in the store: only its manifests `names` may be.

    `text` is its snapshot, on top of the one with the number `base` and the ETag `etag`, which is
    None if the caller has verified it. `uploaded` waits for the upload of the manifests.
    """

    base: int
    etag: str | None
    text: str
    names: Sequence[str]
    uploaded: Callable[[], object]


class SnapshotUpload:
    """Uploads commits to one table; whoever verifies and publishes one holds the table's lock.

    `schema_id` is the version of the schema that the core has recorded in the snapshots.
    """

    def __init__(self, files: ObjectFiles, root: str, schema_id: int) -> None:
        self._files, self._root, self._schema_id = files, root, schema_id
        self._objects = files.requests
        self._hint: Future[Any] | None = None

    def begin(
        self, folder: MirrorFolder, base: int, etag: str | None, work: Callable[[], object]
    ) -> UnpublishedCommit | None:
        """Have `work` commit to the folder on top of snapshot `base`, and begin the upload.

        Returns None if it has not made one snapshot.
        """
        before = folder.names()
        work()
        text = (folder.read(f"snapshot/snapshot-{base + 1}") or b"").decode()
        if not text or folder.read(f"snapshot/snapshot-{base + 2}") is not None:
            return None
        names = sorted(folder.names() - before)
        return UnpublishedCommit(base, etag, text, names, start(folder.uploads(names)))

    def verify(self, commit: UnpublishedCommit) -> bool:
        """Check what the core has relied on, while its manifests are uploaded.

        Returns False if the schema was altered: the core records the newest one in its snapshot.
        Raises `LostCommitError` if the snapshot below was replaced.
        """
        newer = f"{self._root}/schema/schema-{self._schema_id + 1}"
        path, etag = f"{self._root}/snapshot/snapshot-{commit.base}", commit.etag
        try:
            altered, found = run_parallel(
                [
                    lambda: self._files.exists(newer),
                    lambda: etag if etag is None else self._objects.etag(path),
                ]
            )
        finally:
            # No thread reads from the folder once it is deleted.
            commit.uploaded()
        if found != etag:
            self.delete(commit.names)
            raise LostCommitError(
                f"snapshot {commit.base} of the table at {self._root} has been replaced"
            )
        return not altered

    def publish(self, commit: UnpublishedCommit) -> str:
        """Write the snapshot, which makes the commit visible; returns its ETag.

        Raises `LostCommitError`, and deletes the manifests, if another writer has taken the number.
        After any other `StoreError` the snapshot may be there.
        """
        number, text = commit.base + 1, commit.text
        path = f"{self._root}/snapshot/snapshot-{number}"
        if self._objects.has_conditions:
            etag = self._objects.create(path, text) or self._own(path, text)
        else:
            etag = self._objects.put(path, text.encode())
        if etag is None:
            self.delete(commit.names)
            raise LostCommitError(
                f"another writer, which does not wait for the lock of the table at {self._root}, "
                f"has just committed snapshot {number}"
            )
        self._name_latest(number)
        return etag

    def delete(self, names: Sequence[str]) -> None:
        """Delete files of a commit from the store."""
        run_parallel([partial(self._files.delete_file, f"{self._root}/{name}") for name in names])

    def _own(self, path: str, text: str) -> str | None:
        """The ETag of the snapshot if it is ours: the answer to a repeated request may be lost."""
        found = self._objects.read(path)
        return found[1] if found is not None and found[0] == text else None

    def _name_latest(self, number: int) -> None:
        """Write the hint `LATEST`, while the caller goes on."""
        earlier = self._hint

        def write() -> None:
            if earlier is not None:
                earlier.exception()
            try:
                self._files.write_text(f"{self._root}/snapshot/LATEST", str(number))
            except StoreError as error:
                _LOG.info("readers list the snapshots of %s: %s", self._root, error)

        self._hint = submit(write)
