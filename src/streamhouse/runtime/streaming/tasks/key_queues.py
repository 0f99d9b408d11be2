"""Keeps the changes of each key in order while some of them wait for a lookup (decision 162).

A row that misses its lookup waits. Later rows of its key wait behind it, though they may have a
match: the last one decides, so none may overtake another. A retraction of a row that still waits
cancels it: neither has reached the target.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum

_RETRACTIONS = ("-U", "-D")
BLOCKED = -1
"""The number of attempts of a row that waits behind another one and was not looked up yet."""


@dataclass
class WaitingRow:
    """A row that waits: its key, its id in the pending table, its kind, when to retry, attempts."""

    key: Hashable
    row_id: str
    kind: str
    due_ms: int = 0
    attempts: int = 0


class Outcome(Enum):
    """What becomes of a waiting row that was looked up again."""

    FOUND = "found"
    AGAIN = "again"
    EXHAUSTED = "exhausted"


class KeyQueues:
    """The waiting rows of each key, the oldest first."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, list[WaitingRow]] = {}

    def add(self, waiting: Iterable[WaitingRow]) -> None:
        """Add all waiting rows of some keys, the oldest of each first."""
        for row in waiting:
            self._queues.setdefault(row.key, []).append(row)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._queues

    def __bool__(self) -> bool:
        return bool(self._queues)

    def due(self, now_ms: int) -> list[WaitingRow]:
        """The rows of keys whose oldest row is due: those behind it follow at once."""
        queues = [queue for queue in self._queues.values() if queue[0].due_ms <= now_ms]
        return [row for queue in queues for row in queue]

    def retry(
        self, now_ms: int, is_missed: Callable[[WaitingRow], bool], most: int
    ) -> list[tuple[WaitingRow, Outcome]]:
        """Look up the due rows again; what becomes of each, in the order of its key.

        A row that misses again blocks those behind it, until it has missed `most` times since the
        first lookup; then it leaves the queue.
        """
        outcomes: list[tuple[WaitingRow, Outcome]] = []
        for queue in [waiting for waiting in self._queues.values() if waiting[0].due_ms <= now_ms]:
            while queue:
                first = queue[0]
                outcome = Outcome.FOUND
                if is_missed(first):
                    first.attempts += 1
                    exhausted = first.attempts > 0 and first.attempts >= most
                    outcome = Outcome.EXHAUSTED if exhausted else Outcome.AGAIN
                outcomes.append((first, outcome))
                if outcome is Outcome.AGAIN:
                    break
                queue.pop(0)
            if not queue:
                del self._queues[first.key]
        return outcomes

    def take(self, row: WaitingRow, is_missed: bool) -> WaitingRow | bool:
        """A new row: True if it passes, False if it waits now, or the waiting row that it cancels.

        Sets the attempts of a row that waits behind another one.
        """
        queue = self._queues.get(row.key)
        if queue is None:
            if not is_missed:
                return True
            self._queues[row.key] = [row]
            return False
        if row.kind in _RETRACTIONS and queue[-1].kind not in _RETRACTIONS:
            cancelled = queue.pop()
            if not queue:
                del self._queues[row.key]
            return cancelled
        row.attempts = BLOCKED
        queue.append(row)
        return False
