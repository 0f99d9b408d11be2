"""Repeats what failed since an object store did not answer, or answered with an error.

boto3 repeats its own requests. The Rust core repeats requests that read metadata, but none that
write, so a single error of the store would end a query.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from streamhouse.errors import StoreError
from streamhouse.sql.options.store_options import is_object_store

_LOG = logging.getLogger("streamhouse.storage")
OUTAGE_S = 60.0
"""How long a store may fail before a running query ends."""
LEAST_TRIES = 6
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 2.0
_SILENT_S = 2.0
_TEMPORARY = "(temporary)"

Result = TypeVar("Result")


def is_temporary(error: BaseException) -> bool:
    """Whether an error of the Rust core is a fault of the store, which may pass."""
    return _TEMPORARY in str(error)


def retried(work: Callable[[], Result], tries: int | None = None) -> Result:
    """The result of `work`, which is repeated, with growing pauses, at a `StoreError`.

    Gives up after `tries`, or else once the work has failed for `OUTAGE_S` seconds, at least
    `LEAST_TRIES` times. What has given up so is not repeated by a caller either.
    """
    failed_at, pause, warned, attempt = 0.0, _FIRST_PAUSE_S, False, 1
    while True:
        try:
            return work()
        except StoreError as error:
            now = time.monotonic()
            failed_at = now if attempt == 1 else failed_at
            if error.lasting or attempt == tries:
                raise
            if tries is None and attempt >= LEAST_TRIES and now + pause - failed_at > OUTAGE_S:
                error.lasting = True
                raise
            if now - failed_at > _SILENT_S and not warned:
                _LOG.warning("%s; trying again for up to %g s", error, OUTAGE_S)
                warned = True
            else:
                _LOG.info("trying again in %g s: %s", pause, error)
        time.sleep(pause)
        attempt += 1
        pause = min(2 * pause, _MAX_PAUSE_S)


def retried_task(
    warehouse: Mapping[str, str], run: Callable[[], Iterator[Result]]
) -> Iterator[Result]:
    """The results of a task that writes tables of a warehouse.

    If that is in an object store, they are held until the task has ended, and it is repeated as a
    whole at a `StoreError`.
    """
    if not is_object_store(warehouse.get("warehouse", "")):
        return run()
    return iter(retried(lambda: list(run())))
