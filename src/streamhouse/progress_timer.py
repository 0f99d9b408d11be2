"""Calls a function again and again while something else takes its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ticking(tick: Callable[[float], None], first_s: float, every_s: float) -> Iterator[None]:
    """Call `tick` with the seconds so far, after `first_s` and then every `every_s` seconds.

    It runs in a thread while the `with` block lasts, which waits for the last call.
    """
    done, began = threading.Event(), time.monotonic()

    def run() -> None:
        wait_s = first_s
        while not done.wait(wait_s):
            wait_s = every_s
            tick(time.monotonic() - began)

    thread = threading.Thread(target=run, daemon=True, name="streamhouse-ticker")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
