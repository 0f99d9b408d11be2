"""How far one continuous query has read its sources."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from streamhouse.source import Lag, Offset


class Planner(Protocol):
    """What progress needs of a query's planner."""

    def caught_up(self, start: Offset) -> bool:
        """Whether nothing is left to read after `start`."""

    def lag(self, start: Offset) -> Lag | None:
        """How far `start` is behind; None if unknown."""

    def rows_left(self, start: Offset) -> int | None:
        """About how many rows of snapshots are left; None if they are complete."""

    def close(self) -> None: ...


class Holds(Protocol):
    """What progress needs of a query's holds."""

    @property
    def replayed(self) -> bool:
        """Whether no interrupted batch of an earlier run is left to run again."""


class ContinuousProgress:
    """The `SourceProgress` of a query, which reports its batches to it."""

    def __init__(self, last: Offset) -> None:
        self._last = last
        self._planner: Planner | None = None
        self._holds: Holds | None = None
        self._running = False

    @property
    def last_offset(self) -> Offset:
        return self._last

    def planned(self, planner: Planner) -> None:
        """Read the sources through this planner from now on; it is closed with the progress."""
        self._planner = planner

    def held(self, holds: Holds) -> None:
        """Whether batches are left to run again is known from these holds."""
        self._holds = holds

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
        assert self._holds is not None
        return self._holds.replayed

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
