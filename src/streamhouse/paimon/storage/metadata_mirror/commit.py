"""Commits to a table in an object store that take few requests.

One of Paimon's cores commits to a local copy of the table's metadata, and what it has written is
uploaded: its manifests first, at the same time, and perhaps before the table's lock is held. Then,
under the lock, it is checked what the core has relied on, and the snapshot is written, on condition
that its number is still free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from streamhouse.errors import LostCommitError, StoreError
from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.metadata_mirror.folder import MirrorFolder
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.parallel import run_parallel, start, submit
from streamhouse.paimon.storage.rust_core import ERRORS

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

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


class MirroredTable:
    """The local copy of a followed table, and commits that are made there; not thread-safe.

    Whoever verifies and publishes a commit holds the table's lock.
    """

    def __init__(self, table: Table, files: ObjectFiles, snapshots: FollowedSnapshots) -> None:
        self._files, self._snapshots = files, snapshots
        self._root, self._schema = table.root, table.schema
        self._folder: MirrorFolder | None = None
        self._hint: Future[Any] | None = None

    @property
    def folder(self) -> MirrorFolder:
        """The folder of the copy, which is made on first use."""
        if self._folder is None:
            self._folder = MirrorFolder(self._files, self._root, self._schema)
        return self._folder

    def close(self) -> None:
        """Delete the folder; the next use makes a new one."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.remove()

    def begin(
        self, base: int, etag: str | None, work: Callable[[], object]
    ) -> UnpublishedCommit | None:
        """Have `work` commit to the folder on top of snapshot `base`, and begin the upload.

        Returns None if it has not made one snapshot.
        """
        folder = self.folder
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
        newer = f"{self._root}/schema/schema-{int(self._schema['id']) + 1}"
        path, etag = f"{self._root}/snapshot/snapshot-{commit.base}", commit.etag
        try:
            altered, found = run_parallel(
                [
                    lambda: self._files.exists(newer),
                    lambda: etag if etag is None else self._files.etag(path),
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

    def publish(self, commit: UnpublishedCommit) -> None:
        """Write the snapshot, which makes the commit visible, and note it as the newest.

        Raises `LostCommitError`, and deletes the manifests, if another writer has taken the number.
        After any other `StoreError` the snapshot may be there.
        """
        number, text = commit.base + 1, commit.text
        path = f"{self._root}/snapshot/snapshot-{number}"
        if self._files.has_conditions:
            etag = self._files.create(path, text) or self._own(path, text)
        else:
            etag = self._files.put(path, text.encode())
        if etag is None:
            self.delete(commit.names)
            raise LostCommitError(
                f"another writer, which does not wait for the lock of the table at {self._root}, "
                f"has just committed snapshot {number}"
            )
        self._name_latest(number)
        self._snapshots.add_commit(text, etag, self.folder.path)

    def delete(self, names: Sequence[str]) -> None:
        """Delete files of a commit from the store."""
        run_parallel([partial(self._files.delete_object, f"{self._root}/{name}") for name in names])

    def _own(self, path: str, text: str) -> str | None:
        """The ETag of the snapshot if it is ours: the answer to a repeated request may be lost."""
        found = self._files.read(path)
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


class MirroredCommit(MirroredTable):
    """Commits of one user by the Rust core; `written` is the schema with the options of writers."""

    def __init__(
        self,
        table: Table,
        files: ObjectFiles,
        snapshots: FollowedSnapshots,
        written: Mapping[str, Any],
        user: str,
    ) -> None:
        super().__init__(table, files, snapshots)
        self._written, self._user = written, user
        self._core: Any = None

    def commit(
        self, newest: int, identifier: int, messages: Sequence[Any], verified: bool = True
    ) -> bool:
        """Commit on top of the newest known snapshot; the lock is held.

        Unless it is `verified` that this snapshot is still there, that is checked as well. Returns
        False if the core must commit to the store itself; then nothing has changed. Raises
        `LostCommitError` if the snapshot was replaced, or another writer has taken the number.
        """
        texts = self._snapshots.texts(newest, newest)
        etag = None if verified else self._snapshots.etag(newest)
        if not texts or not (verified or etag):
            return False
        try:
            made = self._made(newest, texts, etag, lambda: self._core.commit(identifier, messages))
            if made is not None:
                if self.verify(made):
                    self.publish(made)
                    return True
                with suppress(StoreError):
                    self.delete(made.names)
        except BaseException:
            # The folder may have a snapshot that the store has not.
            self.close()
            raise
        self.close()
        return False

    def _made(
        self, newest: int, texts: Sequence[str], etag: str | None, work: Callable[[], object]
    ) -> UnpublishedCommit | None:
        """Commit to the folder; None if the core must commit to the store itself."""
        try:
            try:
                self._hold(texts, manifests=False)
                return self.begin(newest, etag, work)
            except ERRORS:
                # It reads the manifests only for some commits.
                self.close()
                self._hold(texts, manifests=True)
                return self.begin(newest, etag, work)
        except ERRORS as error:
            _LOG.info("%s: the core commits to the store itself: %s", self._root, error)
            return None

    def _hold(self, texts: Sequence[str], manifests: bool) -> None:
        """Bring the copy up to date, and open the core's committer on a new one."""
        if self._folder is None:
            builder = self.folder.open(self._written).new_stream_write_builder()
            self._core = builder.with_commit_user(self._user).new_commit()
        self.folder.hold(texts, manifests, peer_folders=self._snapshots.peer_folders)

    @property
    def has_conditions(self) -> bool:
        """Whether the store refuses a snapshot whose number is taken."""
        return self._files.has_conditions
