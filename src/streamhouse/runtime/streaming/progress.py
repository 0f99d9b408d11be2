"""How far one continuous query has read its sources."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from streamhouse.source import Lag, Offset

if TYPE_CHECKING:
    from streamhouse.runtime.streaming.batch_planner import BatchPlanner
    from streamhouse.runtime.views.planner import ViewPlanner


class ContinuousProgress:
    """The `SourceProgress` of a query, which reports its batches to it."""

    def __init__(self, last: Offset) -> None:
        self._last = last
        self._planner: BatchPlanner | ViewPlanner | None = None
        self._replayed: Callable[[], bool] = lambda: False
        self._running = False

    @property
    def last_offset(self) -> Offset:
        return self._last

    def planned(self, planner: BatchPlanner | ViewPlanner) -> None:
        """Read the sources through this planner from now on; it is closed with the progress."""
        self._planner = planner

    def held(self, replayed: Callable[[], bool]) -> None:
        """Learn by `replayed` whether batches of an earlier run are left to run again."""
        self._replayed = replayed

    def committed(self, end: Offset) -> None:
        """Record the end offset of a committed batch."""
        self._last = end

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """While a batch runs."""
        self._running = True
        try:
            yield
        finally:
            self._running = False

    def close(self) -> None:
        """Close the planner."""
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()

    @property
    def replayed(self) -> bool:
        return self._replayed()

    def caught_up_offset(self) -> Offset | None:
        assert self._planner is not None
        if self._running:
            # Checking the sources would take processor time from the batch.
            return None
        return self._last if self._planner.caught_up(self._last) else None

    def lag(self) -> Lag | None:
        return None if self._planner is None else self._planner.lag(self._last)

    def rows_left(self) -> int | None:
        return None if self._planner is None else self._planner.rows_left(self._last)
