"""Waits for what other threads, processes and servers do.

No outcome of a test depends on `DEADLINE_S`: it ends a test that hangs. Whatever takes a second on
a quiet machine may take many times as long on one that is small or busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
DEADLINE_S = 240
_LOOK_S = 0.01
_LONGEST_S = 1.0


class NotSeenError(AssertionError):
    """What a test waits for is not so at the deadline."""


def until(
    what: Callable[[], T], show: Callable[[], object] = lambda: "", seconds: float = DEADLINE_S
) -> T:
    """Wait until `what` returns something true, and return it; `show` is for the error message."""
    for _ in looks(show, seconds):
        if found := what():
            return found
    raise AssertionError


def looks(show: Callable[[], object] = lambda: "", seconds: float = DEADLINE_S) -> Iterator[None]:
    """Yield for each look at something that a loop waits for; fail at the deadline.

    The pause after a look is longer the longer it took: what is waited for needs the processors.
    """
    deadline = time.monotonic() + seconds
    while True:
        looked = time.monotonic()
        yield
        if looked > deadline:
            raise NotSeenError(f"not seen within {seconds:g} s: {show()}")
        time.sleep(min(max(_LOOK_S, 4 * (time.monotonic() - looked)), _LONGEST_S))
