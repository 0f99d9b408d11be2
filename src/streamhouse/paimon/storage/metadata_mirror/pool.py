"""Folders with metadata that a process keeps for its next use of the same table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamhouse.paimon.storage.metadata_mirror.folder import MirrorFolder
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles

_free: dict[tuple[object, ...], list[MirrorFolder]] = {}


@contextmanager
def borrowed(files: ObjectFiles, root: str, schema: Mapping[str, Any]) -> Iterator[MirrorFolder]:
    """A folder of the table for the block alone; removed if the block raises."""
    free = _free.setdefault((os.getpid(), *files.requests.store, root, schema["id"]), [])
    try:
        folder = free.pop()
    except IndexError:
        folder = MirrorFolder(files, root, schema)
    try:
        yield folder
    except BaseException:
        folder.remove()
        raise
    free.append(folder)
