"""Backpressure: writers wait while a bucket has too many level-0 files.

Each level-0 file slows down every read of its bucket. If commits arrive faster than compaction can
process them, Paimon's own writers wait (`num-sorted-run.stop-trigger`). So do queries, before they
plan their next micro-batch: it then has more rows, but adds no more files.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

WAIT_PER_FILE_S = 0.1
"""Wait before one batch for each file above the limit: rows grow old meanwhile, so the rate of
commits falls step by step while a compaction takes longer."""
MAX_WAIT_S = 3.0
"""Longest wait before one batch, since compaction may be slow or may get no processor time."""
MAX_TOTAL_WAIT_S = 9.0
"""Longest wait in total for one compaction: a starved one must not slow the stream down."""
_STEP_S = 0.05
_UNKNOWN_LIMIT = 8


@dataclass
class _Level0:
    """What was added to one table since its last compaction.

    `added` has for each commit its time (monotonic seconds) and its files per bucket. `waited` is
    for how many seconds writers have waited.
    """

    limit: int | None = _UNKNOWN_LIMIT
    added: list[tuple[float, int]] = field(default_factory=list)
    most_at_once: int = 1
    waited: float = 0.0


class Backpressure:
    """Counts the level-0 files of tables with a primary key; thread-safe.

    A count is an upper bound for the fullest bucket: `added` reports at most how many files a
    commit puts into one bucket, and `compacted` that the files of earlier commits are gone.
    """

    def __init__(self) -> None:
        self._tables: dict[str, _Level0] = {}
        self._changed = threading.Condition()
        self._added = threading.Event()
        self._ended = False

    def limit(self, table: str, files: int | None) -> None:
        """Set how many level-0 files a bucket may have before writers wait; None: any number."""
        with self._changed:
            self._of(table).limit = files
            self._changed.notify_all()

    def added(self, table: str, files: int) -> None:
        """Record a commit that put up to `files` files into a bucket."""
        if files > 0:
            with self._changed:
                level0 = self._of(table)
                level0.added.append((time.monotonic(), files))
                level0.most_at_once = max(level0.most_at_once, files)
            self._added.set()

    def compacted(self, table: str, began: float) -> None:
        """Record the commit of a compaction that began at `began` (monotonic seconds)."""
        with self._changed:
            level0 = self._of(table)
            level0.added = [(at, files) for at, files in level0.added if at >= began]
            level0.waited = 0.0
            self._changed.notify_all()

    def end(self) -> None:
        """Release all writers now and later, since nobody compacts any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._added.set()

    def wait_for_files(self, seconds: float) -> None:
        """Wait until a commit has added files since the last such wait, at most `seconds`."""
        self._added.wait(seconds)
        self._added.clear()

    def files(self, table: str) -> int:
        """How many level-0 files a bucket of the table has at most, as far as is known."""
        with self._changed:
            return sum(files for _, files in self._of(table).added)

    def fills_within(self, table: str, seconds: float) -> bool:
        """Whether the limit will be reached within `seconds` at the present rate of files.

        A single commit gives no rate.
        """
        with self._changed:
            level0 = self._of(table)
            if level0.limit is None or not level0.added:
                return False
            count = sum(files for _, files in level0.added)
            first, files = level0.added[0]
            rate = (count - files) / max(time.monotonic() - first, _STEP_S)
            return count + level0.most_at_once + rate * seconds > level0.limit

    def wait(self, table: str, stopped: Callable[[], bool]) -> None:
        """Wait until a commit like the largest so far fits under the limit, or `stopped()`.

        At most `WAIT_PER_FILE_S` for each file above it and `MAX_WAIT_S`, and `MAX_TOTAL_WAIT_S` in
        total until the next compaction.
        """
        with self._changed:
            level0, start = self._of(table), time.monotonic()
            longest = min(MAX_WAIT_S, MAX_TOTAL_WAIT_S - level0.waited)
            while not self._ended and not stopped() and level0.limit is not None and level0.added:
                count = sum(files for _, files in level0.added)
                above = count + level0.most_at_once - level0.limit
                began = time.monotonic()
                left = start + min(longest, above * WAIT_PER_FILE_S) - began
                if left <= 0:
                    return
                self._changed.wait(min(_STEP_S, left))
                level0.waited += time.monotonic() - began

    def _of(self, table: str) -> _Level0:
        return self._tables.setdefault(table, _Level0())
