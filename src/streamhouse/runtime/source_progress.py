"""The progress of a continuous query over its sources, for its pipeline and its reports."""

from __future__ import annotations

from typing import Protocol

from streamhouse.source import Lag, Offset


class SourceProgress(Protocol):
    """How far a query has read its sources; see `streaming.progress`, `sync.source_progress`."""

    def lag(self) -> Lag | None:
        """How far the query is behind its sources; None if unknown."""

    @property
    def last_offset(self) -> Offset:
        """The end offset of the last committed batch; `{}` before the first."""

    @property
    def replayed(self) -> bool:
        """Whether no interrupted batch of an earlier run is left to run again."""

    def caught_up_offset(self) -> Offset | None:
        """The last offset if nothing is left to do, else None."""

    def rows_left(self) -> int | None:
        """About how many rows of its sources' snapshots are left; None once they are complete."""

    def close(self) -> None:
        """Close what reads the sources."""
