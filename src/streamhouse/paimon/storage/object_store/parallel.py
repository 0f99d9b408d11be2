"""Runs requests to an object store concurrently, in a pool of threads."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

Result = TypeVar("Result")

THREADS, _NAME = 16, "store-requests"
_pools: dict[int, ThreadPoolExecutor] = {}


def submit(call: Callable[[], Result]) -> Future[Result]:
    """Run a call in a thread of this process's pool."""
    # A process that was forked has its own threads.
    pool = _pools.setdefault(os.getpid(), ThreadPoolExecutor(THREADS, _NAME))
    return pool.submit(call)


def run_parallel(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of calls that run concurrently; raises the first error once all have ended."""
    # A thread of the pool must not wait for another one.
    if len(calls) <= 1 or threading.current_thread().name.startswith(_NAME):
        return [call() for call in calls]
    first, *others = calls
    futures = [submit(call) for call in others]
    try:
        result = first()
    finally:
        wait(futures)
    return [result, *(future.result() for future in futures)]
