"""How far a batch is behind the sources of its query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamhouse.runtime.query_sources import QuerySources, source_caught_up
from streamhouse.source import Lag, Lagging, Offset, Snapshotting


class SourceLag:
    """Compares the end offset of a batch with the sources; driver only, not thread-safe."""

    def __init__(self, inputs: QuerySources) -> None:
        self._inputs = inputs

    def caught_up(self, offset: Offset) -> bool:
        """Whether no source has rows after the offset of a batch, and all bounded ones ended."""
        before = self._inputs.offsets(offset)
        return all(
            source_caught_up(source, at)
            for source, at in zip(self._inputs.sources, before, strict=True)
        )

    def lag(self, offset: Offset) -> Lag | None:
        """The lag of a reader at the offset of a batch; None if no source knows it."""
        before = self._inputs.offsets(offset)
        lags = [
            source.lag(at)
            for source, at in zip(self._inputs.sources, before, strict=True)
            if isinstance(source, Lagging)
        ]
        return _combined([lag for lag in lags if lag is not None])

    def rows_left(self, offset: Offset) -> int | None:
        """About how many rows of the sources' snapshots are left; None if they are complete."""
        before = self._inputs.offsets(offset)
        lefts = [
            source.rows_left(at)
            for source, at in zip(self._inputs.sources, before, strict=True)
            if isinstance(source, Snapshotting)
        ]
        known = [left for left in lefts if left is not None]
        return sum(known) if known else None


def _combined(lags: Sequence[Lag]) -> Lag | None:
    """The longest delay and the sums of what is unread; None if there are no lags."""
    if len(lags) < 2:
        return lags[0] if lags else None

    def known(name: str) -> list[Any]:
        values = (getattr(lag, name) for lag in lags)
        return [value for value in values if value is not None]

    def total(name: str) -> int | None:
        return sum(known(name)) if known(name) else None

    return Lag(
        max(known("seconds"), default=None),
        total("rows"), total("snapshots"), total("bytes"), total("waiting_rows"),
    )  # fmt: skip
