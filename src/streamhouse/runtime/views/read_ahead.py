"""Reads batches ahead in a thread, so that reading and merging files overlap with the query."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable, Iterator

import pyarrow as pa

_BATCHES = 4
_WAIT_S = 0.1


def read_ahead(read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The batches of `read()` in their order, at most `_BATCHES` of them read ahead.

    The thread makes the iterator and drops it again: objects of the Rust core cannot move between
    threads. An error of the iterator is raised here.
    """
    found: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(_BATCHES)
    stopped = threading.Event()

    def put(item: pa.RecordBatch | BaseException | None) -> bool:
        while not stopped.is_set():
            try:
                found.put(item, timeout=_WAIT_S)
            except queue.Full:
                continue
            return True
        return False

    def fill() -> None:
        try:
            for batch in read():
                if not put(batch):
                    return
            put(None)
        except BaseException as error:  # noqa: BLE001 (raised by the consumer)
            # The frames hold objects of the Rust core, which must go in this thread.
            traceback.clear_frames(error.__traceback__)
            put(error)

    thread = threading.Thread(target=fill, name="read-ahead", daemon=True)
    thread.start()
    try:
        while (item := found.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
