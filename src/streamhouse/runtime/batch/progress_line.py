"""A progress line on the terminal for statements that take longer than a few seconds."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamhouse.background import ticking

SHOWN_AFTER_S = 2.0
"""A statement that ends sooner shows no progress line."""
_EVERY_S = 0.1


class ProgressLine:
    """Progress of a statement, which consists of successive parts; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name, self._rows = "", 0
        self._total: int | None = None
        self._bar: Any = None
        self._task: Any = None

    def part(self, name: str, total: int | None) -> None:
        """Begin a part of `total` rows (None: unknown)."""
        with self._lock:
            self._name, self._rows, self._total = name, 0, total
            if self._bar is not None:
                self._bar.remove_task(self._task)
                self._task = self._bar.add_task(name, total=total)

    def advance(self, rows: int) -> None:
        """Count `rows` more rows as done."""
        with self._lock:
            self._rows += rows

    def reached(self, rows: int, total: int | None = None) -> None:
        """Set how many rows of this part are done, and how many there are, if more is known."""
        with self._lock:
            self._rows, self._total = rows, self._total if total is None else total

    def show(self, seconds: float) -> None:
        """Show the progress on the terminal; called again and again."""
        with self._lock:
            if self._bar is None:
                self._bar = _bar()
                self._task = self._bar.add_task(self._name, total=self._total)
                self._bar.start()
            self._bar.update(self._task, total=self._total, completed=self._rows)

    def close(self) -> None:
        """Remove the line from the terminal."""
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def progress() -> Iterator[ProgressLine]:
    """A `ProgressLine` that is shown while the `with` lasts, if stderr is a terminal.

    The line has the part's name, rows, rate, percentage and the time left, from `SHOWN_AFTER_S` on,
    also while nothing advances.
    """
    line = ProgressLine()
    if not sys.stderr.isatty():
        yield line
        return
    try:
        with ticking(line.show, SHOWN_AFTER_S, _EVERY_S):
            yield line
    finally:
        line.close()


def _bar() -> Any:
    from rich import progress as rich
    from rich.console import Console
    from rich.text import Text

    class Rows(rich.ProgressColumn):
        """The rows so far, and those per second; empty while they are unknown."""

        def render(self, task: rich.Task) -> Text:
            rows = f"{task.completed:,.0f} rows" if task.completed else ""
            return Text(f"{rows} {task.speed:,.0f} rows/s" if task.speed else rows)

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
