"""The revenue demo on a terminal: the view, live, with its rates and freshness."""

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
from streamhouse.demo.page import Page
from streamhouse.demo.revenue.scenario import ORDERS, UNMATCHED, VIEW, Kills, Scenario
from streamhouse.demo.revenue.steps import ScriptedChanges
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.feeds.table_feed import TableFeed

_START_S = 120.0
_FRESHNESS_EVERY_S = 1.0
_OWN_LINES = 8


class LiveView:
    """Draws the view until the time is over or Ctrl-C; then audits it."""

    def __init__(
        self,
        scenario: Scenario,
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
        self._changes: ScriptedChanges | None = None
        self._feed: TableFeed | None = None
        self._view: TableView | None = None
        self._orders: list[tuple[float, int]] = []
        self._freshness: dict[str, float] | None = None
        self._measured = 0.0

    def run(self) -> None:
        """Run the whole demo."""
        self._console.print(f"[bold]Streamhouse demo[/bold] in {self._scenario.folder}")
        origin = "datagen" if self._scenario.kafka is None else "a producer for its Kafka broker"
        self._console.print(
            f"MariaDB runs on port {self._scenario.mariadb.port} with 10 customers; "
            f"{origin} will generate {self._scenario.orders_per_second:,} orders per second."
        )
        self._scenario.start()
        try:
            self._wait_for_view()
            self._watch()
        except KeyboardInterrupt:
            pass
        self._end()

    def _wait_for_view(self) -> None:
        started = time.time()
        with self._console.status("starting Spark and the queries …") as status:
            while self._feed is None:
                self._check()
                self._print_page_address()
                self._scenario.driver.check()
                elapsed = time.time() - started
                if elapsed > _START_S:
                    raise StreamhouseError(
                        f"the view is still empty after {_START_S:.0f} s; see "
                        f"{self._scenario.folder / 'log'}"
                    )
                status.update(f"starting Spark and the queries … {elapsed:.0f} s")
                if self._scenario.clock.first_after(0) is not None:
                    self._feed = TableFeed(Warehouse(self._scenario.warehouse), VIEW)
                time.sleep(0.05)
        self._started = time.time()
        self._changes = ScriptedChanges(self._scenario, self._seconds)

    def _watch(self) -> None:
        assert self._feed is not None
        self._view = TableView(self._feed)
        plain = not sys.stdout.isatty()
        with Live(self._frame(), console=self._console, auto_refresh=False) as live:
            while self._seconds is None or time.time() - self._started < self._seconds:
                self._check()
                self._print_page_address()
                change = self._feed.poll()
                if change is not None:
                    self._view.take(change)
                self._run_steps()
                self._measure()
                if not plain:
                    live.update(self._frame(), refresh=True)
                time.sleep(0.05)
            live.update(self._frame(), refresh=True)

    def _run_steps(self) -> None:
        assert self._changes is not None
        self._scenario.driver.check()
        for message in (self._kills and self._kills.step(self._scenario), self._changes.step()):
            if message:
                self._add_message(message)

    def _measure(self) -> None:
        now = time.time()
        if now - self._measured < _FRESHNESS_EVERY_S:
            return
        self._measured = now
        self._scenario.freshness.update()
        self._freshness = self._scenario.freshness.recent()
        self._orders = [*self._orders[-10:], (now, self._scenario.rows(ORDERS))]

    def _print_page_address(self) -> None:
        news = None if self._page is None else self._page.news()
        if news is not None:
            self._console.print(Text(news, style="bold cyan"), soft_wrap=True)

    def _add_message(self, text: str) -> None:
        stamp = time.strftime("%H:%M:%S")
        self._messages = [*self._messages[-3:], f"{stamp}  {text}"]

    def _frame(self) -> Any:
        assert self._view is not None
        height = max(8, self._console.size.height - _OWN_LINES - len(self._messages))
        lines = [
            Text(self._rates()),
            *(Text(message, style="yellow") for message in self._messages),
        ]
        if self._page is not None and self._page.line is not None:
            lines.insert(0, Text(self._page.line, style="bold cyan"))
        title = "revenue per country, live — Ctrl-C ends"
        return Group(self._view.render(height), Panel(Group(*lines), title=title))

    def _rates(self) -> str:
        if len(self._orders) < 2:
            return "measuring …"
        (t0, n0), (t1, n1) = self._orders[0], self._orders[-1]
        parts = [f"{n1:,} orders", f"{(n1 - n0) / (t1 - t0):,.0f}/s"]
        if self._freshness:
            p50, p99 = self._freshness["p50"], self._freshness["p99"]
            parts.append(f"order to view p50 {p50:,.0f} ms, p99 {p99:,.0f} ms")
        parts.append(f"lag {max(0, n1 - self._orders_in_view()):,} orders")
        return "  ·  ".join(parts)

    def _orders_in_view(self) -> int:
        rows = None if self._feed is None else self._feed.rows
        if rows is None:
            return 0
        return sum(n or 0 for n in rows.column("orders").to_pylist())

    def _end(self) -> None:
        if self._changes is not None:
            self._changes.stop()
        with self._console.status("stopping between two batches …"):
            self._scenario.driver.stop()
        if self._feed is None:
            return
        with self._console.status("recomputing the view from its orders …"):
            self._scenario.freshness.update()
            try:
                result = self._scenario.audit()
            except TableError:
                return
        verdict = "[green]equal[/green]" if result.equal else "[red]different[/red]"
        self._console.print(
            f"audit: the view is {verdict} to a batch recomputation from {result.joined_rows:,} "
            f"orders ({self._scenario.rows(UNMATCHED):,} without a customer)"
        )
        warehouse = self._scenario.warehouse
        self._console.print("The tables remain. Query them without Spark:")
        self._console.print(
            f'  streamhouse query "SELECT * FROM {VIEW}" --warehouse {warehouse}', soft_wrap=True
        )
