"""The membership demo on a terminal: the two boards, live, with rates and lag."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from streamhouse.cli.table_view import TableView
from streamhouse.demo.driver import Check
from streamhouse.demo.membership.measure import wait_for_board
from streamhouse.demo.membership.scenario import MEMBER_BOARD, SPRINT_BOARD, Membership
from streamhouse.demo.membership.steps import ScriptedChanges
from streamhouse.demo.page import Page
from streamhouse.demo.revenue.scenario import Kills
from streamhouse.serve.feeds.table_feed import TableFeed

_RATES_EVERY_S = 1.0
_BOARD_LINES = 7
"""The height of the smaller board, in lines of the terminal."""
_MAX_MESSAGES = 5


class LiveView:
    """Draws the boards until the time is over or Ctrl-C; then verifies all results."""

    def __init__(
        self,
        scenario: Membership,
        seconds: float | None,
        kills: Kills | None,
        check: Check,
        page: Page | None = None,
    ) -> None:
        self._scenario = scenario
        self._seconds = seconds
        self._kills = kills
        self._check = check
        self._page = page
        self._console = Console()
        self._messages: list[str] = []
        self._views: list[tuple[TableFeed, TableView]] = []
        self._scripted: ScriptedChanges | None = None
        self._changes: list[tuple[float, int]] = []

    def run(self) -> None:
        """Run the whole demo."""
        scenario = self._scenario
        self._console.print(f"[bold]Streamhouse membership demo[/bold] in {scenario.folder}")
        self._console.print(
            f"MariaDB runs on port {scenario.mariadb.port}; the demo will insert, correct "
            "and cancel orders of members there, some of them late."
        )
        scenario.start()
        try:
            with self._console.status("starting Spark and the four layers …"):
                wait_for_board(scenario, self._check_and_print_address)
            self._watch()
        except KeyboardInterrupt:
            pass
        self._end()

    def _watch(self) -> None:
        scenario = self._scenario
        for name in (SPRINT_BOARD, MEMBER_BOARD):
            feed = TableFeed(scenario.warehouse, name)
            self._views.append((feed, TableView(feed)))
        self._scripted = ScriptedChanges(scenario)
        scenario.business.start()
        started = time.monotonic()
        plain = not sys.stdout.isatty()
        with Live(self._frame(), console=self._console, auto_refresh=False) as live:
            while self._seconds is None or time.monotonic() - started < self._seconds:
                self._step()
                if not plain:
                    live.update(self._frame(), refresh=True)
                time.sleep(0.05)
            live.update(self._frame(), refresh=True)

    def _check_and_print_address(self) -> None:
        self._check()
        self._print_page_address()

    def _print_page_address(self) -> None:
        news = None if self._page is None else self._page.news()
        if news is not None:
            self._console.print(Text(news, style="bold cyan"), soft_wrap=True)

    def _step(self) -> None:
        scenario = self._scenario
        self._check_and_print_address()
        scenario.driver.check()
        scenario.business.check()
        for feed, view in self._views:
            change = feed.poll()
            if change is not None:
                view.take(change)
        assert self._scripted is not None
        for message in (self._kills and self._kills.step(scenario), self._scripted.step()):
            if message:
                self._messages = [
                    *self._messages[1 - _MAX_MESSAGES :],
                    f"{time.strftime('%H:%M:%S')}  {message}",
                ]
        now = time.monotonic()
        if not self._changes or now - self._changes[-1][0] >= _RATES_EVERY_S:
            self._changes = [*self._changes[-10:], (now, scenario.business.changes)]

    def _frame(self) -> Any:
        height = max(8, self._console.size.height - _BOARD_LINES - len(self._messages) - 4)
        boards = [
            view.render(lines)
            for (_, view), lines in zip(self._views, (height, _BOARD_LINES), strict=True)
        ]
        lines = [
            Text(self._rates()),
            *(Text(message, style="yellow") for message in self._messages),
        ]
        if self._page is not None and self._page.line is not None:
            lines.insert(0, Text(self._page.line, style="bold cyan"))
        return Group(*boards, Panel(Group(*lines), title="membership, live — Ctrl-C ends"))

    def _rates(self) -> str:
        if len(self._changes) < 2:
            return "measuring …"
        (t0, n0), (t1, n1) = self._changes[0], self._changes[-1]
        parts = [f"{n1:,} changes in MySQL", f"{(n1 - n0) / (t1 - t0):,.0f}/s"]
        ages = self._scenario.probes.recent()
        if ages:
            parts.append(f"MySQL to board p50 {ages['p50']:,.0f} ms, p99 {ages['p99']:,.0f} ms")
        parts.append(f"lag {self._scenario.probes.waiting:,} of the desk's orders")
        return "  ·  ".join(parts)

    def _end(self) -> None:
        scenario = self._scenario
        scenario.business.stop()
        if self._scripted is not None:
            self._scripted.stop()
        with self._console.status("stopping between two batches …"):
            scenario.driver.stop()
        if not self._views:
            return
        with self._console.status("processing the remaining changes …"):
            scenario.drain()
        with self._console.status("recomputing all results from ODS and from MySQL …"):
            proofs = scenario.proofs()
        verdict = "[green]equal[/green]" if proofs["equal"] else "[red]different[/red]"
        audited = "[green]equal[/green]" if proofs["audited"] else "[red]different[/red]"
        self._console.print(
            f"{proofs['orders']:,} orders; DWS and APP are {verdict} to batch queries over ODS and "
            f"over MySQL, and {audited} by `streamhouse audit`"
        )
        for wrong in proofs["wrong"]:
            self._console.print(f"  [red]{wrong}[/red]")
        self._console.print("The tables remain. Query them without Spark:")
        self._console.print(
            f'  streamhouse query "SELECT * FROM {SPRINT_BOARD}" --warehouse '
            f"{scenario.warehouse.path}",
            soft_wrap=True,
        )
