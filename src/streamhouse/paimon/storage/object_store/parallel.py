"""Runs requests to an object store concurrently, in a pool of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")

_THREADS, _NAME = 16, "store-requests"
_pools: dict[int, ThreadPoolExecutor] = {}


def submit(call: Callable[[], Result]) -> Future[Result]:
    """Run a call in a thread of this process's pool."""
    # A process that was forked has its own threads.
    pool = _pools.setdefault(os.getpid(), ThreadPoolExecutor(_THREADS, _NAME))
    return pool.submit(call)


def start(calls: Sequence[Callable[[], Result]]) -> Callable[[], list[Result]]:
    """Begin calls in the pool; returns the call that waits for all, and raises the first error."""
    if _is_in_pool():
        return lambda: [call() for call in calls]
    futures = [submit(call) for call in calls]

    def results() -> list[Result]:
        wait(futures)
        return [future.result() for future in futures]

    return results


def run_parallel(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of calls that run concurrently; raises the first error once all have ended."""
    if len(calls) <= 1 or _is_in_pool():
        return [call() for call in calls]
    first, *others = calls
    results = start(others)
    try:
        result = first()
    except Exception:
        with suppress(Exception):
            results()
        raise
    return [result, *results()]


def _is_in_pool() -> bool:
    """Whether this is a thread of the pool, which must not wait for another one."""
    return threading.current_thread().name.startswith(_NAME)
