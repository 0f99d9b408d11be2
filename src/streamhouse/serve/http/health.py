"""Health check for probes: concurrent probes share one check of the warehouse."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from streamhouse.paimon.storage.files import is_local, local_path
from streamhouse.serve.access_log import LOGGER

if TYPE_CHECKING:
    from collections.abc import Mapping

OK = "ok"


class Health:
    """Checks whether the warehouse can be listed; use it on the event loop.

    The check runs in a thread of its own, so that probes are answered while all other threads are
    busy. Probes need no token, so however many there are, only one check runs at a time.
    """

    def __init__(self, warehouse: Mapping[str, str]) -> None:
        self._options = dict(warehouse)
        self._executor = ThreadPoolExecutor(1, "streamhouse-health")
        self._check: asyncio.Future[str] | None = None

    async def status(self) -> str:
        """`ok`, or a description of the failure."""
        if self._check is None or self._check.done():
            self._check = asyncio.get_running_loop().run_in_executor(
                self._executor, self._check_warehouse
            )
        return await asyncio.shield(self._check)

    def close(self) -> None:
        """Stop the thread; does not wait for a running check."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _check_warehouse(self) -> str:
        from streamhouse.paimon.catalog.warehouse import Warehouse

        try:
            warehouse = Warehouse(self._options)
            # The catalog lists a missing local warehouse as one without databases.
            if is_local(warehouse.path) and not os.path.isdir(local_path(warehouse.path)):
                raise FileNotFoundError(warehouse.path)
            warehouse.databases()
            return OK
        except Exception as error:  # noqa: BLE001 - whatever it is, the warehouse is not well
            LOGGER.warning("the warehouse cannot be read: %s", type(error).__name__)
            return f"cannot be read: {type(error).__name__}"
