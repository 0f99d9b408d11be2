"""How full level 0 of tables is: queries fill it, compaction empties it, and queries wait for it.

Each file of level 0 makes every read of its bucket slower. Where commits come faster than
compaction can take them, Paimon's own writers wait (`num-sorted-run.stop-trigger`); so do queries,
before they plan their next batch: it then holds more rows, and the table as many files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

LONGEST_WAIT_S = 3.0
"""A query goes on after so long, since compaction may be slow, or may not get its turn."""
PATIENCE_S = 9.0
"""And so long in all for one compaction: one that is starved must not slow the stream down."""
_STEP_S = 0.05
_UNKNOWN_LIMIT = 8


@dataclass
class _Level0:
    """What was added to one table since its last compaction: when, and how many files a bucket."""

    limit: int | None = _UNKNOWN_LIMIT
    added: list[tuple[float, int]] = field(default_factory=list)
    most_at_once: int = 1
    waited: float = 0.0


class Pressure:
    """Counts the level-0 files of tables with a key; safe between threads.

    A count is of the fullest bucket, and an upper bound: `added` says at most how many files a
    commit puts into one bucket, and `compacted` that those of commits before a moment have gone.
    """

    def __init__(self) -> None:
        self._tables: dict[str, _Level0] = {}
        self._changed = threading.Condition()
        self._ended = False

    def limit(self, table: str, files: int | None) -> None:
        """How many files a bucket may have before its writers wait; None: any number."""
        with self._changed:
            self._of(table).limit = files
            self._changed.notify_all()

    def added(self, table: str, files: int) -> None:
        """A commit was made that put up to `files` files into a bucket."""
        if files > 0:
            with self._changed:
                one = self._of(table)
                one.added.append((time.monotonic(), files))
                one.most_at_once = max(one.most_at_once, files)

    def compacted(self, table: str, began: float) -> None:
        """A compaction that began at `began` (monotonic seconds) was committed."""
        with self._changed:
            one = self._of(table)
            one.added = [(at, files) for at, files in one.added if at >= began]
            one.waited = 0.0
            self._changed.notify_all()

    def end(self) -> None:
        """Nobody compacts any more: nobody shall wait."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def files(self, table: str) -> int:
        """How many files of level 0 a bucket of the table has at most, as far as is known."""
        with self._changed:
            return sum(files for _, files in self._of(table).added)

    def fills_within(self, table: str, seconds: float) -> bool:
        """Whether the limit will be reached in so many seconds, if files come as they did.

        One commit alone says nothing of when the next one comes.
        """
        with self._changed:
            one = self._of(table)
            if one.limit is None or not one.added:
                return False
            count = sum(files for _, files in one.added)
            first, files = one.added[0]
            rate = (count - files) / max(time.monotonic() - first, _STEP_S)
            return count + one.most_at_once + rate * seconds > one.limit

    def wait(self, table: str, stopped: Callable[[], bool]) -> None:
        """Wait until a commit like those before fits under the limit; at most `LONGEST_WAIT_S`."""
        with self._changed:
            one = self._of(table)
            deadline = time.monotonic() + min(LONGEST_WAIT_S, PATIENCE_S - one.waited)
            while not self._ended and not stopped() and time.monotonic() < deadline:
                if one.limit is None or not one.added:
                    return
                if sum(files for _, files in one.added) + one.most_at_once <= one.limit:
                    return
                began = time.monotonic()
                self._changed.wait(_STEP_S)
                one.waited += time.monotonic() - began

    def _of(self, table: str) -> _Level0:
        return self._tables.setdefault(table, _Level0())
