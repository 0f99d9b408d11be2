"""A file of a table, as a listing of its folder shows it."""

from __future__ import annotations

from dataclasses import dataclass

from streamhouse.connectors.filesystem.options import HIDDEN


@dataclass(frozen=True, order=True)
class DataFile:
    """A file as it was listed.

    `name`: its path below the folder (`day=1/a.json`; empty: the path is a file); `size` in bytes;
    `modified_ms`: when it was written (epoch ms), None in offsets of earlier versions.
    """

    name: str
    size: int
    modified_ms: int | None = None


def is_hidden(name: str) -> bool:
    """Whether readers skip a file or folder of this name, as Hive and Spark do."""
    return name.startswith(HIDDEN)


def is_hidden_folder(name: str) -> bool:
    """The same of a folder; that of a partition (`_day=1`) is read."""
    return is_hidden(name) and "=" not in name
