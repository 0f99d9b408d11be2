"""The membership demo on a terminal: the two boards, live, with rates and lag."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import RenderableType

from streamhouse.cli.table_view import TableView
from streamhouse.demo.latency import ages_text
from streamhouse.demo.live_screen import LiveScreen
from streamhouse.demo.membership.scenario import MEMBER_BOARD, SPRINT_BOARD, Membership
from streamhouse.demo.membership.steps import MembershipChanges
from streamhouse.serve.feeds.table_feed import TableFeed

_RATES_EVERY_S = 1.0
_BOARD_LINES = 7
"""The height of the smaller board, in lines of the terminal."""


class MembershipScreen(LiveScreen[Membership]):
    """Draws the boards; then verifies all results."""

    title = "membership, live"
    starting = "starting Spark and the four layers"
    max_messages = 5
    _boards: Sequence[tuple[TableFeed, TableView]] = ()
    _counts: Sequence[tuple[float, int]] = ()

    def _introduce(self) -> None:
        scenario = self._scenario
        self._console.print(f"[bold]Streamhouse membership demo[/bold] in {scenario.folder}")
        self._console.print(
            f"MariaDB runs on port {scenario.mariadb.port}; the demo will insert, correct "
            "and cancel orders of members there, some of them late."
        )

    def _begin(self) -> MembershipChanges:
        scenario = self._scenario
        feeds = [TableFeed(scenario.warehouse, name) for name in (SPRINT_BOARD, MEMBER_BOARD)]
        self._boards = [(feed, TableView(feed)) for feed in feeds]
        return scenario.begin(self._seconds)

    def _update(self) -> None:
        for feed, view in self._boards:
            change = feed.poll()
            if change is not None:
                view.apply(change)
        now = time.monotonic()
        if not self._counts or now - self._counts[-1][0] >= _RATES_EVERY_S:
            self._counts = [*self._counts[-10:], (now, self._scenario.business.changes)]

    def _views(self) -> Sequence[RenderableType]:
        height = max(8, self._console.size.height - _BOARD_LINES - len(self._messages) - 4)
        heights = (height, _BOARD_LINES)
        return [view.render(lines) for (_, view), lines in zip(self._boards, heights, strict=True)]

    def _rates(self) -> str:
        if len(self._counts) < 2:
            return "measuring …"
        (t0, n0), (t1, n1) = self._counts[0], self._counts[-1]
        parts = [f"{n1:,} changes in MySQL", f"{(n1 - n0) / (t1 - t0):,.0f}/s"]
        ages = self._scenario.probes.ages.recent()
        if ages:
            parts.append(f"MySQL to board {ages_text(ages)}")
        parts.append(f"lag {self._scenario.probes.waiting:,} of the desk's orders")
        return "  ·  ".join(parts)

    def _end(self) -> None:
        scenario = self._scenario
        scenario.business.stop()
        with self._console.status("stopping between two batches …"):
            scenario.driver.stop()
        if not self._boards:
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
        self._print_query(SPRINT_BOARD, scenario.warehouse.path)
