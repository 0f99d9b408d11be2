"""A lock between machines: an object that a store creates only if it does not exist.

The object names its holder, who writes it again every few seconds. If a waiter sees the same
object for `LEASE_S` seconds by its own clock, the holder is dead, and the waiter replaces it on
condition that it is still the same. Clocks of different machines are never compared.
"""

import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from streamhouse.background import RepeatedStep
from streamhouse.errors import CommitConflictError, StreamhouseError
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles

_LOG = logging.getLogger("streamhouse.storage")
LEASE_S = 20.0
_RENEW_S = 5.0
_POLL_S, _MAX_POLL_S = 0.02, 0.5

_conditional: dict[tuple[int, str], bool] = {}


@contextmanager
def object_lock(
    objects: ObjectFiles,
    path: str,
    wait_s: float,
    activity: str,
) -> Iterator[bool]:
    """Hold the lock object at `path`; `CommitConflictError` after `wait_s` seconds.

    Not re-entrant, also not between threads. Raises `StreamhouseError` at the end of the block if
    the lock was lost meanwhile, since the process was stopped for longer than the lease.
    """
    holder = json.dumps(
        {"id": uuid.uuid4().hex, "host": socket.gethostname(), "process": os.getpid()}
    )
    etag = _acquired(objects, path, holder, wait_s, activity)
    held = _HeldObject(objects, path, holder, etag)
    try:
        yield True
    finally:
        kept = held.release()
    if not kept:
        # No conflict: what retries after a conflict would do again what may have been done.
        raise StreamhouseError(
            f"while {activity} this process was stopped for so long that another took the lock "
            f"{path}; check whether its last commit is there before you run it again"
        )


def _acquired(objects: ObjectFiles, path: str, holder: str, wait_s: float, activity: str) -> str:
    """Create the lock object, or take over that of a dead holder; returns its ETag."""
    now = time.monotonic()
    deadline, pause = now + wait_s, _POLL_S
    seen: tuple[str, float] | None = None
    while True:
        etag = objects.create(path, holder)
        if etag is not None:
            _check_conditional(objects, path, holder)
            return etag
        current, now = objects.read(path), time.monotonic()
        if current is None:
            continue
        text, current_etag = current
        if text == holder:
            # The answer to our request was lost, and the client had sent it again.
            return current_etag
        if seen is None or seen[0] != current_etag:
            seen = (current_etag, now)
        elif now - seen[1] > LEASE_S:
            etag = objects.replace(path, holder, current_etag)
            if etag is not None:
                return etag
        if now > deadline:
            raise CommitConflictError(
                f"another process has been {activity} for more than {wait_s:g} s ({_named(text)} "
                f"holds {path}); end it and try again"
            )
        time.sleep(pause)
        pause = min(2 * pause, _MAX_POLL_S)


def _renewed(holder: str) -> str:
    """A new text, and so a new ETag, for the lock object of a holder."""
    return json.dumps({**json.loads(holder), "renewed": uuid.uuid4().hex[:8]})


def _check_conditional(objects: ObjectFiles, path: str, holder: str) -> None:
    """Raise `StreamhouseError` if the store ignores conditions of writes; once per bucket."""
    bucket = path.split("/", 3)[2]
    key = (os.getpid(), bucket)
    if key not in _conditional:
        _conditional[key] = objects.create(path, holder) is None
    if not _conditional[key]:
        objects.delete_object(path)
        raise StreamhouseError(
            f"the store of the bucket '{bucket}' ignores If-None-Match, so commits of two machines "
            "could overwrite each other; if only this machine writes to the warehouse, set the "
            "option 's3.conditional-writes' to 'false'"
        )


def _named(text: str) -> str:
    try:
        holder = json.loads(text)
        return f"process {holder['process']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown process"


class _HeldObject:
    """A lock that this process holds, and the thread that renews it if it is held for long."""

    def __init__(self, objects: ObjectFiles, path: str, holder: str, etag: str) -> None:
        self._objects, self._path, self._holder = objects, path, holder
        self._etag: str | None = etag
        self._renewed = time.monotonic()
        self._renewal = RepeatedStep(self._renew, "streamhouse-lock", _RENEW_S)

    def release(self) -> bool:
        """Delete the lock object; returns whether it was held without interruption."""
        self._renewal.stop()
        fresh = time.monotonic() - self._renewed < LEASE_S
        try:
            if self._etag is None or not (fresh or self._still_ours()):
                return False
            return self._objects.delete_object(self._path, self._etag) or (
                self._still_ours() and self._objects.delete_object(self._path, self._etag)
            )
        except StreamhouseError as error:
            _LOG.warning("the lock %s stays until its lease ends: %s", self._path, error)
        return True

    def _still_ours(self) -> bool:
        """Write the lock object again; returns whether it was still ours."""
        if self._etag is None:
            return False
        etag = self._objects.replace(self._path, _renewed(self._holder), self._etag)
        if etag is None:
            # An earlier request of ours may have been done although its answer was lost.
            current = self._objects.read(self._path)
            etag = current[1] if current is not None and self._is_own(current[0]) else None
        self._etag = etag
        return etag is not None

    def _is_own(self, text: str) -> bool:
        try:
            return bool(json.loads(text)["id"] == json.loads(self._holder)["id"])
        except (ValueError, KeyError, TypeError):
            return False

    def _renew(self) -> float:
        try:
            if self._still_ours():
                self._renewed = time.monotonic()
        except StreamhouseError as error:
            _LOG.info("the lock %s was not renewed: %s", self._path, error)
        return _RENEW_S
