"""The processes of a demo in one folder, and its measurements: what all demos have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa

from streamhouse.demo.driver import Check, Driver
from streamhouse.demo.folder import DemoFolder
from streamhouse.demo.latency import Latencies, SnapshotClock, ages_text
from streamhouse.demo.mariadb import MariaDB
from streamhouse.demo.scripted_changes import ScriptedSteps
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse

FIRST_SECONDS = 15.0
"""How long the freshness is not counted: the pipeline still starts."""


class DemoScenario(ABC):
    """Starts and stops all processes of a demo in one folder; the tables stay there.

    `warehouse`: a location outside of the folder; None: in it. `scripts` are the names of those of
    the pipeline in the folder. Within a `with` block, `clock` is that of the snapshots of the first
    of the `boards`.
    """

    title: ClassVar[str]
    """Of the live view."""
    starting: ClassVar[str]
    """What the demo waits for at its start."""
    result: ClassVar[str]
    """The name of the first result, in an error."""
    verification: ClassVar[str]
    """How the results are verified, in a progress message."""
    boards: ClassVar[tuple[str, ...]]
    """The tables that the live view shows; the first one gets what height is left."""
    counted: ClassVar[str]
    """What `count` counts."""
    measured: ClassVar[str]
    """From where to where the freshness is measured."""
    max_messages: ClassVar[int]
    drained: ClassVar[bool] = False
    """Whether the live view drains the pipeline before it verifies the results."""
    catch_up_s: ClassVar[float]
    """How long the pipeline may take to catch up at the end."""
    ages: Latencies

    def __init__(self, folder: Path, warehouse: str | None, scripts: Sequence[str]) -> None:
        self._own = DemoFolder(folder, warehouse)
        self.folder = self._own.path
        self.log = self._own.log
        self.warehouse = Warehouse(self._own.warehouse)
        self.view = TableAddress(self.warehouse.options, self.boards[0])
        self.mariadb = MariaDB(self.folder / "mariadb")
        self.scripts = [self.folder / name for name in scripts]
        self.driver = Driver(self.scripts, self._own.run_arguments, self.log)

    def __enter__(self) -> Self:
        self._own.claim()
        try:
            self.mariadb.start()
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        self.clock = self._begin_measuring()
        return self

    def __exit__(self, *exception: object) -> None:
        self._close()
        self.driver.kill()
        if hasattr(self, "clock"):
            self.clock.stop()
        self.mariadb.stop()
        self._own.release()

    @abstractmethod
    def _prepare(self) -> None:
        """Fill MySQL, and write the scripts; the MariaDB runs."""

    @abstractmethod
    def _begin_measuring(self) -> SnapshotClock:
        """Start the clock of the first board; sets `ages`, unless the constructor has."""

    def _close(self) -> None:  # noqa: B027 - optional
        """End what changes the sources."""

    def start(self) -> None:
        """Start the pipeline, or start it again."""
        self.driver.start()

    def drain(self, check: Check | None = None) -> None:
        """Run the pipeline once more, until it has caught up; `check` is called meanwhile."""
        self.driver.start("--until-caught-up")
        self.driver.wait(self.catch_up_s, check)

    def raise_if_failed(self) -> None:
        """Raise the error of a process that has failed."""
        self.driver.raise_if_failed()

    @abstractmethod
    def introduction(self) -> str:
        """What the demo runs, in a sentence."""

    @abstractmethod
    def begin(self, seconds: float | None) -> ScriptedSteps:
        """Start what a run of so many seconds changes; returns the scripted changes."""

    def end(self) -> None:  # noqa: B027 - optional
        """End what changes the sources, if the pipeline is to be drained."""

    @abstractmethod
    def end_measuring(self, check: Check) -> None:
        """End the measurements: the pipeline is about to be stopped."""

    @abstractmethod
    def count(self) -> int:
        """How many orders or changes there were."""

    @abstractmethod
    def lag(self, count: int, rows: pa.Table | None) -> str:
        """How far the first board, which has `rows`, is behind the `count`."""

    def update_ages(self) -> None:  # noqa: B027 - optional
        """Add to `ages` what the first board shows by now."""

    def progress(self) -> str:
        """What a progress message says beside the time: the freshness of the last rows."""
        self.update_ages()
        return f"{self.measured} {ages_text(self.ages.recent())}"

    def freshness_window(self) -> dict[str, float] | None:
        """Percentiles of the freshness since the last call."""
        self.update_ages()
        return self.ages.window()

    @abstractmethod
    def verdict(self) -> list[str]:
        """The results of the verification, as lines of rich markup, for the live view."""

    @abstractmethod
    def report(self, changes: ScriptedSteps) -> dict[str, Any]:
        """The demo's own part of the report, with the verification of its results."""


def equality(equal: bool) -> str:
    """`equal` or `different` in rich markup."""
    return "[green]equal[/green]" if equal else "[red]different[/red]"
