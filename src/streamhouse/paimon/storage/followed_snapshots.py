"""The newest snapshots of a table in an object store, as a long-running reader or writer has them.

Each look at an object is a request. So what a process has read of the newest snapshots is kept, for
all of its threads, and the next look is one request: for the snapshot that would come next.

A snapshot file changes only if a table is rolled back or created again. Both are noticed within
`VERIFY_S`, by the ETag of the newest known snapshot; `verify` looks at once.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

from streamhouse.paimon.storage.lock import commit_stamp
from streamhouse.paimon.storage.object_files import ObjectFiles
from streamhouse.paimon.storage.rust_core import forget_metadata
from streamhouse.paimon.storage.snapshots import Snapshot, Snapshots, from_json

VERIFY_S = 2.0
_KEPT = 32


@dataclass
class _Known:
    """What this process knows of the snapshots below one root; `latest` 0: there are none."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    latest: int = 0
    tag: str | None = None
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    verified_at: float = float("-inf")
    probed_at: float = float("-inf")
    stamp: int = 0

    def forget(self) -> None:
        self.latest, self.tag = 0, None
        self.snapshots.clear()
        self.verified_at = self.probed_at = float("-inf")

    def add(self, snapshot: Snapshot, tag: str) -> None:
        self.snapshots[snapshot.id] = snapshot
        self.snapshots.pop(snapshot.id - _KEPT, None)
        if snapshot.id >= self.latest:
            self.latest, self.tag = snapshot.id, tag


_known: dict[tuple[object, ...], _Known] = {}


class FollowedSnapshots(Snapshots):
    """`Snapshots` of a table in an object store that are read again only if they may differ."""

    def __init__(self, files: ObjectFiles, location: str, root: str, name: str) -> None:
        super().__init__(files, root, name)
        self._objects = files
        self._location = location
        self._place = (files.store, root)

    @property
    def _known(self) -> _Known:
        # A process that was forked has its own.
        return _known.setdefault((os.getpid(), *self._place), _Known())

    def latest_id(self, within_s: float = 0.0) -> int | None:
        """The newest snapshot's id; None in an empty table.

        With `within_s` it may be that old, except that commits by processes of this machine are
        always seen.
        """
        known, now = self._known, time.monotonic()
        with known.lock:
            stamp = commit_stamp(self._location)
            if now - known.probed_at >= within_s or stamp != known.stamp:
                self._verify_if_due()
                while self._take(known.latest + 1):
                    pass
                known.probed_at, known.stamp = now, stamp
            return known.latest or None

    def find(self, snapshot_id: int) -> Snapshot | None:
        known = self._known
        with known.lock:
            self._verify_if_due()
            if snapshot_id <= known.latest - _KEPT:
                return super().find(snapshot_id)
            if snapshot_id not in known.snapshots:
                self._take(snapshot_id)
            return known.snapshots.get(snapshot_id)

    def note_commit(self, user: str, identifier: int) -> None:
        """Read the snapshots up to the one that this process has just committed."""
        known = self._known
        with known.lock:
            while self._take(known.latest + 1):
                newest = known.snapshots[known.latest]
                if (newest.commit_user, newest.commit_identifier) == (user, identifier):
                    return

    def await_named(self) -> None:
        """Does not wait: that would take more requests than listing the snapshots."""

    def verify(self) -> bool:
        with self._known.lock:
            self._known.verified_at = float("-inf")
            return self._verify_if_due()

    def _verify_if_due(self) -> bool:
        """False if the known snapshots were forgotten, since the newest one is not there as it was.

        An empty table is looked at anew.
        """
        known, now = self._known, time.monotonic()
        if now - known.verified_at < VERIFY_S:
            return True
        same = known.tag is not None and self._objects.tag(self._path(known.latest)) == known.tag
        replaced = known.tag is not None and not same
        if not same:
            known.forget()
            latest = super().latest_id()
            if latest is not None:
                self._take(latest)
        if replaced:
            forget_metadata()
        known.verified_at = now
        return not replaced

    def _take(self, snapshot_id: int) -> bool:
        """Read one snapshot, unless there is none; returns whether there is."""
        found = self._objects.read_tagged(self._path(snapshot_id))
        if found is None:
            return False
        try:
            snapshot: Snapshot | None = from_json(found[0])
        except (ValueError, KeyError, TypeError, AttributeError):
            # Raises the error of a damaged file.
            snapshot = super().find(snapshot_id)
        if snapshot is None:
            return False
        self._known.add(snapshot, found[1])
        return True
