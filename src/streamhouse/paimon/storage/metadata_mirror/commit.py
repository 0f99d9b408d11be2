"""Commits to a table in an object store that take few requests.

The Rust core commits to a local copy of the table's metadata, and what it has written is uploaded
(`snapshot_upload`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from streamhouse.errors import StoreError
from streamhouse.paimon.storage.metadata_mirror.folder import MirrorFolder
from streamhouse.paimon.storage.metadata_mirror.snapshot_upload import (
    SnapshotUpload,
    UnpublishedCommit,
)
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.rust_core import ERRORS

_LOG = logging.getLogger("streamhouse.storage")


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

    def commit(
        self,
        base: str,
        identifier: int,
        messages: Sequence[Any],
        etag: str | None = None,
        peer_folders: Sequence[str] = (),
    ) -> tuple[str, str] | None:
        """Commit on top of the newest snapshot, whose text is `base`; the lock is held.

        `etag`: that of the newest snapshot, if the caller has not verified it. `peer_folders`: as
        in `MirrorFolder.hold`. Returns the new snapshot's text and ETag; None if the core must
        commit to the store itself, and nothing has changed. Raises `LostCommitError` if the
        snapshot was replaced, or another writer has taken the number.
        """
        try:
            made = self._made(base, identifier, messages, etag, peer_folders)
            if made is not None:
                if self._upload.verify(made):
                    return made.text, self._upload.publish(made)
                with suppress(StoreError):
                    self._upload.delete(made.names)
        except BaseException:
            # The folder may have a snapshot that the store has not.
            self.close()
            raise
        self.close()
        return None

    def _made(
        self,
        base: str,
        identifier: int,
        messages: Sequence[Any],
        etag: str | None,
        peer_folders: Sequence[str],
    ) -> UnpublishedCommit | None:
        """Commit to the folder; None if the core must commit to the store itself."""
        number = int(json.loads(base)["id"])

        def made(manifests: bool) -> UnpublishedCommit | None:
            folder, core = self._opened(base, peer_folders, manifests)
            return self._upload.begin(
                folder, number, etag, lambda: core.commit(identifier, messages)
            )

        try:
            try:
                return made(manifests=False)
            except ERRORS:
                # It reads the manifests only for some commits.
                return made(manifests=True)
        except ERRORS as error:
            _LOG.info("%s: the core commits to the store itself: %s", self._root, error)
            return None

    def _opened(
        self, base: str, peer_folders: Sequence[str], manifests: bool
    ) -> tuple[MirrorFolder, Any]:
        folder = self._folder
        if folder is None or manifests:
            self.close()
            folder = self._folder = MirrorFolder(self._files, self._root, self._schema)
            builder = folder.open(self._written).new_stream_write_builder()
            self._core = builder.with_commit_user(self._user).new_commit()
        folder.hold([base], manifests, peer_folders=peer_folders)
        return folder, self._core

    @property
    def has_conditions(self) -> bool:
        """Whether the store refuses a snapshot whose number is taken."""
        return self._files.requests.has_conditions

    @property
    def folder(self) -> str:
        """The folder with the metadata of the newest commit."""
        return "" if self._folder is None else self._folder.path

    def close(self) -> None:
        """Delete the local copy; the next commit makes a new one."""
        folder, self._folder, self._core = self._folder, None, None
        if folder is not None:
            folder.remove()
