"""Commits to a table in an object store that take few requests.

The Rust core commits to a local copy of the table's metadata, and what it has written is uploaded
(`snapshot_upload`). That begins while the table's lock is taken: manifests without their snapshot
are invisible.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from streamhouse.errors import StoreError, StreamhouseError
from streamhouse.paimon.storage.metadata_mirror.folder import MirrorFolder
from streamhouse.paimon.storage.metadata_mirror.snapshot_upload import SnapshotUpload
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.rust_core import ERRORS

_LOG = logging.getLogger("streamhouse.storage")


@dataclass(frozen=True)
class _Prepared:
    """A commit that is in the folder, but not in the store: only its manifests `names` may be.

    `text` is its snapshot, on top of `base`. `uploaded` waits for the upload of the manifests.
    """

    base: str
    identifier: int
    messages: Sequence[Any]
    text: str
    names: Sequence[str]
    uploaded: Callable[[], object]


class MirroredCommit:
    """Commits of one user to one table.

    `schema` is the table's, `written` the same with the options of writers.
    """

    def __init__(
        self,
        files: ObjectFiles,
        root: str,
        schema: Mapping[str, Any],
        written: Mapping[str, Any],
        user: str,
    ) -> None:
        self._files, self._root, self._user = files, root, user
        self._upload = SnapshotUpload(files, root, int(schema["id"]))
        self._schema, self._written = schema, written
        self._folder: MirrorFolder | None = None
        self._core: Any = None
        self._peer_folders: Sequence[str] = ()
        self._prepared: _Prepared | None = None

    def prepare(
        self,
        base: str,
        identifier: int,
        messages: Sequence[Any],
        peer_folders: Sequence[str] = (),
        found: Callable[[], str | None] | None = None,
    ) -> bool:
        """Commit to the folder, and begin to upload the manifests; the lock need not be held.

        `base` is the text of the newest snapshot; `found`, called before the upload, returns
        it again. If it is another one by then, or the core must commit to the store itself,
        nothing is prepared, and the result is False.
        """
        ready = self._prepared
        if ready is not None:
            if (ready.base, ready.identifier) == (base, identifier) and ready.messages is messages:
                return True
            self.abandon()
        try:
            self._peer_folders = peer_folders
            made = self._committed(base, identifier, messages)
            if made is not None and (found is None or found() == base):
                folder, text, names = made
                uploaded = self._upload.begin(folder, names)
                self._prepared = _Prepared(base, identifier, messages, text, names, uploaded)
                return True
        except BaseException:
            # The folder may have a snapshot that the store has not.
            self.close()
            raise
        self.close()
        return False

    def abandon(self) -> None:
        """Give up what is prepared, if anything is, and delete its manifests from the store."""
        ready = self._prepared
        if ready is not None:
            self.close()
            with suppress(StoreError):
                self._upload.delete(ready.names)

    def commit(
        self,
        base: str,
        identifier: int,
        messages: Sequence[Any],
        etag: str | None = None,
        peer_folders: Sequence[str] = (),
    ) -> tuple[str, str] | None:
        """Commit on top of the newest snapshot, whose text is `base`; the lock is held.

        `etag`: its ETag if the caller has not verified it. `peer_folders`: as in
        `MirrorFolder.hold`. Returns the new snapshot's text and
        ETag; None if the core must commit to the store itself, and nothing has changed. Raises
        `StoreError` if another writer has taken the number, or replaced the newest snapshot.
        """
        if not self.prepare(base, identifier, messages, peer_folders):
            return None
        ready, self._prepared = self._prepared, None
        assert ready is not None
        number = int(json.loads(base)["id"])
        try:
            if self._upload.verify(number, etag, ready.names, ready.uploaded):
                made = self._upload.publish(number + 1, ready.text, ready.names)
                return ready.text, made
        except BaseException:
            self.close()
            raise
        self.close()
        return None

    def _committed(
        self, base: str, identifier: int, messages: Sequence[Any]
    ) -> tuple[MirrorFolder, str, list[str]] | None:
        """Commit to the folder; returns it, the snapshot's text and the manifests, None if
        the core must commit to the store itself.
        """
        number = int(json.loads(base)["id"]) + 1
        try:
            folder = self._opened(base, manifests=False)
            before = folder.names()
            try:
                self._core.commit(identifier, messages)
            except ERRORS:
                # It reads the manifests only for some commits.
                folder = self._opened(base, manifests=True)
                before = folder.names()
                self._core.commit(identifier, messages)
        except ERRORS as error:
            _LOG.info("%s: the core commits to the store itself: %s", self._root, error)
            return None
        text = (folder.read(f"snapshot/snapshot-{number}") or b"").decode()
        if not text or folder.read(f"snapshot/snapshot-{number + 1}") is not None:
            return None
        return folder, text, sorted(folder.names() - before)

    def _opened(self, base: str, manifests: bool) -> MirrorFolder:
        folder = self._folder
        if folder is None or manifests:
            self.close()
            folder = self._folder = MirrorFolder(self._files, self._root, self._schema)
            builder = folder.open(self._written).new_stream_write_builder()
            self._core = builder.with_commit_user(self._user).new_commit()
        folder.hold([base], manifests, peer_folders=self._peer_folders)
        return folder

    @property
    def folder(self) -> str:
        """The folder with the metadata of the newest commit."""
        return "" if self._folder is None else self._folder.path

    def close(self) -> None:
        """Delete the local copy; the next commit makes a new one."""
        ready, self._prepared = self._prepared, None
        if ready is not None:
            # No thread reads from the folder once it is deleted.
            with suppress(StreamhouseError):
                ready.uploaded()
        folder, self._folder, self._core = self._folder, None, None
        if folder is not None:
            folder.remove()
