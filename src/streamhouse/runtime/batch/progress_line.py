"""A progress line on the terminal for statements that take longer than a few seconds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHOWN_AFTER_S = 2.0
"""A statement that ends sooner shows no progress line."""


class ProgressLine:
    """Progress of a statement, which consists of successive parts; thread-safe.

    If stderr is a terminal, it shows a line with the part's name, rows, rate, percentage and the
    time left, from `SHOWN_AFTER_S` on, also while nothing advances. `close` removes the line.
    Without a terminal nothing is written.
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
        """Begin a part of `total` rows (None: unknown)."""
        with self._lock:
            self._name, self._rows, self._total = name, 0, total
            if self._bar is not None:
                self._bar.remove_task(self._task)
                self._begin()

    def advance(self, rows: int) -> None:
        """Count `rows` more rows as done."""
        with self._lock:
            self._complete(self._rows + rows)

    def reached(self, rows: int) -> None:
        """Set the number of rows of this part that are done."""
        with self._lock:
            self._complete(rows)

    def _complete(self, rows: int) -> None:
        self._rows = rows
        if self._bar is not None:
            self._bar.update(self._task, completed=rows)

    def resize(self, total: int) -> None:
        """Set the number of rows of this part, of which more is known."""
        with self._lock:
            self._total = total
            if self._bar is not None:
                self._bar.update(self._task, total=total)

    def close(self) -> None:
        """Remove the line from the terminal."""
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
                # `close` has been called meanwhile.
                return
            self._bar = _bar()
            self._begin()
            self._bar.start()

    def _begin(self) -> None:
        self._task = self._bar.add_task(self._name, total=self._total, completed=self._rows)


@contextmanager
def progress() -> Iterator[ProgressLine]:
    """A `ProgressLine` whose line is removed at the end of the `with`."""
    line = ProgressLine()
    try:
        yield line
    finally:
        line.close()


def _bar() -> Any:
    from rich import progress as rich
    from rich.console import Console
    from rich.text import Text

    class Rows(rich.ProgressColumn):
        """The rows so far; empty while there are none."""

        def render(self, task: rich.Task) -> Text:
            return Text(f"{task.completed:,.0f} rows" if task.completed else "")

    class Rate(rich.ProgressColumn):
        """Rows per second; empty while that is unknown."""

        def render(self, task: rich.Task) -> Text:
            return Text(f"{task.speed:,.0f} rows/s" if task.speed else "")

    return rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        Rows(),
        Rate(),
        rich.TaskProgressColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    )
