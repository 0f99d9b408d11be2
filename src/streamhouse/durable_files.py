"""Small files that are replaced atomically and then survive a power failure, and file locks."""

import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

_POLL_S = 0.001


def replace_text(path: Path, text: str, durable: bool = True, mode: int = 0o666) -> None:
    """Write a file, or replace it: other processes read the old text or the new, never a part.

    If it need not be `durable`, it may be damaged after a power failure. `mode`: its permissions,
    less those of the umask.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    try:
        with open(part, "x", encoding="utf-8", opener=partial(os.open, mode=mode)) as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    if durable:
        fsync(path.parent)


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
def locked(path: Path | str, wait_s: float | None = None, create: bool = False) -> Iterator[bool]:
    """Hold the lock of a file or folder; the system releases it if the process dies.

    It gives False if another process or thread has the lock for `wait_s` seconds (None: it waits
    without an end). `create`: the path is a file, which is created if there is none.
    """
    flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
    handle = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield _locked(handle, wait_s)
    finally:
        os.close(handle)


def _locked(handle: int, wait_s: float | None) -> bool:
    if wait_s is None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return True
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)


def fsync(path: Path) -> None:
    """Make durable the content of a file, or the names of a folder's files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
