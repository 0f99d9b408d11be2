"""Limit on the memory of the initial states that are being sent to subscribers."""

from __future__ import annotations

import weakref

from streamhouse.serve.streams.subscriber import FirstEvents


class StateMemory:
    """The initial states being sent, of all streams, with a limit on their total size.

    A state counts as long as something refers to it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._states: list[weakref.ref[FirstEvents]] = []

    def add(self, state: FirstEvents) -> None:
        """Add a state; beyond the limit, disconnects the subscribers still reading the oldest."""
        alive = [
            found for found in (reference() for reference in self._states) if found is not None
        ]
        total = state.size + sum(kept.size for kept in alive)
        while alive and total > self._max_bytes:
            oldest = alive.pop(0)
            total -= oldest.size
            oldest.disconnect_readers()
        self._states = [weakref.ref(kept) for kept in (*alive, state)]
