"""Arrow batches and tables: groups of successive ones, batches read ahead, and the last row of each
key."""

import queue
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

LAST = "__last"
"""The column of `last_positions` with the position of a key's last row."""

_READ_AHEAD = 4
"""How many batches wait for the query at most, or two for each of several iterators."""

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def gathered(parts: Iterable[Rows], rows: int, size: int | None = None) -> Iterator[list[Rows]]:
    """Successive parts in groups of at least `rows` rows; the last group may have fewer.

    With `size`, a group may have fewer rows if it has at least that many bytes.
    """
    group: list[Rows] = []
    count = byte_count = 0
    for part in parts:
        group.append(part)
        count += part.num_rows
        byte_count += 0 if size is None else part.nbytes
        if count >= rows or (size is not None and byte_count >= size):
            yield group
            group, count, byte_count = [], 0, 0
    if group:
        yield group


def last_positions(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The keys of the rows, each once: the columns `key`, and `LAST`, in any order."""
    names = list(key)
    positions = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    numbered = rows.select(names).append_column(LAST, positions)
    grouped = numbered.group_by(names, use_threads=False).aggregate([(LAST, "max")])
    return grouped.select([*names, f"{LAST}_max"]).rename_columns([*names, LAST])


def last_of_each_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order of the rows."""
    last = last_positions(rows, key)
    if last.num_rows == rows.num_rows:
        return rows
    return rows.take(last.column(LAST).combine_chunks().sort())


def read_ahead(
    *reads: Callable[[], Iterator[pa.RecordBatch]],
) -> Generator[pa.RecordBatch, None, None]:
    """The batches of each of `reads` in their order, the next ones read ahead.

    A thread makes each iterator and drops it again: objects of the Rust core cannot move between
    threads. An error of an iterator is raised here.
    """
    found: queue.SimpleQueue[pa.RecordBatch | BaseException | None] = queue.SimpleQueue()
    room = threading.Semaphore(max(_READ_AHEAD, 2 * len(reads)))
    stopped = threading.Event()

    def fill(read: Callable[[], Iterator[pa.RecordBatch]]) -> None:
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

    threads = [
        threading.Thread(target=fill, args=[read], name="read-ahead", daemon=True) for read in reads
    ]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            item = found.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
                continue
            room.release()
            yield item
    finally:
        stopped.set()
        room.release(len(threads))
        for thread in threads:
            thread.join()
