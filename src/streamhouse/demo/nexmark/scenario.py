"""The Nexmark demo: its pipeline, measurements and verification."""

from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.demo.driver import Check
from streamhouse.demo.scenario import NO_END, DemoScenario, ScriptedSteps, equality
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.audit.audit import audit

VIEWS = ("nexmark.category_prices", "nexmark.highest_bids", "nexmark.new_sellers")
TABLES = ("nexmark.person", "nexmark.auction", "nexmark.bid")
_SCRIPT = "nexmark.sql"
_LAST_BID = "last_bid"
_TICK_MS = 10.0


class Nexmark(DemoScenario):
    """Three views of Nexmark's queries, over events at a steady rate."""

    title = "auctions of Nexmark, live"
    starting = "starting Spark and the views"
    verification = "recomputing the views from all events"
    boards = (VIEWS[0], VIEWS[2])
    counted = "events"
    measured = "bid to view"

    def __init__(self, folder: Path, events_per_second: int, warehouse: str | None = None) -> None:
        super().__init__(folder, warehouse, (_SCRIPT,))
        self._events_per_second = events_per_second
        self._seen_to_ms: float | None = None

    def _prepare(self) -> None:
        self._write_script(NO_END)

    def _committed(self, board: Table, snapshot: int, at_s: float) -> None:
        """Add the ages of the bids that a snapshot of the first view is the first to include.

        Bids arrive at a steady rate, so each 10 ms between the last bids of two snapshots counts.
        """
        found = [pc.max(batch.column(_LAST_BID)) for batch in board.read([_LAST_BID], snapshot)]
        times = [value.cast(pa.timestamp("ms")).value for value in found if value.is_valid]
        newest, before = max(times, default=None), self._seen_to_ms
        if newest is None:
            return
        self._seen_to_ms = newest
        if before is not None and newest > before:
            self.ages.add(np.arange(newest, before, -_TICK_MS), at_s * 1000)

    def introduction(self) -> str:
        """What the demo runs."""
        return (
            f"Persons, auctions and bids will arrive, {self._events_per_second:,} a second; three "
            "views follow them."
        )

    def drain(self, check: Check | None = None) -> None:
        """Run the pipeline once more without new events, until it has caught up."""
        self._write_script(1)
        super().drain(check)

    def count(self) -> int:
        """The events that have been read."""
        return sum(map(self.rows, TABLES))

    def lag(self) -> str:
        """How many bids the view of ten seconds does not count yet."""
        return f"{max(0, self.rows(TABLES[-1]) - self.total(VIEWS[1], 'bids')):,} bids"

    def verdict(self) -> list[str]:
        """Whether the views are what their events give."""
        return [
            f"audit: {view} is {equality(equal)} to a batch recomputation"
            for view, equal in self._audits().items()
        ]

    def report(self, changes: ScriptedSteps) -> dict[str, Any]:
        """The demo's own part of what `streamhouse demo --json` prints."""
        return {
            "events": self.count(),
            "equal": all(self._audits().values()),
        }

    def _audits(self) -> dict[str, bool]:
        return {view: audit(self.warehouse.options, view).equal for view in VIEWS}

    def _write_script(self, events: int) -> None:
        text = (Path(__file__).parent / _SCRIPT).read_text()
        values = {"events_per_second": self._events_per_second, "events": events}
        (self.folder / _SCRIPT).write_text(Template(text).substitute(values))
