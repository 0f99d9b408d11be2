"""How far a long statement is: a line on a terminal, once it takes longer than a moment."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHOWN_AFTER_S = 2.0
"""A statement that ends sooner shows nothing."""


class Progress:
    """The parts of a statement, one after the other; threads may advance it.

    On a terminal it is a line with the part's name, rows, share and the seconds left, from
    `SHOWN_AFTER_S` on, also while nothing advances. Nothing is written anywhere else, and none of
    it stays on the screen.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None
        self._name = ""
        self._rows = 0
        self._total: int | None = None
        self._timer: threading.Timer | None = None
        if sys.stderr.isatty():
            self._timer = threading.Timer(SHOWN_AFTER_S, self._show)
            self._timer.daemon = True
            self._timer.start()

    def part(self, name: str, total: int | None) -> None:
        """Begin a part of `total` rows; None where nobody knows."""
        with self._lock:
            self._name, self._rows, self._total = name, 0, total
            if self._bar is not None:
                self._bar.remove_task(self._task)
                self._begin()

    def advance(self, rows: int) -> None:
        """So many rows more are done."""
        with self._lock:
            self._rows += rows
            if self._bar is not None:
                self._bar.update(self._task, completed=self._rows)

    def close(self) -> None:
        """Take the line off the screen."""
        with self._lock:
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _show(self) -> None:
        with self._lock:
            if self._timer is None:
                # The statement has ended just now.
                return
            self._bar = _bar()
            self._begin()
            self._bar.start()

    def _begin(self) -> None:
        self._task = self._bar.add_task(self._name, total=self._total, completed=self._rows)


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress whose line goes with the `with`."""
    made = Progress()
    try:
        yield made
    finally:
        made.close()


def _bar() -> Any:
    from rich import progress as rich
    from rich.console import Console
    from rich.text import Text

    class Rows(rich.ProgressColumn):
        """Rows so far; nothing where a part does not count them."""

        def render(self, task: rich.Task) -> Text:
            return Text(f"{task.completed:,.0f} rows" if task.completed else "")

    return rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        Rows(),
        rich.TaskProgressColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    )
