"""The scripted changes of the revenue demo: a customer moves, Santa is added, a MERGE runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamhouse.demo.driver import start_command
from streamhouse.demo.revenue.scenario import CUSTOMERS, MOVE, SANTA, VIEW, Scenario
from streamhouse.demo.scripted_changes import ScriptedSteps
from streamhouse.errors import StreamhouseError, TableError

OLD, NEW, EMPTY = "France", "China", "North Pole"
_MOVE_S, _SANTA_S = 20.0, 40.0
_MERGE = Path(__file__).parent / "merge.sql"


class RevenueChanges(ScriptedSteps):
    """Moves a customer, adds Santa, and merges the countries into the view.

    Each step waits until the view shows the one before it, so that the result is the same whenever
    the driver is killed: once an order has counted for China, none can count for France any more.
    """

    timeout_s = 90.0

    def __init__(self, scenario: Scenario, seconds: float | None) -> None:
        super().__init__(scenario.log)
        self._scenario = scenario
        whole = float("inf") if seconds is None else seconds
        self._move_s = min(_MOVE_S, whole * 0.25)
        self._santa_s = min(_SANTA_S, whole * 0.5)

    def _skip_pauses(self) -> None:
        self._move_s = self._santa_s = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether the merge had the expected effect, and later orders have not undone it."""
        rows = self._view()
        empty = rows.get(EMPTY)
        return (
            self.done
            and empty is not None
            and (empty["orders"], empty["revenue"]) == (0, 0)
            and OLD not in rows
            and rows.get(NEW, {}).get("orders", 0) > 0
        )

    def _run_steps(self) -> Iterator[str | None]:
        scenario = self._scenario
        yield from self._until(lambda: time.monotonic() - self._started >= self._move_s)
        scenario.execute(MOVE)
        yield f"in MySQL: {MOVE} — new orders of this customer count for {NEW}"
        yield from self._until(lambda: time.monotonic() - self._started >= self._santa_s)
        yield from self._until(lambda: NEW in self._view(), f"{NEW} to appear in the view")
        scenario.execute(SANTA)
        yield f"in MySQL: {SANTA}"
        yield from self._until(self._has_santa, "Santa to reach the warehouse")
        merge = self._job = start_command(
            ["run", str(_MERGE), "--warehouse", scenario.warehouse.path], scenario.log
        )
        yield "MERGE INTO country_sales: inserts all countries of customers, deletes others"
        yield from self._until(lambda: merge.poll() is not None, "the MERGE to finish")
        if merge.returncode != 0:
            raise StreamhouseError(f"the MERGE failed; see {scenario.log}")
        self.done = self.followed = True
        yield f"merged: added {EMPTY} with 0, and deleted {OLD}, where no customer lives any more"

    def _has_santa(self) -> bool:
        return any(row["id"] == 11 for row in self._rows(CUSTOMERS))

    def _view(self) -> dict[str, dict[str, Any]]:
        return {row["country"]: row for row in self._rows(VIEW)}

    def _rows(self, table: str) -> list[dict[str, Any]]:
        try:
            opened = self._scenario.warehouse.table(table)
        except TableError:
            return []
        if opened.latest_snapshot_id() is None:
            return []
        return [row for batch in opened.read() for row in batch.to_pylist()]
