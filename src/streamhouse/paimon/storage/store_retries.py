"""Repeats what failed since an object store did not answer, or answered with an error.

boto3 repeats its own requests. The Rust core repeats requests that read metadata, but none that
write, so a single error of the store would end a query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from streamhouse.errors import StoreError
from streamhouse.sql.options.store_options import is_object_store

_LOG = logging.getLogger("streamhouse.storage")
TRIES = 6
_FIRST_PAUSE_S = 0.1
_TEMPORARY = "(temporary)"

Result = TypeVar("Result")


def is_temporary(error: BaseException) -> bool:
    """Whether an error of the Rust core is a fault of the store, which may pass."""
    return _TEMPORARY in str(error)


def retried(work: Callable[[], Result], tries: int = TRIES) -> Result:
    """The result of `work`, which is repeated, with growing pauses, at a `StoreError`."""
    pause = _FIRST_PAUSE_S
    for _ in range(tries - 1):
        try:
            return work()
        except StoreError as error:
            _LOG.info("trying again in %g s: %s", pause, error)
            time.sleep(pause)
            pause *= 2
    return work()


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
