"""Locks between the processes that write a warehouse: for commits, and for CREATE and DROP."""

import hashlib
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from streamhouse.durable_files import locked, replace_text
from streamhouse.errors import CommitConflictError, StreamhouseError
from streamhouse.paimon.storage import jdbc_lock
from streamhouse.paimon.storage.files import is_local, local_path, options_of
from streamhouse.sql.options.store_options import is_object_store

_LOG = logging.getLogger("streamhouse.storage")
LOCK_WAIT_S = 60.0
_SHORT_S = 5.0
"""A quarter of the time after which another machine may take the lock over."""
_COMMIT, _CREATION = ".commit-lock", ".creation-lock"


class _Thread(threading.local):
    """The locks that a thread holds, and the notices of its commits, by the paths of the locks."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.notices: dict[str, Mapping[str, Any]] = {}


_thread = _Thread()


@contextmanager
def commit_lock(location: str, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the commit lock of the table at `location` (its root, not a branch's).

    Paimon's Rust and Java cores check that the next snapshot does not exist and then rename their
    file to it. So on a plain file system the later of two concurrent commits replaces the earlier.
    Every commit, of rows or of a compaction, must hold this lock. The lock ends with the process.
    A thread that holds it may take it again. Raises `CommitConflictError` after `wait_s` seconds.

    After a commit that was published (`publish_commit`), the lock between machines ends in the
    background, and that of this machine with it.
    """
    path = _lock_path(location, _COMMIT)
    if path in _thread.held:
        yield
        return
    activity = f"committing to the table at {location}"
    with ExitStack() as locks:
        locks.enter_context(_locked(path, wait_s, activity))
        began = time.monotonic()
        is_object = locks.enter_context(_between_machines(location, _COMMIT, wait_s, activity))
        _thread.held.append(path)
        try:
            yield
        finally:
            _thread.held.remove(path)
            short = time.monotonic() - began < _SHORT_S
            if _stamp(location, path) and short and is_object:
                # No one takes over a lock so early, and the snapshot was written on condition that
                # its number was free.
                _release_later(locks.pop_all())


def _release_later(locks: ExitStack) -> None:
    """Release locks in the background."""
    from streamhouse.paimon.storage.object_store.parallel import submit

    def release() -> None:
        try:
            locks.close()
        except StreamhouseError as error:
            _LOG.warning("a lock was lost before it was released: %s", error)

    submit(release)


def commit_stamp(location: str) -> int | None:
    """A number that changes when a process of this machine has committed to a remote table.

    None if that cannot be known, since the lock's file is another user's.
    """
    try:
        found = os.stat(_lock_path(location, _COMMIT))
    except FileNotFoundError:
        return 0
    return found.st_mtime_ns if found.st_uid == os.getuid() else None


def publish_commit(location: str, notice: Mapping[str, Any]) -> None:
    """Publish a notice about a commit to other processes of this machine; the lock is held.

    It is written to a file beside the lock's when the lock ends.
    """
    _thread.notices[_lock_path(location, _COMMIT)] = notice


def commit_notice(location: str, stamp: int) -> Mapping[str, Any] | None:
    """The notice of the commit that has set this stamp; None without one, or of another user."""
    try:
        with open(f"{_lock_path(location, _COMMIT)}.news", encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            notice: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    return notice if notice.get("stamp") == stamp else None


def _stamp(location: str, path: str) -> bool:
    """Let other processes of this machine notice a commit; returns whether it was published."""
    notice, now = _thread.notices.pop(path, None), time.time_ns()
    if is_local(location):
        return False
    # The files may be another user's. Then readers look for snapshots without a notice.
    with suppress(PermissionError):
        if notice is not None:
            text = json.dumps({**notice, "stamp": now})
            replace_text(Path(f"{path}.news"), text, durable=False)
        os.utime(path, ns=(now, now))
    return notice is not None


@contextmanager
def creation_lock(warehouse: str, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the lock for creating and dropping databases, tables and views of a warehouse.

    The catalog checks that there is no schema file and then renames its own to that path. So one of
    two concurrent creations fails, or replaces the schema of the other. Not re-entrant. Raises
    `CommitConflictError` after `wait_s` seconds.
    """
    activity = f"creating a table of the warehouse {warehouse}"
    with (
        _locked(_lock_path(warehouse, _CREATION), wait_s, activity),
        _between_machines(warehouse, _CREATION, wait_s, activity),
    ):
        yield


def _between_machines(
    location: str, name: str, wait_s: float, activity: str
) -> AbstractContextManager[bool | None]:
    """The lock between machines, if the catalog or the store has one; True if that is an object.

       Local processes queue first.
    A JDBC catalog's lock is for commits to tables.
    """
    options = options_of(local_path(location) if is_local(location) else location)
    jdbc = name == _COMMIT and jdbc_lock.is_enabled(options)
    if not jdbc and is_object_store(location):
        from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
        from streamhouse.paimon.storage.object_store.object_lock import object_lock

        objects = ObjectFiles(location, options)
        if objects.has_conditions:
            path = f"{location.rstrip('/')}/{name}"
            return object_lock(objects, path, wait_s, activity)
    return jdbc_lock.jdbc_lock(options, location, wait_s, activity) if jdbc else nullcontext()


@contextmanager
def _locked(path: str, wait_s: float, activity: str) -> Iterator[None]:
    """Hold the lock of the processes of this machine, which ends when its file is closed."""
    with locked(path, wait_s, create=True) as is_held:
        if not is_held:
            raise CommitConflictError(
                f"another process has been {activity} for more than {wait_s:g} s (it holds "
                f"{path}); end it and try again"
            )
        yield


def _lock_path(location: str, name: str) -> str:
    if is_local(location):
        return os.path.join(local_path(location), name)
    # The location alone identifies the lock, since no table is at the root of a warehouse.
    digest = hashlib.sha256(location.encode()).hexdigest()[:32]
    return os.path.join(tempfile.gettempdir(), f"streamhouse-{digest}.lock")
