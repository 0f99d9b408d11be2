"""Reports a running script to its user: the start, rows and lag every ten seconds, the end.

On a terminal, a line has the progress of snapshots.
"""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from streamhouse.runtime.batch.progress_line import ProgressLine, progress
from streamhouse.runtime.monitoring.metrics import QueryMetrics
from streamhouse.runtime.monitoring.status import QueryStatus
from streamhouse.runtime.query_description import QueryDescription, QueryProgress
from streamhouse.runtime.run_output import Outcome, RunOutput
from streamhouse.source import Lag

_LOG = logging.getLogger("streamhouse.status")
EVERY_S = 10.0
_EVERY_S = 0.5


class ReportedQuery(Protocol):
    """A query as reports and the status need it; see `runtime.streaming.query.JobQuery`."""

    metrics: QueryMetrics

    @property
    def description(self) -> QueryDescription: ...

    @property
    def progress(self) -> QueryProgress: ...


class RunReports:
    """Reports to the output every `EVERY_S` seconds while queries run."""

    def __init__(self, output: RunOutput, clock: Callable[[], float] = time.monotonic) -> None:
        self._output, self._clock = output, clock
        self._starts = False
        self._queries: Sequence[ReportedQuery] = ()
        self._running_since = self._due = 0.0

    def starting(self) -> None:
        """Report that Spark is starting, once."""
        if not self._starts:
            self._starts = True
            self._output.starting()

    def running(self, queries: Sequence[ReportedQuery]) -> None:
        """Report that all these queries run."""
        now = self._clock()
        if not self._queries:
            self._running_since = now
        self._queries, self._due = list(queries), now + EVERY_S
        self._output.running(len(queries))

    def step(self) -> None:
        """Report the progress, if it is due; called often."""
        now = self._clock()
        if self._queries and now >= self._due:
            self._due = now + EVERY_S
            self._output.progress(now - self._running_since, self._progress(with_lag=True))

    def end(self, outcome: Outcome) -> None:
        """Report the end, after all queries have stopped."""
        if self._queries:
            self._output.ended(outcome, self._progress(with_lag=False))

    def _progress(self, with_lag: bool) -> list[QueryStatus]:
        return [query_status(query, lag_of(query) if with_lag else None) for query in self._queries]


def query_status(query: ReportedQuery, lag: Lag | None) -> QueryStatus:
    """The status of a query, without what depends on its plan."""
    description = query.description
    return QueryStatus(
        name=description.part, target=description.target, lag=lag, **vars(query.metrics.read())
    )


def lag_of(query: ReportedQuery) -> Lag | None:
    """How far a query is behind its sources; None if that is unknown."""
    try:
        return query.progress.lag()
    except Exception as error:  # noqa: BLE001  # the query itself reports the error
        _LOG.info("the lag of %s is unknown: %s", query.description.part, error)
        return None


class SnapshotProgressLine:
    """The rows that queries have copied, the rate, and the time left, while stderr is a terminal.

    It ends when no query has rows left to copy.
    """

    def __init__(self) -> None:
        self._shown = ExitStack()
        self._line: ProgressLine | None = None
        self._total = 0
        self._due = time.monotonic()

    def step(self, queries: Sequence[ReportedQuery]) -> None:
        """Update the line if it is due; called often."""
        now = time.monotonic()
        if now < self._due or not sys.stderr.isatty():
            return
        self._due = now + _EVERY_S
        lefts = [(query, query.progress.rows_left()) for query in queries]
        copying = [(query.metrics.read().rows, left) for query, left in lefts if left is not None]
        if not copying:
            self.close()
            return
        if self._line is None:
            self._line, self._total = self._shown.enter_context(progress()), 0
            self._line.part("snapshot", None)
        # The rows of a batch count once it ends, but fewer are left meanwhile.
        total = self._total = max(self._total, sum(rows + left for rows, left in copying))
        self._line.reached(total - sum(left for _, left in copying), total)

    def close(self) -> None:
        """Remove the line."""
        self._line = None
        self._shown.close()
