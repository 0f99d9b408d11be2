"""The recent events of a stream, kept so that subscribers can resume without the warehouse."""

from __future__ import annotations

from streamhouse.serve.streams.event import Commit
from streamhouse.serve.streams.resume import ResumePosition
from streamhouse.serve.streams.subscriber import Link

_MAX_POSITIONS = 4096


class EventHistory:
    """The positions from which subscribers can resume: each keeps the events after it alive."""

    def __init__(self) -> None:
        self._positions: dict[int, tuple[Commit, Link]] = {}
        self._newest = Link()

    @property
    def bytes(self) -> int:
        """The memory of the events."""
        oldest = next(iter(self._positions.values()), None)
        return 0 if oldest is None else self._newest.size - oldest[1].size

    def record(self, commit: Commit, link: Link) -> None:
        """Add the newest position: `link` is the last one of the stream."""
        # Reinsert at the end, so that the dict stays ordered by age.
        self._positions.pop(commit.snapshot, None)
        self._positions[commit.snapshot] = (commit, link)
        self._newest = link
        while len(self._positions) > _MAX_POSITIONS:
            self.forget_oldest()

    def find(self, position: ResumePosition) -> Link | None:
        """The link after which a subscriber continues; None if the position is not kept."""
        recorded = self._positions.get(position.snapshot)
        return recorded[1] if recorded is not None and position.matches(recorded[0]) else None

    def forget_oldest(self) -> None:
        """Forget the oldest position."""
        del self._positions[next(iter(self._positions))]

    def clear(self) -> None:
        """Forget all positions."""
        self._positions.clear()
