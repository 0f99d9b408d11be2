"""Plans, and reads of few small files, of a followed table in an object store: by local copies.

The Rust core takes two requests for each, one file after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamhouse.paimon.storage.metadata_mirror.folder import borrowed, object_store_parts
from streamhouse.paimon.storage.rust_core import ERRORS
from streamhouse.paimon.storage.split_files import SplitFrame

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_LOG = logging.getLogger("streamhouse.storage")
_MOST_BYTES = 8 << 20
_MOST_FILES = 32


@contextmanager
def fetched(table: Table, splits: Sequence[bytes]) -> Iterator[tuple[Any, Sequence[bytes]]]:
    """The Rust core's table on a local folder, and the splits with their files there.

    The table and the splits themselves if the core must read from the store, which also raises the
    errors.
    """
    frames = [] if object_store_parts(table) is None else _small(table, splits)
    if not frames:
        yield table.rust, splits
        return
    with borrowed(table) as folder:
        root = f"{table.root}/"
        paths = {path.removeprefix(root) for frame in frames for path in frame.paths()}
        moved = [frame.moved(table.root, folder.path) for frame in frames]
        try:
            folder.fetch(sorted(paths))
        except FileNotFoundError:
            folder.remove()
            yield table.rust, splits
            return
        try:
            yield folder.open(table.schema), [frame.serialize() for frame in moved]
        finally:
            folder.delete(sorted(paths))


def _small(table: Table, splits: Sequence[bytes]) -> list[SplitFrame]:
    """The splits, if their files are few and small and have no others beside them, else none."""
    frames = [SplitFrame.parse(split) for split in splits]
    files = [file for frame in frames for file in frame.files]
    alone = all(
        not frame.vectors and frame.folder.startswith(f"{table.root}/") for frame in frames
    ) and all("/" not in file.name and file.schema_id == table.schema_id for file in files)
    few = len(files) <= _MOST_FILES and sum(file.size for file in files) <= _MOST_BYTES
    return frames if alone and few else []


def planned(
    table: Table, first: int, last: int, lists: Sequence[str], scan: Callable[[Any], Any]
) -> list[bytes] | None:
    """The serialised splits that the Rust core plans for the snapshots from `first` to `last`.

    `scan` gets the core's table, and returns its scan; it reads these `lists` of manifests of each
    snapshot. None if the core must plan by the store itself, which also raises the errors.
    """
    parts, root = object_store_parts(table), table.root
    if parts is None or not parts[1].texts(first, last):
        return None
    try:
        with borrowed(table) as folder:
            if not folder.hold(first, last, lists=lists):
                return None
            splits = scan(folder.open(table.schema)).plan().splits()
            frames = [SplitFrame.parse(split.serialize()) for split in splits]
            if any(frame.vectors for frame in frames):
                # They have the paths of deletion vectors.
                return None
            return [frame.moved(folder.path, root).serialize() for frame in frames]
    except ERRORS as error:
        _LOG.info("%s: the core plans by the store itself: %s", root, error)
        return None
