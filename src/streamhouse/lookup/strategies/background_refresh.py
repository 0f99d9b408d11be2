"""Double-buffered dimension: loads the next version in the background.

So a batch need not wait while a table is read again. The offset of a batch alone determines which
version it joins. Whether a version is loaded, not yet loaded, or failed to load affects only how
long the batch takes.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from streamhouse.lookup.partitions import Partition
from streamhouse.lookup.strategies.full import FullDimension
from streamhouse.lookup.strategies.table_dimension import TableDimension

log = logging.getLogger("streamhouse.lookup")

Pinned: TypeAlias = tuple[int, Sequence[Partition] | None]
"""The version that a batch joins: a snapshot (0: before the first) and partitions (None: all)."""


@dataclass(frozen=True)
class Successor:
    """A dimension that `load` prepares for a version.

    `awaited`: a batch waits for it, as the current dimension is not faster.
    """

    version: Pinned
    dimension: FullDimension
    load: Future[None]
    awaited: bool

    def result(self) -> FullDimension | None:
        """The dimension, which the caller must close; None if the load failed. Waits for it."""
        error = self.load.exception()
        if error is None:
            return self.dimension
        # The batch that joins this version loads it itself, and fails with the reason.
        log.info("a dimension could not be loaded in the background: %s", error)
        return None


class DoubleBufferedDimension:
    """The dimension of one lookup in one process, and its next version; executors. Not thread-safe.

    With `merge_early`, a full cache that has applied many changes merges them in the background
    before a batch would have to wait for that.
    """

    def __init__(self, dimension: TableDimension, merge_early: bool = False) -> None:
        self.current = dimension
        self._merge_early = merge_early
        self._part: tuple[int, int] | None = None
        self._successor: Successor | None = None
        self._threads = ThreadPoolExecutor(1, "streamhouse-lookup")

    def at(self, version: Pinned, next_version: Pinned | None = None) -> None:
        """Switch to a batch's version; start loading `next_version`, which a later batch joins."""
        successor = self._successor
        # A load that still runs, and that no batch waits for, is not stopped.
        if successor is not None and successor.version != next_version:
            done = successor.load.done()
            if successor.version[0] <= version[0] and (done or successor.awaited):
                self._take_over(successor)
            elif done:
                self._drop_successor()
        snapshot, chosen = version
        self.current.at(snapshot or None, chosen)
        if self._successor is None:
            self._prepare(version, next_version)

    def loaded(self, next_version: Pinned) -> bool:
        """Whether a batch that joins `next_version` need not wait for it in this process."""
        successor = self._successor
        if not isinstance(self.current, FullDimension):
            # It loads nothing in advance.
            return True
        return successor is not None and successor.version == next_version and successor.load.done()

    def take(self, task: int, count: int) -> None:
        """With a bucket shuffle, use the buckets of one task of `count`."""
        self._part = task, count
        self.current.take(task, count)

    def close(self) -> None:
        """Close both dimensions; waits for the end of a load."""
        self._drop_successor()
        self._threads.shutdown()
        self.current.close()

    def _take_over(self, successor: Successor) -> None:
        """Switch to the successor, whose load may still have to end."""
        self._successor, newer = None, successor.result()
        if newer is not None:
            self.current.close()
            self.current = newer
            if self._part is not None:
                # The successor has loaded the parts of all tasks, and the last one is selected.
                self.take(*self._part)

    def _drop_successor(self) -> None:
        successor, self._successor = self._successor, None
        dimension = None if successor is None else successor.result()
        if dimension is not None:
            dimension.close()

    def _prepare(self, version: Pinned, next_version: Pinned | None) -> None:
        """Start to load the next version, or to merge many changes of the present one."""
        current = self.current
        if not isinstance(current, FullDimension):
            return
        if next_version is not None:
            dimension, (snapshot, chosen) = current.next_version(), next_version
            load = self._threads.submit(dimension.at, snapshot or None, chosen)
            self._successor = Successor(next_version, dimension, load, True)
        elif self._merge_early and current.should_merge:
            dimension = current.copied()
            load = self._threads.submit(dimension.merge)
            self._successor = Successor(version, dimension, load, False)
