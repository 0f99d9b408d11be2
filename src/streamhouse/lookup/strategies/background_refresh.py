"""A dimension that is joined, and beside it the one that is to take its place, loaded by a thread.

So a batch need not wait where a table must be read anew. Which version a batch joins is in its
offset and nowhere else: what is loaded, or not yet, or in vain, decides only how long it takes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from streamhouse.lookup.dimension import Dimension
from streamhouse.lookup.partitions import Partition
from streamhouse.lookup.strategies.bucket import BucketDimension
from streamhouse.lookup.strategies.full import FullDimension

log = logging.getLogger("streamhouse.lookup")

Pinned: TypeAlias = tuple[int, Sequence[Partition] | None]
"""What a batch joins: a snapshot (0: before the first), and its partitions (None: all)."""


class Loading:
    """A dimension that a thread takes to `version` by `load`, once."""

    def __init__(self, version: Pinned, load: Callable[[], Dimension], hurry: bool) -> None:
        """`hurry`: nothing that is there gets to the version any faster."""
        self.version, self.hurry = version, hurry
        self._load = load
        self._loaded: Dimension | None = None
        self._thread = threading.Thread(target=self._run, name="streamhouse-lookup", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether nothing is left to wait for; so too if it failed: a batch will say why."""
        return not self._thread.is_alive()

    def result(self) -> Dimension | None:
        """What was loaded, the caller's from now on; None if that failed. Waits for the end."""
        self._thread.join()
        loaded, self._loaded = self._loaded, None
        return loaded

    def _run(self) -> None:
        try:
            self._loaded = self._load()
        except Exception as error:  # noqa: BLE001
            # The batch that joins this version reads it itself, and fails with the reason.
            log.info("a dimension could not be loaded beside: %s", error)


class Succession:
    """The dimension of one lookup in one process, and its heir; executors. Not thread-safe.

    With `early` a full cache that has taken in many changes is read anew beside, before it must
    be.
    """

    def __init__(self, dimension: Dimension, early: bool = False) -> None:
        self.current = dimension
        self._early = early
        self._part: tuple[int, int] | None = None
        self._heir: Loading | None = None

    def at(self, version: Pinned, coming: Pinned | None = None) -> None:
        """Go to the version of a batch; begin to load the one that a later batch will join."""
        self._take_over(version, coming)
        snapshot, chosen = version
        self.current.at(snapshot or None, chosen)
        self._forget(coming)
        if self._heir is None:
            if coming is not None:
                self._load(coming, True)
            elif self._early and isinstance(self.current, FullDimension) and self.current.worn:
                self._load(version, False)

    def loaded(self, coming: Pinned) -> bool:
        """Whether a batch that joins `coming` need not wait for it here."""
        if not isinstance(self.current, FullDimension | BucketDimension):
            return True
        return self._heir is not None and self._heir.version == coming and self._heir.done

    def take(self, task: int, count: int) -> None:
        """Where buckets are spread over tasks, hold those of one of `count`."""
        self._part = task, count
        if isinstance(self.current, BucketDimension):
            self.current.take(task, count)

    def close(self) -> None:
        """Free what both hold; waits for the end of a load."""
        self._drop_heir()
        self.current.close()

    def _take_over(self, version: Pinned, coming: Pinned | None) -> None:
        """Go on with the heir, if it is of this version or gets there from an older one."""
        heir = self._heir
        if heir is None or heir.version == coming or heir.version[0] > version[0]:
            return
        if not heir.done and not heir.hurry:
            return
        self._heir, newer = None, heir.result()
        if newer is not None:
            self.current.close()
            self.current = newer
            if self._part is not None:
                # The heir has read the parts of all tasks, the last of them last.
                self.take(*self._part)

    def _forget(self, coming: Pinned | None) -> None:
        """Let go of an heir that nobody waits for; one that is loaded is not stopped."""
        heir = self._heir
        if heir is not None and heir.version != coming and heir.done:
            self._drop_heir()

    def _drop_heir(self) -> None:
        heir, self._heir = self._heir, None
        found = None if heir is None else heir.result()
        if found is not None:
            found.close()

    def _load(self, version: Pinned, hurry: bool) -> None:
        if not isinstance(self.current, FullDimension | BucketDimension):
            return
        heir = self.current.successor()

        def load() -> Dimension:
            heir.at(*version)
            if isinstance(heir, BucketDimension):
                heir.fill()
            return heir

        self._heir = Loading(version, load, hurry)
