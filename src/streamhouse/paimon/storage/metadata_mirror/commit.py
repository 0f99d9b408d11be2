"""Commits to a table in an object store that take few requests.

Under the table's lock, one of Paimon's cores commits to a local copy of the table's metadata. What
it has written is uploaded: its manifests first, while it is checked what the core has relied on,
then the snapshot, on condition that its number is still free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from streamhouse.errors import LostCommitError, StoreError
from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.metadata_mirror.folder import MirrorFolder, borrowed
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.parallel import run_parallel, submit
from streamhouse.paimon.storage.rust_core import ERRORS

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_LOG = logging.getLogger("streamhouse.storage")


class MirroredTable:
    """Commits to a followed table that are made in a local copy of it."""

    def __init__(self, table: Table, files: ObjectFiles, snapshots: FollowedSnapshots) -> None:
        self._files, self._snapshots = files, snapshots
        self._root, self._schema = table.root, table.schema

    def _made(
        self, folder: MirrorFolder, base: int, work: Callable[[], object]
    ) -> tuple[str, Sequence[str]] | None:
        """Have `work` commit to the folder, on top of snapshot `base`.

        Returns the text of the snapshot and the names of its manifests; None if `work` has not made
        one snapshot.
        """
        before = folder.names()
        work()
        text = (folder.read(f"snapshot/snapshot-{base + 1}") or b"").decode()
        if not text or folder.read(f"snapshot/snapshot-{base + 2}") is not None:
            return None
        return text, sorted(folder.names() - before)

    def _publish(
        self, folder: MirrorFolder, base: int, etag: str, text: str, names: Sequence[str]
    ) -> bool:
        """Upload a commit that is in the folder, on top of snapshot `base`; the lock is held.

        Returns False if the schema was altered: the core records the newest one in its snapshot.
        Raises `LostCommitError` if the snapshot below has not this ETag any more, or if another
        writer has taken the number. After any other `StoreError` the snapshot may be there.
        """
        newer = f"{self._root}/schema/schema-{int(self._schema['id']) + 1}"
        path = f"{self._root}/snapshot/snapshot-"
        found, altered, *_ = run_parallel(
            [
                lambda: self._files.etag(f"{path}{base}"),
                lambda: self._files.exists(newer),
                *folder.uploads(names),
            ]
        )
        if altered or found != etag:
            self._delete(names)
        if found != etag:
            raise LostCommitError(f"snapshot {base} of the table at {self._root} has been replaced")
        if altered:
            return False
        created = self._create(f"{path}{base + 1}", text)
        if created is None:
            self._delete(names)
            raise LostCommitError(
                f"another writer, which does not wait for the lock of the table at {self._root}, "
                f"has just committed snapshot {base + 1}"
            )
        # A hint for readers, which look for later snapshots as well.
        submit(partial(self._files.write_text, f"{self._root}/snapshot/LATEST", str(base + 1)))
        self._snapshots.add_commit(text, created, folder.path)
        return True

    def _create(self, path: str, text: str) -> str | None:
        """Write a snapshot; returns its ETag, None if another writer has taken its number."""
        if not self._files.has_conditions:
            return self._files.put(path, text.encode())
        etag = self._files.create(path, text)
        # The answer to a repeated request may be lost.
        found = self._files.read(path) if etag is None else None
        return found[1] if found is not None and found[0] == text else etag

    def _delete(self, names: Sequence[str]) -> None:
        """Delete files that no snapshot names from the store."""
        try:
            run_parallel(
                [partial(self._files.delete_object, f"{self._root}/{name}") for name in names]
            )
        except StoreError as error:
            _LOG.info("files of a lost commit stay at %s: %s", self._root, error)


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

    def commit(self, newest: int, identifier: int, messages: Sequence[Any]) -> bool:
        """Commit on top of the newest known snapshot; the lock is held.

        Returns False if the core must commit to the store itself; then nothing has changed. Raises
        `LostCommitError` if the snapshot was replaced, or another writer has taken the number.
        """
        texts, etag = self._snapshots.texts(newest, newest), self._snapshots.etag(newest)
        if not texts or not etag:
            return False
        # The core reads the manifests only for some commits.
        for manifests in (False, True):
            with borrowed(self._files, self._root, self._schema) as folder:
                made = self._made_by_core(folder, texts, manifests, newest, identifier, messages)
                published = made is not None and self._publish(folder, newest, etag, *made)
                if not published:
                    # It may have a snapshot that the store has not.
                    folder.remove()
                if made is not None:
                    return published
        return False

    def _made_by_core(
        self,
        folder: MirrorFolder,
        texts: Sequence[str],
        manifests: bool,
        newest: int,
        identifier: int,
        messages: Sequence[Any],
    ) -> tuple[str, Sequence[str]] | None:
        """Commit to the folder; None if the core cannot."""
        try:
            folder.hold(texts, manifests, peer_folders=self._snapshots.peer_folders)
            builder = folder.open(self._written).new_stream_write_builder()
            core = builder.with_commit_user(self._user).new_commit()
            return self._made(folder, newest, lambda: core.commit(identifier, messages))
        except ERRORS as error:
            if manifests:
                _LOG.info("%s: the core commits to the store itself: %s", self._root, error)
            return None

    @property
    def has_conditions(self) -> bool:
        """Whether the store refuses a snapshot whose number is taken."""
        return self._files.has_conditions
