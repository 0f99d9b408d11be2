"""Plans of followed tables in object stores, by copies of their metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from streamhouse.paimon.storage.metadata_mirror.folder import LISTS, borrowed, object_store_parts
from streamhouse.paimon.storage.rust_core import ERRORS
from streamhouse.paimon.storage.split_files import SplitFrame

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_LOG = logging.getLogger("streamhouse.storage")


def changes(
    table: Table, after: int, until: int, plan: Callable[[Any], Sequence[Any]]
) -> list[bytes] | None:
    """The serialised splits of `plan`, for the snapshots in (`after`, `until`].

    `plan` gets the Rust core's table. None if the core must plan by the store itself, which also
    raises the errors.
    """
    followed = object_store_parts(table)
    if followed is None:
        return None
    files, snapshots = followed
    texts, root, schema = snapshots.texts(after + 1, until), table.root, table.schema
    if not texts:
        return None
    try:
        with borrowed(files, root, schema) as folder:
            folder.hold(texts, True, LISTS[1:], snapshots.peer_folders)
            splits = plan(folder.open(schema))
            frames = [SplitFrame.parse(split.serialize()) for split in splits]
            if any(frame.vectors for frame in frames):
                # They have the paths of deletion vectors.
                return None
            return [_moved(frame, folder.path, root) for frame in frames]
    except ERRORS as error:
        _LOG.info("%s: the core plans by the store itself: %s", root, error)
        return None


def _moved(frame: SplitFrame, folder: str, root: str) -> bytes:
    return frame.moved(root + frame.folder.removeprefix(folder)).serialize()
