"""How far a long statement is: a line on a terminal, once it takes longer than a moment."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SHOWN_AFTER_S = 2.0
"""A statement that ends sooner shows nothing."""


class Progress:
    """The parts of a statement, one after the other; threads may advance it.

    On a terminal it is a line with the part's name, rows, share and the seconds left. Nothing is
    written anywhere else, and none of it stays on the screen.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None
        self._name = ""
        self._rows = 0
        self._total: int | None = None

    def part(self, name: str, total: int | None) -> None:
        """Begin a part of `total` rows; None where nobody knows."""
        with self._lock:
            self._name, self._rows, self._total = name, 0, total
            if self._bar is not None:
                self._bar.reset(self._task, description=name, total=total)
        self._show()

    def advance(self, rows: int) -> None:
        """So many rows more are done."""
        with self._lock:
            self._rows += rows
        self._show()

    def close(self) -> None:
        """Take the line off the screen."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _show(self) -> None:
        with self._lock:
            if self._bar is None:
                if self._clock() - self._began < SHOWN_AFTER_S or not sys.stderr.isatty():
                    return
                self._bar = _bar()
                self._task = self._bar.add_task(self._name, total=self._total)
                self._bar.start()
            self._bar.update(self._task, completed=self._rows)


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress whose line goes with the `with`."""
    made = Progress()
    try:
        yield made
    finally:
        made.close()


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} rows"),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    )
