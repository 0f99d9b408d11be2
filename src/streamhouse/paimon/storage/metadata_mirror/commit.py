"""Commits to a table in an object store that take few requests.

Under the table's lock, one of Paimon's cores commits to a local copy of the table's metadata. What
it has written is uploaded: its manifests first, while it is checked what the core has relied on,
then the snapshot, on condition that its number is still free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from streamhouse.errors import LostCommitError, StoreError
from streamhouse.paimon.storage.metadata_mirror.folder import (
    MirrorFolder,
    borrowed,
    object_store_parts,
)
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.parallel import run_parallel, submit
from streamhouse.paimon.storage.rust_core import ERRORS

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_LOG = logging.getLogger("streamhouse.storage")


class LocalCommit(NamedTuple):
    """A commit that is in a folder only: the text of its snapshot, and its manifests."""

    text: str
    manifests: Sequence[str]


def made_by(folder: MirrorFolder, work: Callable[[], object]) -> LocalCommit | None:
    """Have `work` commit to the folder, on top of its newest snapshot.

    None if `work` has not made one snapshot.
    """
    before, number = folder.names(), folder.newest + 1
    work()
    text = (folder.read(f"snapshot/snapshot-{number}") or b"").decode()
    if not text or folder.read(f"snapshot/snapshot-{number + 1}") is not None:
        return None
    return LocalCommit(text, sorted(folder.names() - before))


def publish(folder: MirrorFolder, made: LocalCommit) -> bool:
    """Upload a commit on top of the folder's newest snapshot; the table's lock is held.

    Returns False if the schema was altered: the core records the newest one in its snapshot. Raises
    `LostCommitError` if the snapshot below has been replaced in the store, or if another writer has
    taken the number. After any other `StoreError` the snapshot may be there.
    """
    files, root, base = folder.files, folder.root, folder.newest
    newer = f"{root}/schema/schema-{int(folder.schema['id']) + 1}"
    path = f"{root}/snapshot/snapshot-"
    found, altered, *_ = run_parallel(
        [
            lambda: files.etag(f"{path}{base}"),
            lambda: files.exists(newer),
            *folder.uploads(made.manifests),
        ]
    )
    replaced = found is None or found != folder.etag
    if altered or replaced:
        delete_objects(folder, made.manifests)
    if replaced:
        raise LostCommitError(f"snapshot {base} of the table at {root} has been replaced")
    if altered:
        return False
    created = _create(files, f"{path}{base + 1}", made.text)
    if created is None:
        delete_objects(folder, made.manifests)
        raise LostCommitError(
            f"another writer, which does not wait for the lock of the table at {root}, has just "
            f"committed snapshot {base + 1}"
        )
    # A hint for readers, which look for later snapshots as well.
    submit(partial(files.write_text, f"{root}/snapshot/LATEST", str(base + 1)))
    folder.snapshots.add_commit(made.text, created, folder.path)
    return True


def _create(files: ObjectFiles, path: str, text: str) -> str | None:
    """Write a snapshot; returns its ETag, None if another writer has taken its number."""
    if not files.has_conditions:
        return files.put(path, text.encode())
    etag = files.create(path, text)
    # The answer to a repeated request may be lost.
    found = files.read(path) if etag is None else None
    return found[1] if found is not None and found[0] == text else etag


def delete_objects(folder: MirrorFolder, names: Sequence[str]) -> None:
    """Delete files that no snapshot names from the store."""
    try:
        run_parallel(
            [partial(folder.files.delete_object, f"{folder.root}/{name}") for name in names]
        )
    except StoreError as error:
        _LOG.info("files of a lost commit stay at %s: %s", folder.root, error)


def commit_in_copy(
    table: Table, user: str, newest: int, identifier: int, messages: Sequence[Any]
) -> bool:
    """Commit as a user by the Rust core, on top of the newest known snapshot; the lock is held.

    `table` has the options of writers. Returns False if the core must commit to the store itself;
    then nothing has changed. Raises `LostCommitError` if the snapshot was replaced, or another
    writer has taken the number.
    """
    if object_store_parts(table) is None:
        return False
    # The core reads the manifests only for some commits.
    for manifests in (False, True):
        with borrowed(table) as folder:
            made = None
            try:
                if folder.hold(newest, newest, manifests):
                    builder = folder.open(table.schema).new_stream_write_builder()
                    core = builder.with_commit_user(user).new_commit()
                    made = made_by(folder, partial(core.commit, identifier, messages))
            except ERRORS as error:
                if manifests:
                    _LOG.info("%s: the core commits to the store itself: %s", table.root, error)
            published = made is not None and publish(folder, made)
            if not published:
                # It may have a snapshot that the store has not.
                folder.remove()
            if made is not None:
                return published
    return False
