"""Plans, and reads of few small files, of a followed table in an object store: by local copies.

The Rust core takes two requests for each, one file after the other.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from streamhouse.paimon.storage.metadata_mirror.folder import borrowed, object_store_parts
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.parallel import run_parallel
from streamhouse.paimon.storage.rust_core import ERRORS
from streamhouse.paimon.storage.split_files import SplitFrame

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_MOST_BYTES = 8 << 20
_MOST_FILES = 32


@contextmanager
def fetched(table: Table, splits: Sequence[bytes]) -> Iterator[tuple[Any, Sequence[bytes]] | None]:
    """The Rust core's table on a local folder, and the splits with their files there.

    None if the core must read from the store itself, which also raises the errors.
    """
    followed = object_store_parts(table)
    frames = [] if followed is None else _small(table, splits)
    if not frames or followed is None:
        yield None
        return
    files, _ = followed
    with borrowed(files, table.root, table.schema) as folder:
        moved = [frame.moved(frame.folder.replace(table.root, folder.path, 1)) for frame in frames]
        places = {
            old: new
            for before, after in zip(frames, moved, strict=True)
            for old, new in zip(before.paths(), after.paths(), strict=True)
        }
        found = run_parallel([partial(_fetch, files, old, new) for old, new in places.items()])
        try:
            here = folder.open(table.schema), [frame.serialize() for frame in moved]
            yield here if all(found) else None
        finally:
            for there, path in zip(found, places.values(), strict=True):
                if there:
                    os.remove(path)


def _small(table: Table, splits: Sequence[bytes]) -> list[SplitFrame]:
    """The splits, if their files are few and small and have no others beside them, else none."""
    frames = [SplitFrame.parse(split) for split in splits]
    files = [file for frame in frames for file in frame.files]
    alone = all(
        not frame.vectors and frame.folder.startswith(f"{table.root}/") for frame in frames
    ) and all("/" not in file.name and file.schema_id == table.schema_id for file in files)
    few = len(files) <= _MOST_FILES and sum(file.size for file in files) <= _MOST_BYTES
    return frames if alone and few else []


def _fetch(files: ObjectFiles, path: str, place: str) -> bool:
    """Copy a file here; returns whether there is one."""
    content = files.read_bytes(path)
    if content is None:
        return False
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "wb") as file:
        file.write(content)
    return True


_LOG = logging.getLogger("streamhouse.storage")


def planned(
    table: Table, first: int, last: int, lists: Sequence[str], scan: Callable[[Any], Any]
) -> list[bytes] | None:
    """The serialised splits that the Rust core plans for the snapshots from `first` to `last`.

    `scan` gets the core's table, and returns its scan; it reads these `lists` of manifests of each
    snapshot. None if the core must plan by the store itself, which also raises the errors.
    """
    followed = object_store_parts(table)
    if followed is None:
        return None
    files, snapshots = followed
    texts, root, schema = snapshots.texts(first, last), table.root, table.schema
    if not texts:
        return None
    try:
        with borrowed(files, root, schema) as folder:
            folder.hold(texts, True, lists, snapshots.peer_folders)
            splits = scan(folder.open(schema)).plan().splits()
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
