"""A demo on a terminal: draws its views, messages and rates until its time is over or Ctrl-C."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from streamhouse.demo.driver import Check
from streamhouse.demo.measured_run import DemoScenario, Kills, wait_for_first_result
from streamhouse.demo.page import DemoPage
from streamhouse.demo.scripted_changes import ScriptedSteps

_PAUSE_S = 0.05
_STYLE = "bold cyan"
S = TypeVar("S", bound=DemoScenario)


class LiveScreen(ABC, Generic[S]):
    """Runs a demo until the time is over or Ctrl-C, then verifies its results."""

    title: ClassVar[str]
    starting: ClassVar[str]
    """What the demo waits for at its start."""
    max_messages: ClassVar[int]

    def __init__(
        self,
        scenario: S,
        seconds: float | None,
        kills: Kills | None,
        check: Check,
        page: DemoPage | None = None,
    ) -> None:
        self._scenario = scenario
        self._seconds = seconds
        self._kills = kills
        self._check = check
        self._page = page
        self._console = Console()
        self._messages: list[str] = []
        self._changes: ScriptedSteps | None = None

    def run(self) -> None:
        """Run the whole demo."""
        self._introduce()
        self._scenario.start()
        try:
            self._wait_for_first_result()
            self._changes = self._begin()
            self._draw_until_end(self._changes)
        except KeyboardInterrupt:
            pass
        if self._changes is not None:
            self._changes.stop()
        self._end()

    @abstractmethod
    def _introduce(self) -> None:
        """Print what the demo runs."""

    @abstractmethod
    def _begin(self) -> ScriptedSteps:
        """Open the views once the first result can be read; returns the scripted changes."""

    @abstractmethod
    def _update(self) -> None:
        """Poll the views, and measure."""

    @abstractmethod
    def _views(self) -> Sequence[RenderableType]:
        """The views as they are drawn above the messages."""

    @abstractmethod
    def _rates(self) -> str:
        """The rates and the freshness in one line."""

    @abstractmethod
    def _end(self) -> None:
        """Stop the pipeline, then verify and print its results."""

    def _wait_for_first_result(self) -> None:
        began = time.monotonic()
        with self._console.status(f"{self.starting} …") as status:

            def check() -> None:
                self._check_and_print_address()
                status.update(f"{self.starting} … {time.monotonic() - began:.0f} s")

            wait_for_first_result(self._scenario, self._scenario.result, check)

    def _draw_until_end(self, changes: ScriptedSteps) -> None:
        started = time.monotonic()
        plain = not sys.stdout.isatty()
        with Live(self._frame(), console=self._console, auto_refresh=False) as live:
            while self._seconds is None or time.monotonic() - started < self._seconds:
                self._check_and_print_address()
                self._scenario.raise_if_failed()
                for message in (self._kills and self._kills.step(self._scenario), changes.step()):
                    if message:
                        self._add_message(message)
                self._update()
                if not plain:
                    live.update(self._frame(), refresh=True)
                time.sleep(_PAUSE_S)
            live.update(self._frame(), refresh=True)

    def _check_and_print_address(self) -> None:
        self._check()
        news = None if self._page is None else self._page.news()
        if news is not None:
            self._console.print(Text(news, style=_STYLE), soft_wrap=True)

    def _add_message(self, text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')}  {text}"
        self._messages = [*self._messages, line][-self.max_messages :]

    def _frame(self) -> RenderableType:
        lines = [
            Text(self._rates()),
            *(Text(message, style="yellow") for message in self._messages),
        ]
        if self._page is not None and self._page.line is not None:
            lines.insert(0, Text(self._page.line, style=_STYLE))
        return Group(*self._views(), Panel(Group(*lines), title=f"{self.title} — Ctrl-C ends"))

    def _print_query(self, view: str, warehouse: str) -> None:
        """Print how to query the tables after the demo."""
        self._console.print("The tables remain. Query them without Spark:")
        command = f'  streamhouse query "SELECT * FROM {view}" --warehouse {warehouse}'
        self._console.print(command, soft_wrap=True)
