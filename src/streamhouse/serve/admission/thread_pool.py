"""Threads that read the warehouse, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from streamhouse.serve.admission.lanes import WAIT_S

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.serve.admission.fair_queue import Lane

T = TypeVar("T")


class LaneThreads:
    """Runs functions in threads, each when its client's turn in a lane comes."""

    def __init__(self, lane: Lane, threads: int, wait_s: float = WAIT_S) -> None:
        self._lane = lane
        self._wait_s = wait_s
        self._executor = ThreadPoolExecutor(threads, "streamhouse-serve")

    async def run(self, client: str, function: Callable[[], T]) -> T:
        """What the function gives; `Problem` busy where no turn comes in time.

        A caller that is cancelled does not wait; the turn is over only when the thread is.
        """
        turn = await self._lane.take(client, self._wait_s)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, function)
        except BaseException:
            turn.end()
            raise

        def ended(done: asyncio.Future[T]) -> None:
            turn.end()
            if not done.cancelled():
                done.exception()  # of a caller that has gone: nobody else takes it

        future.add_done_callback(ended)
        return await asyncio.shield(future)

    def close(self) -> None:
        """Take nothing more; what runs is not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class WarehousePool:
    """Runs functions in threads that have a `Warehouse` of their own each."""

    def __init__(self, options: Mapping[str, str], threads: LaneThreads) -> None:
        self._options = dict(options)
        self._local = threading.local()
        self._threads = threads

    async def run(self, client: str, function: Callable[[Warehouse], T]) -> T:
        """What the function gives for this thread's warehouse; as `LaneThreads.run`."""
        return await self._threads.run(client, lambda: function(self._own()))

    def _own(self) -> Warehouse:
        from streamhouse.paimon.catalog.warehouse import Warehouse

        warehouse: Warehouse | None = getattr(self._local, "warehouse", None)
        if warehouse is None:
            warehouse = self._local.warehouse = Warehouse(self._options)
        return warehouse
