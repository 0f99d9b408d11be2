"""Small files that are replaced atomically and then survive a power failure, and file locks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


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


def replace_json(path: Path, value: object) -> None:
    """Write or replace a file that `read_json` reads, and make its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(value))


def read_json(path: Path) -> Any:
    """The value in a file; None if there is no file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def locked(path: Path | str, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file or folder that exists; the system releases it if the process dies.

    Without `wait` it gives False if another process or thread has the lock.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        is_held = True
    except BlockingIOError:
        is_held = False
    try:
        yield is_held
    finally:
        os.close(handle)


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
