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
    """A file as it was listed.

    `name`: its path below the folder (`day=1/a.json`; empty: the path is a file); `size` in bytes;
    `modified_ms`: when it was written (epoch ms), None in offsets of earlier versions.
    """

    name: str
    size: int
    modified_ms: int | None = None


def data_files(path: str) -> list[DataFile]:
    """The files of a folder and of the folders in it, the oldest first; none if it is missing.

    Names that begin with `.` or `_` are hidden, as by Hive and Spark, with all that is below them.
    """
    root = Path(path)
    if root.is_file():
        return [_data_file("", root.stat())]
    if root.exists() and not root.is_dir():
        raise OptionError(f"option 'path': {path} is neither a folder nor a file")
    found = []
    for entry, name in _entries(path, ""):
        try:
            facts = entry.stat()
        except FileNotFoundError:
            continue
        found.append((facts.st_mtime_ns, _data_file(name, facts)))
    return [file for _, file in sorted(found)]


def _data_file(name: str, facts: os.stat_result) -> DataFile:
    return DataFile(name, facts.st_size, facts.st_mtime_ns // 1_000_000)


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
