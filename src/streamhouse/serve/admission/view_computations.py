"""Bounds how many views of change streams are computed at a time, fairly between clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamhouse.errors import BusyError
from streamhouse.serve.errors import Problem

if TYPE_CHECKING:
    from streamhouse.serve.admission.fair_queue import FairQueue, Slot

SHORT_S = 1.0
FIRST_WAIT_S = 10.0
"""How long the first rows of a stream may wait for a slot; later ones wait until they get one."""
_FOREVER_S = 1e9
_CANCEL_INTERVAL_S = 0.1


class ViewComputations:
    """Slots for the computations of views, which run in the threads of pollers.

    `short` is for those that end within `SHORT_S`, `long` for the others (decision 289). The queues
    belong to the event loop that `start` names.
    """

    def __init__(self, short: FairQueue, long: FairQueue) -> None:
        self.short, self.long = short, long
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @contextlib.contextmanager
    def slot(
        self, queue: FairQueue, client: str, cancelled: threading.Event, first: bool
    ) -> Iterator[None]:
        """Wait for a slot in a thread; `BusyError` if the `first` rows would wait too long.

        Also soon after another thread has set `cancelled`.
        """
        loop, wait_s = self._loop, FIRST_WAIT_S if first else _FOREVER_S
        if loop is None or loop.is_closed():
            raise BusyError("the server is shutting down; try again later")
        slot = self._acquired(queue, client, cancelled, loop, wait_s)
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # The loop has been closed.
                loop.call_soon_threadsafe(slot.release)

    @staticmethod
    def _acquired(
        queue: FairQueue,
        client: str,
        cancelled: threading.Event,
        loop: asyncio.AbstractEventLoop,
        wait_s: float,
    ) -> Slot:
        future = asyncio.run_coroutine_threadsafe(queue.acquire(client, wait_s), loop)
        while True:
            with contextlib.suppress(concurrent.futures.TimeoutError):
                try:
                    return future.result(_CANCEL_INTERVAL_S)
                except Problem as busy:
                    raise BusyError(busy.message) from None
            if (cancelled.is_set() or loop.is_closed()) and future.cancel():
                raise BusyError("the stream has ended; try again")
