"""The revenue demo on a terminal: the view, live, with its rates and freshness."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import RenderableType

from streamhouse.cli.table_view import TableView
from streamhouse.demo.latency import ages_text
from streamhouse.demo.live_screen import LiveScreen
from streamhouse.demo.revenue.scenario import ORDERS, UNMATCHED, VIEW, Scenario
from streamhouse.demo.revenue.steps import RevenueChanges
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.feeds.table_feed import TableFeed

_FRESHNESS_EVERY_S = 1.0
_OWN_LINES = 8


class RevenueScreen(LiveScreen[Scenario]):
    """Draws the view; then audits it."""

    title = "revenue per country, live"
    starting = "starting Spark and the queries"
    max_messages = 4
    _feed: TableFeed | None = None
    _view: TableView | None = None
    _orders: Sequence[tuple[float, int]] = ()
    _freshness: dict[str, float] | None = None
    _measured = 0.0

    def _introduce(self) -> None:
        scenario = self._scenario
        self._console.print(f"[bold]Streamhouse demo[/bold] in {scenario.folder}")
        origin = "datagen" if scenario.kafka is None else "a producer for its Kafka broker"
        self._console.print(
            f"MariaDB runs on port {scenario.mariadb.port} with 10 customers; "
            f"{origin} will generate {scenario.orders_per_second:,} orders per second."
        )

    def _begin(self) -> RevenueChanges:
        self._feed = TableFeed(Warehouse(self._scenario.warehouse), VIEW)
        self._view = TableView(self._feed)
        return self._scenario.begin(self._seconds)

    def _update(self) -> None:
        assert self._feed is not None and self._view is not None
        change = self._feed.poll()
        if change is not None:
            self._view.apply(change)
        now = time.time()
        if now - self._measured < _FRESHNESS_EVERY_S:
            return
        self._measured = now
        self._scenario.freshness.update()
        self._freshness = self._scenario.freshness.ages.recent()
        self._orders = [*self._orders[-10:], (now, self._scenario.rows(ORDERS))]

    def _views(self) -> Sequence[RenderableType]:
        assert self._view is not None
        height = max(8, self._console.size.height - _OWN_LINES - len(self._messages))
        return [self._view.render(height)]

    def _rates(self) -> str:
        if len(self._orders) < 2:
            return "measuring …"
        (t0, n0), (t1, n1) = self._orders[0], self._orders[-1]
        parts = [f"{n1:,} orders", f"{(n1 - n0) / (t1 - t0):,.0f}/s"]
        if self._freshness:
            parts.append(f"order to view {ages_text(self._freshness)}")
        parts.append(f"lag {max(0, n1 - self._orders_in_view()):,} orders")
        return "  ·  ".join(parts)

    def _orders_in_view(self) -> int:
        rows = None if self._feed is None else self._feed.rows
        if rows is None:
            return 0
        return sum(n or 0 for n in rows.column("orders").to_pylist())

    def _end(self) -> None:
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
        self._print_query(VIEW, self._scenario.warehouse)
