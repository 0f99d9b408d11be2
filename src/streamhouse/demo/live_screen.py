"""A demo on a terminal: draws its views, messages and rates until its time is over or Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from streamhouse.cli.table_view import TableView
from streamhouse.demo.driver import Check, DemoPage
from streamhouse.demo.latency import ages_text
from streamhouse.demo.measured_run import Kills, wait_for_first_result
from streamhouse.demo.scenario import DemoScenario, ScriptedSteps
from streamhouse.errors import TableError
from streamhouse.serve.feeds.table_feed import TableFeed

_PAUSE_S = 0.05
_RATES_EVERY_S = 1.0
_STYLE = "bold cyan"
_BOARD_LINES, _OWN_LINES = 7, 4
"""The height of the smaller boards, and that of the panel without messages."""


class LiveScreen:
    """Runs a demo until the time is over or Ctrl-C, then verifies its results."""

    def __init__(
        self,
        scenario: DemoScenario,
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
        self._boards: list[tuple[TableFeed, TableView]] = []
        self._counts: list[tuple[float, int]] = []
        self._ages: dict[str, float] | None = None

    def run(self) -> None:
        """Run the whole demo."""
        scenario = self._scenario
        self._console.print(f"[bold]Streamhouse demo[/bold] in {scenario.folder}")
        self._console.print(scenario.introduction())
        scenario.start()
        changes: ScriptedSteps | None = None
        try:
            self._wait_for_first_result()
            feeds = [TableFeed(scenario.warehouse, name) for name in scenario.boards]
            self._boards = [(feed, TableView(feed)) for feed in feeds]
            changes = scenario.begin(self._seconds)
            self._draw_until_end(changes)
        except KeyboardInterrupt:
            pass
        if changes is not None:
            changes.stop()
        self._end()

    def _update(self) -> None:
        """Poll the boards, and measure."""
        for feed, view in self._boards:
            change = feed.poll()
            if change is not None:
                view.apply(change)
        now = time.monotonic()
        if not self._counts or now - self._counts[-1][0] >= _RATES_EVERY_S:
            self._scenario.update_ages()
            self._ages = self._scenario.ages.recent()
            self._counts = [*self._counts[-10:], (now, self._scenario.count())]

    def _views(self) -> Sequence[RenderableType]:
        others = [_BOARD_LINES] * (len(self._boards) - 1)
        free = self._console.size.height - sum(others) - len(self._messages) - _OWN_LINES
        heights = [max(8, free), *others]
        return [view.render(lines) for (_, view), lines in zip(self._boards, heights, strict=True)]

    def _rates(self) -> str:
        """The rates and the freshness in one line."""
        if len(self._counts) < 2:
            return "measuring …"
        scenario = self._scenario
        (t0, n0), (t1, n1) = self._counts[0], self._counts[-1]
        parts = [f"{n1:,} {scenario.counted}", f"{(n1 - n0) / (t1 - t0):,.0f}/s"]
        if self._ages:
            parts.append(f"{scenario.measured} {ages_text(self._ages)}")
        parts.append(f"lag {scenario.lag(n1, self._boards[0][0].rows)}")
        return "  ·  ".join(parts)

    def _end(self) -> None:
        """Stop the pipeline, then verify and print its results."""
        scenario = self._scenario
        with self._console.status("stopping between two batches …"):
            scenario.end()
            scenario.driver.stop()
        if not self._boards:
            return
        if scenario.drained:
            with self._console.status("processing the remaining changes …"):
                scenario.drain()
        with self._console.status(f"{scenario.verification} …"):
            try:
                lines = scenario.verdict()
            except TableError:
                return
        for line in lines:
            self._console.print(line)
        self._console.print("The tables remain. Query them without Spark:")
        query = f'"SELECT * FROM {scenario.boards[0]}" --warehouse {scenario.warehouse.path}'
        self._console.print(f"  streamhouse query {query}", soft_wrap=True)

    def _wait_for_first_result(self) -> None:
        began = time.monotonic()
        with self._console.status(f"{self._scenario.starting} …") as status:

            def check() -> None:
                self._check_and_print_address()
                passed = f"{time.monotonic() - began:.0f} s"
                status.update(f"{self._scenario.starting} … {passed}")

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
        self._messages = [*self._messages, line][-self._scenario.max_messages :]

    def _frame(self) -> RenderableType:
        lines = [
            Text(self._rates()),
            *(Text(message, style="yellow") for message in self._messages),
        ]
        if self._page is not None and self._page.line is not None:
            lines.insert(0, Text(self._page.line, style=_STYLE))
        return Group(
            *self._views(), Panel(Group(*lines), title=f"{self._scenario.title} — Ctrl-C ends")
        )
