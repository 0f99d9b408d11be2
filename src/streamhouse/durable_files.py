"""Small files that are replaced atomically, and survive a power failure after that."""

from __future__ import annotations

import os
from pathlib import Path


def replace_text(path: Path, text: str, durable: bool = True) -> None:
    """Write a file, or replace it: other processes read the old text or the new, never a part.

    If it need not be `durable`, it may be damaged after a power failure.
    """
    partial = path.with_name(f".{path.name}.part")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    partial.replace(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files durable."""
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Make the content of a file durable that another process has written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
