"""The scripted changes of the revenue demo: a customer moves, Santa is added, a MERGE runs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streamhouse.demo.driver import start_command
from streamhouse.demo.revenue.scenario import CUSTOMERS, MOVE, SANTA, VIEW, Scenario
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse

OLD, NEW, EMPTY = "France", "China", "North Pole"
_MOVE_S, _SANTA_S = 20.0, 40.0
_STEP_S = 90.0
"""How long one step may take, restarts of the driver included."""
_MERGE = Path(__file__).parent / "merge.sql"


class ScriptedChanges:
    """Makes the scripted changes in small steps, which the demo's own loop calls.

    Each step waits until the view shows the one before it, so that the result is the same whenever
    the driver is killed: once an order has counted for China, none can count for France any more.
    """

    def __init__(self, scenario: Scenario, seconds: float | None) -> None:
        self._scenario = scenario
        whole = float("inf") if seconds is None else seconds
        self._move_s = min(_MOVE_S, whole * 0.25)
        self._santa_s = min(_SANTA_S, whole * 0.5)
        self._started = time.monotonic()
        self._merge: subprocess.Popen[bytes] | None = None
        self._merged = False
        self._steps = self._run_steps()

    def step(self) -> str | None:
        """Do what is due; returns a message for the user, if any."""
        return next(self._steps, None)

    def finish(self) -> Iterator[str | None]:
        """Make the remaining changes without waiting; yields a message, if any, at each step."""
        self._move_s = self._santa_s = 0.0
        while not self._merged:
            yield self.step()
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill the merge job if it runs."""
        if self._merge is not None and self._merge.poll() is None:
            self._merge.kill()
            self._merge.wait()

    @property
    def merge_ok(self) -> bool:
        """Whether the merge had the expected effect, and later orders have not undone it."""
        rows = self._view()
        empty = rows.get(EMPTY)
        return (
            self._merged
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
        self._merge = start_command(
            ["run", str(_MERGE), "--warehouse", scenario.warehouse], scenario.folder / "log"
        )
        yield "MERGE INTO country_sales: inserts all countries of customers, deletes others"
        merge = self._merge
        yield from self._until(lambda: merge.poll() is not None, "the MERGE to finish")
        if merge.returncode != 0:
            raise StreamhouseError(f"the MERGE failed; see {scenario.folder / 'log'}")
        self._merged = True
        yield f"merged: added {EMPTY} with 0, and deleted {OLD}, where no customer lives any more"

    def _until(self, done: Callable[[], bool], what: str | None = None) -> Iterator[None]:
        deadline = time.monotonic() + _STEP_S
        while not done():
            if what is not None and time.monotonic() > deadline:
                raise StreamhouseError(
                    f"the demo waited {_STEP_S:.0f} s for {what}; see "
                    f"{self._scenario.folder / 'log'}"
                )
            yield None

    def _has_santa(self) -> bool:
        return any(row["id"] == 11 for row in self._rows(CUSTOMERS))

    def _view(self) -> dict[str, dict[str, Any]]:
        return {row["country"]: row for row in self._rows(VIEW)}

    def _rows(self, table: str) -> list[dict[str, Any]]:
        try:
            opened = Warehouse(self._scenario.warehouse).table(table)
        except TableError:
            return []
        if opened.latest_snapshot_id() is None:
            return []
        return [row for batch in opened.read() for row in batch.to_pylist()]
