"""Commits to a table in an object store that take few requests.

The Rust core commits to a local copy of the table's metadata. What it has written is uploaded: the
manifests at once, then the snapshot, on condition that its number is still free.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from streamhouse.errors import StoreError
from streamhouse.paimon.storage.metadata_mirror.folder import MirrorFolder
from streamhouse.paimon.storage.object_store.conditional_objects import ConditionalObjects
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.parallel import run_parallel, submit
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
        self._objects = ConditionalObjects(files.requests)
        self._schema, self._written = schema, written
        self._folder: MirrorFolder | None = None
        self._core: Any = None
        self._hint: Future[Any] | None = None

    def commit(
        self, base: str, identifier: int, messages: Sequence[Any], etag: str | None = None
    ) -> tuple[str, str] | None:
        """Commit on top of the newest snapshot, whose text is `base`.

        `etag`: its ETag if the caller has not verified it. Returns the new snapshot's text and
        ETag; None if the core must commit to the store itself, and nothing has changed. Raises
        `StoreError` if another writer has taken the number, or replaced the newest snapshot.
        """
        try:
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
        if not self._uploaded(folder, names, number - 1, etag):
            self.close()
            return None
        return self._published(number, text, names)

    def _uploaded(
        self, folder: MirrorFolder, names: Sequence[str], base: int, etag: str | None
    ) -> bool:
        """Upload the manifests that the core has written, and meanwhile check what it relied on.

        Returns False if the schema was altered: the core records the newest one in its snapshot.
        """
        newer = f"{self._root}/schema/schema-{int(self._schema['id']) + 1}"
        path = f"{self._root}/snapshot/snapshot-{base}"
        altered, found, *_ = run_parallel(
            [
                lambda: self._files.exists(newer),
                lambda: etag if etag is None else self._objects.etag(path),
                *folder.uploads(names),
            ]
        )
        if found != etag:
            self._delete(names)
            raise StoreError(f"snapshot {base} of the table at {self._root} has been replaced")
        return not altered

    def _delete(self, names: Sequence[str]) -> None:
        run_parallel([partial(self._files.delete_file, f"{self._root}/{name}") for name in names])

    def _published(self, number: int, text: str, names: Sequence[str]) -> tuple[str, str] | None:
        """Write the snapshot, which makes the commit visible."""
        path = f"{self._root}/snapshot/snapshot-{number}"
        if self._objects.supported:
            etag = self._objects.create(path, text) or self._own(path, text)
        else:
            etag = self._objects.write(path, text)
        if etag is None:
            self._delete(names)
            raise StoreError(
                f"another writer, which does not wait for the lock of the table at {self._root}, "
                f"has just committed snapshot {number}"
            )
        self._name_latest(number)
        return text, etag

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

    def _opened(self, base: str, manifests: bool) -> MirrorFolder:
        folder = self._folder
        if folder is None or manifests:
            self.close()
            folder = self._folder = MirrorFolder(self._files, self._root, self._schema)
            builder = folder.open(self._written).new_stream_write_builder()
            self._core = builder.with_commit_user(self._user).new_commit()
        folder.hold([base], manifests)
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
