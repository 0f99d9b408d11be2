"""Wakes the queries of this process when it has committed to a table that they read.

Other processes commit, too, so a query also polls; but polling a hundred times a second costs as
much as its batches.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_woken: dict[str, list[threading.Event]] = defaultdict(list)
_lock = threading.Lock()


@contextmanager
def woken_by(tables: Iterable[str], event: threading.Event) -> Iterator[None]:
    """Within the block, set `event` after each commit of this process to one of the `tables`."""
    names = set(tables)
    with _lock:
        for name in names:
            _woken[name].append(event)
    try:
        yield
    finally:
        with _lock:
            for name in names:
                _woken[name].remove(event)


def wake_readers(table: str) -> None:
    """Tell the readers of a table that it has a new snapshot."""
    with _lock:
        events = list(_woken.get(table, ()))
    for event in events:
        event.set()
