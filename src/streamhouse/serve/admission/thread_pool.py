"""Thread pools for blocking reads of the warehouse, which must not run on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from streamhouse.serve.admission.fair_queue import WAIT_S

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.serve.admission.fair_queue import FairQueue

T = TypeVar("T")


class QueuedThreads:
    """Runs functions in a thread pool; each call first waits for a slot of a queue."""

    def __init__(self, queue: FairQueue, threads: int, wait_s: float = WAIT_S) -> None:
        self._queue = queue
        self._wait_s = wait_s
        self._executor = ThreadPoolExecutor(threads, "streamhouse-serve")

    async def run(self, client: str, function: Callable[[], T]) -> T:
        """Run the function; `Problem` busy if no slot is free in time.

        A cancelled caller returns at once; the thread finishes, and holds the slot until then.
        """
        slot = await self._queue.acquire(client, self._wait_s)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, function)
        except BaseException:
            slot.release()
            raise

        def ended(done: asyncio.Future[T]) -> None:
            slot.release()
            if not done.cancelled():
                done.exception()  # marks it as retrieved if the caller was cancelled

        future.add_done_callback(ended)
        return await asyncio.shield(future)

    def close(self) -> None:
        """Shut down the pool without waiting for running functions."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class WarehousePool:
    """Runs functions that read the warehouse; each thread has its own `Warehouse` object."""

    def __init__(self, options: Mapping[str, str], threads: QueuedThreads) -> None:
        self._options = dict(options)
        self._local = threading.local()
        self._threads = threads

    async def run(self, client: str, function: Callable[[Warehouse], T]) -> T:
        """Run the function with the thread's warehouse; as `QueuedThreads.run`."""
        return await self._threads.run(client, lambda: function(self._own()))

    def _own(self) -> Warehouse:
        from streamhouse.paimon.catalog.warehouse import Warehouse

        warehouse: Warehouse | None = getattr(self._local, "warehouse", None)
        if warehouse is None:
            warehouse = self._local.warehouse = Warehouse(self._options)
        return warehouse
