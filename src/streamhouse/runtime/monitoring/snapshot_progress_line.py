"""A progress line on the terminal while queries read the snapshots of their source tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from streamhouse.runtime.batch.progress_line import ProgressLine
from streamhouse.runtime.monitoring.run_reports import ReportedQuery

_EVERY_S = 0.5


class SnapshotProgressLine:
    """The rows that queries have copied, the rate, and the time left, while stderr is a terminal.

    It ends when no query has rows left to copy.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._line: ProgressLine | None = None
        self._rows = 0
        self._total = 0
        self._due = clock()

    def step(self, queries: Sequence[ReportedQuery]) -> None:
        """Update the line if it is due; called often."""
        if self._clock() < self._due or not sys.stderr.isatty():
            return
        self._due = self._clock() + _EVERY_S
        lefts = [(query, query.progress.rows_left()) for query in queries]
        copying = [(query.metrics.read().rows, left) for query, left in lefts if left is not None]
        if not copying:
            self.close()
            return
        if self._line is None:
            self._line, self._rows, self._total = ProgressLine(), 0, 0
            self._line.part("snapshot", None)
        # The rows of a batch count once it ends, but fewer are left meanwhile.
        total = self._total = max(self._total, sum(rows + left for rows, left in copying))
        rows = total - sum(left for _, left in copying)
        self._line.resize(total)
        self._line.advance(rows - self._rows)
        self._rows = rows

    def close(self) -> None:
        """Remove the line."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
