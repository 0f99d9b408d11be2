"""The files of a folder, without the hidden ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streamhouse.connectors.filesystem.options import HIDDEN
from streamhouse.errors import OptionError


@dataclass(frozen=True, order=True)
class DataFile:
    """A file: its path below the folder (`day=1/a.json`; empty: the path is a file), its bytes."""

    name: str
    size: int


def data_files(path: str) -> list[DataFile]:
    """The files of a folder and of the folders in it, the oldest first; none if it is missing.

    Names that begin with `.` or `_` are hidden, as by Hive and Spark, with all that is below them.
    """
    root = Path(path)
    if root.is_file():
        return [DataFile("", root.stat().st_size)]
    if root.exists() and not root.is_dir():
        raise OptionError(f"option 'path': {path} is neither a folder nor a file")
    found = []
    for entry, name in _entries(path, ""):
        try:
            facts = entry.stat()
        except FileNotFoundError:
            continue
        found.append((facts.st_mtime_ns, DataFile(name, facts.st_size)))
    return [file for _, file in sorted(found)]


def _entries(folder: str, below: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(HIDDEN):
                    continue
                name = f"{below}{entry.name}"
                if entry.is_dir():
                    yield from _entries(entry.path, f"{name}/")
                elif entry.is_file():
                    yield entry, name
    except FileNotFoundError:
        return
