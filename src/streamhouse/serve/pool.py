"""Threads that read the warehouse, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from streamhouse.paimon.catalog import Warehouse

T = TypeVar("T")

THREADS = 4


class WarehousePool:
    """Runs functions in a few threads, each with a `Warehouse` of its own."""

    def __init__(self, options: Mapping[str, str], threads: int = THREADS) -> None:
        self._options = dict(options)
        self._local = threading.local()
        self._executor = ThreadPoolExecutor(threads, "streamhouse-warehouse")

    async def run(self, function: Callable[[Warehouse], T]) -> T:
        """What the function gives for this thread's warehouse."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._call, function)

    def close(self) -> None:
        """Take nothing more; what runs is not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _call(self, function: Callable[[Warehouse], T]) -> T:
        from streamhouse.paimon.catalog import Warehouse

        warehouse: Warehouse | None = getattr(self._local, "warehouse", None)
        if warehouse is None:
            warehouse = self._local.warehouse = Warehouse(self._options)
        return function(warehouse)
