"""Commits to a table in an object store that take few requests.

The Rust core commits to a local copy of the table's metadata, and what it has written is uploaded
(`snapshot_upload`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from streamhouse.paimon.storage.metadata_mirror.folder import MirrorFolder
from streamhouse.paimon.storage.metadata_mirror.snapshot_upload import SnapshotUpload
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.rust_core import ERRORS

_LOG = logging.getLogger("streamhouse.storage")


class MirroredCommit:
    """Commits of one user to one table; the caller holds the table's lock.

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
        self._peer_folder: str | None = None

    def commit(
        self,
        base: str,
        identifier: int,
        messages: Sequence[Any],
        etag: str | None = None,
        peer_folder: str | None = None,
    ) -> tuple[str, str] | None:
        """Commit on top of the newest snapshot, whose text is `base`.

        `etag`: its ETag if the caller has not verified it. `peer_folder`: as in
        `MirrorFolder.hold`. Returns the new snapshot's text and
        ETag; None if the core must commit to the store itself, and nothing has changed. Raises
        `StoreError` if another writer has taken the number, or replaced the newest snapshot.
        """
        try:
            self._peer_folder = peer_folder
            return self._committed(base, identifier, messages, etag)
        except BaseException:
            # The folder may have a snapshot that the store has not.
            self.close()
            raise

    def _committed(
        self, base: str, identifier: int, messages: Sequence[Any], etag: str | None
    ) -> tuple[str, str] | None:
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
            self.close()
            return None
        text = (folder.read(f"snapshot/snapshot-{number}") or b"").decode()
        if not text or folder.read(f"snapshot/snapshot-{number + 1}") is not None:
            self.close()
            return None
        names = sorted(folder.names() - before)
        if not self._upload.upload_manifests(folder, names, number - 1, etag):
            self.close()
            return None
        return text, self._upload.publish(number, text, names)

    def _opened(self, base: str, manifests: bool) -> MirrorFolder:
        folder = self._folder
        if folder is None or manifests:
            self.close()
            folder = self._folder = MirrorFolder(self._files, self._root, self._schema)
            builder = folder.open(self._written).new_stream_write_builder()
            self._core = builder.with_commit_user(self._user).new_commit()
        folder.hold([base], manifests, peer_folder=self._peer_folder)
        return folder

    @property
    def folder(self) -> str:
        """The folder with the metadata of the newest commit."""
        return "" if self._folder is None else self._folder.path

    def close(self) -> None:
        """Delete the local copy; the next commit makes a new one."""
        folder, self._folder, self._core = self._folder, None, None
        if folder is not None:
            folder.remove()
