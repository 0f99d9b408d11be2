"""The newest snapshots of a table in an object store, as a long-running reader or writer has them.

Each read of an object is a request. So a process caches what it has read of the newest snapshots,
for all of its threads, and the next probe is one request: for the snapshot that would come next.
After a commit, a process publishes a notice (`storage.lock.publish_commit`), from which the other
processes of its machine take the new snapshot without a request.

A snapshot file changes only if a table is rolled back or created again. Both are noticed within
`VERIFY_S`, by the ETag of the newest known snapshot; `verify` checks at once.
"""

import hashlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streamhouse.paimon.storage.lock import commit_notice, commit_stamp, publish_commit
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.parallel import run_parallel
from streamhouse.paimon.storage.snapshots import Snapshot, Snapshots, from_json

VERIFY_S = 2.0
NOTIFIED_S = 0.5
"""How long a notice of this machine counts as a probe of the store: other machines rarely write a
table that this machine writes all the time."""
_KEPT = 32
_PEERS = 4
_SHARED = 16
"""How many of the newest snapshots a notice has."""


class _File(NamedTuple):
    """A snapshot, the text of its file, and the ETag."""

    snapshot: Snapshot
    text: str
    etag: str


@dataclass
class _Known:
    """The cached snapshots below one root; `latest` 0: there are none.

    `stamp` is that of the last notice.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    latest: int = 0
    files: dict[int, _File] = field(default_factory=dict)
    verified_at: float = float("-inf")
    probed_at: float = float("-inf")
    notified_at: float = float("-inf")
    stamp: int | None = 0
    replacements: int = 0
    peer_folders: tuple[str, ...] = ()
    """Folders of this machine from which snapshots were committed (`storage.metadata_mirror`), the
    last one first."""

    @property
    def etag(self) -> str | None:
        """The ETag of the newest snapshot."""
        return self.files[self.latest].etag if self.latest in self.files else None

    def forget(self) -> None:
        self.latest = 0
        self.files.clear()
        self.verified_at = self.probed_at = self.notified_at = float("-inf")

    def add(self, snapshot: Snapshot, text: str, etag: str) -> None:
        self.files[snapshot.id] = _File(snapshot, text, etag)
        self.files.pop(snapshot.id - _KEPT, None)
        self.latest = max(self.latest, snapshot.id)

    def add_peers(self, *folders: str) -> None:
        kept = dict.fromkeys((*folders, *self.peer_folders))
        self.peer_folders = tuple(kept)[:_PEERS]

    def has_probed(self, within_s: float, stamp: int | None) -> bool:
        """Whether the last probe is recent enough, and this machine has not committed since."""
        now = time.monotonic()
        notified = within_s > 0 and now - self.notified_at < NOTIFIED_S
        return (
            stamp is not None
            and stamp == self.stamp
            and (notified or now - self.probed_at < within_s)
        )


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

        With `within_s` it may be that old (`NOTIFIED_S` after a commit of this machine), except
        that commits by processes of this machine are always seen.
        """
        known, now = self._known, time.monotonic()
        with known.lock:
            stamp = commit_stamp(self._location)
            if not known.has_probed(within_s, stamp):
                notified = stamp is not None and stamp != known.stamp and self._apply_notice(stamp)
                if self._verify_if_due() and notified and within_s:
                    known.notified_at = now
                else:
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
            if snapshot_id not in known.files and not self._take(snapshot_id):
                return None
            return known.files[snapshot_id].snapshot

    @property
    def replacements(self) -> int:
        return self._known.replacements

    def add_commit(self, text: str, etag: str, folder: str) -> None:
        """Add the snapshot that this process has just committed on top of the newest one.

        `folder` has its metadata. The notice to other processes is written when the lock ends.
        """
        known, snapshot = self._known, from_json(text)
        with known.lock:
            known.add(snapshot, text, etag)
            known.verified_at = time.monotonic()
            known.add_peers(folder)
            first = snapshot.id - _SHARED
            notice = {
                "of": self._digest,
                "id": snapshot.id,
                "tags": {number: file.etag for number, file in known.files.items()},
                "texts": {n: file.text for n, file in known.files.items() if n > first},
                "folders": known.peer_folders,
            }
        publish_commit(self._location, notice)

    @property
    def peer_folders(self) -> Sequence[str]:
        """Folders of this machine that have metadata of the newest snapshots, if any is known."""
        return self._known.peer_folders

    def _apply_notice(self, stamp: int) -> bool:
        """Add the snapshots that another process of this machine has just committed.

        Returns whether the newest known one is now the one that it has committed last.
        """
        known, notice = self._known, commit_notice(self._location, stamp)
        if notice is None or notice.get("of") != self._digest:
            return False
        newest, etags, texts = int(notice["id"]), notice["tags"], notice.get("texts", {})
        # It has committed on top of what is known here, unless the ETags differ.
        if known.latest > newest or etags.get(str(known.latest), "") != known.etag:
            return False
        missing = [str(number) for number in range(known.latest + 1, newest + 1)]
        if not texts.keys() >= set(missing):
            return False
        for number in missing:
            known.add(from_json(texts[number]), texts[number], etags[number])
        known.add_peers(*notice.get("folders", ()))
        age = max(0, time.time_ns() - stamp) / 1e9
        known.verified_at = max(known.verified_at, time.monotonic() - age)
        return True

    @property
    def _digest(self) -> str:
        """Identifies the store and the root for other processes; branches share their lock."""
        (_, *store), root = self._place
        return hashlib.sha256(repr((store, root)).encode()).hexdigest()

    def etag(self, number: int) -> str | None:
        """The ETag of a snapshot, if it is known."""
        file = self._known.files.get(number)
        return None if file is None else file.etag

    def texts(self, first: int, last: int) -> list[str] | None:
        """The files of some snapshots, oldest first; None if not all of them are kept here."""
        known = self._known
        with known.lock:
            numbers = range(first, last + 1)
            if not known.files.keys() >= set(numbers):
                return None
            return [known.files[number].text for number in numbers]

    def verify(self) -> bool:
        """As `Snapshots.verify`; it probes for newer snapshots at the same time."""
        known = self._known
        with known.lock:
            stamp = commit_stamp(self._location)
            if stamp:
                self._apply_notice(stamp)
            if known.etag is None:
                known.verified_at = float("-inf")
                return self._verify_if_due()
            number = known.latest
            etag, following = run_parallel(
                [
                    lambda: self._objects.etag(self._path(number)),
                    lambda: self._objects.read(self._path(number + 1)),
                ]
            )
            if not self._checked(etag):
                return False
            if self._add(number + 1, following):
                while self._take(known.latest + 1):
                    pass
            known.probed_at, known.stamp = time.monotonic(), stamp
            return True

    def _verify_if_due(self) -> bool:
        """False if the known snapshots were forgotten, since the newest one is not there as it was.

        An empty table is probed again.
        """
        known = self._known
        if time.monotonic() - known.verified_at < VERIFY_S:
            return True
        return self._checked(
            None if known.etag is None else self._objects.etag(self._path(known.latest))
        )

    def _checked(self, etag: str | None) -> bool:
        """Whether the newest known snapshot has this ETag; if not, reads the newest one again."""
        known, now = self._known, time.monotonic()
        same = known.etag is not None and etag == known.etag
        replaced = known.etag is not None and not same
        if not same:
            known.forget()
            latest = super().latest_id()
            if latest is not None:
                self._take(latest)
        known.replacements += replaced
        known.verified_at = now
        return not replaced

    def _take(self, snapshot_id: int) -> bool:
        """Read one snapshot, unless there is none; returns whether there is."""
        return self._add(snapshot_id, self._objects.read(self._path(snapshot_id)))

    def _add(self, snapshot_id: int, found: tuple[str, str] | None) -> bool:
        """Add a snapshot whose file has this text and ETag; returns whether there is one."""
        if found is None:
            return False
        try:
            snapshot: Snapshot | None = from_json(found[0])
        except (ValueError, KeyError, TypeError, AttributeError):
            # Raises the error of a damaged file.
            snapshot = super().find(snapshot_id)
        if snapshot is None:
            return False
        self._known.add(snapshot, *found)
        return True
