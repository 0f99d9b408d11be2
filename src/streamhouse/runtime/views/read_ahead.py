"""Reads batches ahead in a thread, so that reading and merging files overlap with the query."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable, Iterator

import pyarrow as pa

_BATCHES = 4
"""How many batches wait for the query at most, besides the one that was read last."""


def read_ahead(read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The batches of `read()` in their order, the next ones read ahead.

    The thread makes the iterator and drops it again: objects of the Rust core cannot move between
    threads. An error of the iterator is raised here.
    """
    found: queue.SimpleQueue[pa.RecordBatch | BaseException | None] = queue.SimpleQueue()
    room = threading.Semaphore(_BATCHES)
    stopped = threading.Event()

    def fill() -> None:
        try:
            for batch in read():
                room.acquire()
                if stopped.is_set():
                    return
                found.put(batch)
            found.put(None)
        except BaseException as error:  # noqa: BLE001 (raised by the consumer)
            # The frames hold objects of the Rust core, which must go in this thread.
            traceback.clear_frames(error.__traceback__)
            found.put(error)

    thread = threading.Thread(target=fill, name="read-ahead", daemon=True)
    thread.start()
    try:
        while (item := found.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            room.release()
            yield item
    finally:
        stopped.set()
        room.release()
        thread.join()
