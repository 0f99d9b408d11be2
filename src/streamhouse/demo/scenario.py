"""The processes of a demo in one folder, its scripted changes, and its measurements."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen
from typing import Any, ClassVar, Self

import pyarrow.compute as pc

from streamhouse.demo.child_process import start_command
from streamhouse.demo.driver import Check, Driver
from streamhouse.demo.latency import Latencies, SnapshotClock, ages_text
from streamhouse.durable_files import locked
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.files import files_of

_MARKER = ".streamhouse-demo"


NO_END = 9_000_000_000_000_000_000
"""So many generated rows that they never end."""
_FIRST_SECONDS = 15.0
"""How long the freshness is not counted: the pipeline still starts."""
_RECENT_COMMITS = 50
_STEP_TIMEOUT_S = 120.0
"""How long a scripted step may take, restarts of the driver included."""
_CATCH_UP_S = 300.0
"""How long the pipeline may take to catch up at the end."""


class DemoFolder:
    """Where a demo keeps its servers' data, its warehouse and its log.

    `warehouse` is the location of a warehouse outside the folder, in an object store; None: the
    folder `warehouse`.
    """

    def __init__(self, path: Path, warehouse: str | None = None) -> None:
        self.path = path.absolute()
        self._remote = warehouse is not None
        self.warehouse = warehouse or str(self.path / "warehouse")
        self.log = self.path / "log"
        self._lock = ExitStack()

    @property
    def run_arguments(self) -> list[str]:
        """Arguments of `streamhouse run`: the warehouse, and where the checkpoints are."""
        arguments = ["--warehouse", self.warehouse]
        if self._remote:
            arguments += ["--checkpoints", str(self._checkpoints)]
        return arguments

    def claim(self) -> None:
        """Lock the folder and empty the warehouse; `StreamhouseError` if another demo has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as lock:
            if not lock.enter_context(locked(self.path, wait_s=0)):
                raise StreamhouseError(
                    f"a demo is already running in {self.path}; stop it, or use another folder by "
                    "--dir DIR"
                )
            self._empty()
            self._lock = lock.pop_all()

    def _empty(self) -> None:
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        if self._remote:
            self._empty_remote()
        else:
            shutil.rmtree(self.warehouse, ignore_errors=True)
            Path(self.warehouse).mkdir()
        self.log.unlink(missing_ok=True)

    def _empty_remote(self) -> None:
        """Delete what an earlier demo left in the object store, but nothing of others."""
        files = files_of(self.warehouse, {"warehouse": self.warehouse})
        marker = f"{self.warehouse}/{_MARKER}"
        if files.names(self.warehouse) and not files.exists(marker):
            raise StreamhouseError(
                f"{self.warehouse} is not empty, and the demo would delete all of it; name an "
                "empty folder of the bucket"
            )
        files.delete(self.warehouse)
        files.write_text(marker, "This folder is a demo's: it is emptied when a demo starts.\n")

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def release(self) -> None:
        """Unlock the folder."""
        self._lock.close()


class ScriptedSteps:
    """Makes changes one after another, here none; each waits until its effect can be read.

    A subclass yields from `_run_steps`: a message for the user, or None while it waits.
    """

    def __init__(self, scenario: DemoScenario) -> None:
        self.done = False
        """Whether all steps are over, with the expected effects."""
        self.followed = False
        """Whether all steps that need the running pipeline are over."""
        self._warehouse, self._log = scenario.warehouse, scenario.log
        self._rows_of: tuple[object, ...] = ()
        self._cached_rows: list[dict[str, Any]] = []
        self._started = time.monotonic()
        self._hurries = False
        self._job: Popen[bytes] | None = None
        self._steps = self._run_steps()

    def _run_steps(self) -> Iterator[str | None]:
        """Make all changes, and set `done`."""
        self.done = self.followed = True
        yield None

    @property
    def succeeded(self) -> bool:
        """Whether the tables still show the effects of all steps."""
        return self.done

    def step(self) -> str | None:
        """Do what is due; returns a message for the user, if any."""
        return next(self._steps, None)

    def finish(self) -> Iterator[str | None]:
        """Make the remaining changes without pauses; yields a message, if any, at each step."""
        self._hurries = True
        while not self.done:
            yield self.step()
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill the command that runs, if any."""
        if self._job is not None and self._job.poll() is None:
            self._job.kill()
            self._job.wait()

    def _pause(self, seconds: float, since: float | None = None) -> Iterator[None]:
        """Wait, by default from now on; ends at once when the remaining changes are to be made."""
        due = seconds + (time.monotonic() if since is None else since)
        return self._until(lambda: self._hurries or time.monotonic() >= due)

    def _until(self, done: Callable[[], bool], what: str | None = None) -> Iterator[None]:
        """Wait for a condition; for `what`, at most `_STEP_TIMEOUT_S`."""
        deadline = time.monotonic() + _STEP_TIMEOUT_S
        while not done():
            if what is not None and time.monotonic() > deadline:
                raise StreamhouseError(
                    f"the demo waited {_STEP_TIMEOUT_S:.0f} s for {what}; see {self._log}"
                )
            yield None

    def _run(self, *words: str, log: Path | None = None) -> Iterator[None]:
        """Run a `streamhouse` command, as an operator would."""
        command, log = [*words, "--warehouse", self._warehouse.path], log or self._log
        job = self._job = start_command(command, log)
        yield from self._until(lambda: job.poll() is not None, f"`{words[0]}` to finish")
        if job.returncode != 0:
            raise StreamhouseError(
                f"a step of the demo failed: streamhouse {' '.join(words)}; see {log}"
            )

    def _rows(self, name: str, column: str = "", value: object = None) -> list[dict[str, Any]]:
        """The rows of a table, or those with a value in a column."""
        only = {"method": "equal", "field": column, "literals": [value]} if column else None
        try:
            table = self._warehouse.table(name)
            latest = table.latest_snapshot_id()
            if latest is None:
                return []
            if (name, column, value, latest) != self._rows_of:
                read = table.read(snapshot=latest, filter=only)
                rows = [row for batch in read for row in batch.to_pylist()]
                self._cached_rows = [r for r in rows if not column or r[column] == value]
                self._rows_of = (name, column, value, latest)
            return self._cached_rows
        except StreamhouseError:
            # The table does not exist yet, or its snapshot expired while it was read.
            return []


class DemoScenario(ABC):
    """Starts and stops all processes of a demo in one folder; the tables stay there.

    `warehouse`: a location outside of the folder; None: in it. `scripts` are the names of those of
    the pipeline in the folder. Within a `with` block, `clock` is that of the snapshots of the first
    of the `boards`, and `servers` are those that the pipeline reads.
    """

    title: ClassVar[str]
    """Of the live view."""
    starting: ClassVar[str]
    """What the demo waits for at its start."""
    verification: ClassVar[str]
    """How the results are verified, in a progress message."""
    boards: ClassVar[tuple[str, ...]]
    """The tables that the live view shows; the first one gets what height is left."""
    counted: ClassVar[str]
    """What `count` counts."""
    measured: ClassVar[str]
    """From where to where the freshness is measured."""
    drained: ClassVar[bool] = False
    """Whether the live view drains the pipeline before it verifies the results."""

    def __init__(self, folder: Path, warehouse: str | None, scripts: Sequence[str]) -> None:
        self._own = DemoFolder(folder, warehouse)
        self.folder = self._own.path
        self.log = self._own.log
        self.warehouse = Warehouse(self._own.warehouse)
        self.view = TableAddress(self.warehouse.options, self.boards[0])
        self.ages = Latencies(_FIRST_SECONDS, _RECENT_COMMITS)
        """The freshness of the first board."""
        self.servers = ExitStack()
        self.scripts = [self.folder / name for name in scripts]
        self.driver = Driver(self.scripts, self._own.run_arguments, self.log)

    def __enter__(self) -> Self:
        self._own.claim()
        try:
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        self.clock = SnapshotClock(self.view, self._committed)
        return self

    def __exit__(self, *exception: object) -> None:
        self._close()
        self.driver.kill()
        if hasattr(self, "clock"):
            self.clock.stop()
        self.servers.close()
        self._own.release()

    @abstractmethod
    def _prepare(self) -> None:
        """Start and fill the servers, and write the scripts."""

    def _committed(self, board: Table, snapshot: int, at_s: float) -> None:  # noqa: B027 - optional
        """Add to `ages` what a snapshot of the first board, readable at a time, has more."""

    def _close(self) -> None:  # noqa: B027 - optional
        """End what changes the sources."""

    def start(self) -> None:
        """Start the pipeline, or start it again."""
        self.driver.start()

    def drain(self, check: Check | None = None) -> None:
        """Run the pipeline once more, until it has caught up; `check` is called meanwhile."""
        self.driver.start("--until-caught-up")
        self.driver.wait(_CATCH_UP_S, check)

    def raise_if_failed(self) -> None:
        """Raise the error of a process that has failed, or of the clock."""
        self.driver.raise_if_failed()
        self.clock.check()

    @abstractmethod
    def introduction(self) -> str:
        """What the demo runs, in a sentence."""

    def begin(self, seconds: float | None) -> ScriptedSteps:
        """Start what a run of so many seconds changes; returns the scripted changes."""
        return ScriptedSteps(self)

    def end(self) -> None:  # noqa: B027 - optional
        """End what changes the sources, if the pipeline is to be drained."""

    def end_measuring(self, check: Check) -> None:
        """End the measurements, before the pipeline is stopped; `check` is called meanwhile."""
        self.ages.end()

    @abstractmethod
    def count(self) -> int:
        """How many orders or changes there were."""

    @abstractmethod
    def lag(self) -> str:
        """How far the first board is behind the sources."""

    def rows(self, name: str) -> int:
        """How many rows a table has; 0 while it does not exist."""
        try:
            table = self.warehouse.table(name)
        except TableError:
            return 0
        latest = table.latest_snapshot_id()
        return 0 if latest is None else table.snapshot(latest).total_record_count or 0

    def total(self, name: str, column: str) -> int:
        """The sum of a column of a table; 0 while it has no rows."""
        if not self.rows(name):
            return 0
        return pc.sum(self.warehouse.table(name).rows([column]).column(0)).as_py() or 0

    def update_ages(self) -> None:  # noqa: B027 - optional
        """Add to `ages` what the first board shows by now."""

    def progress(self) -> str:
        """What a progress message says beside the time: the count, and the last rows' freshness."""
        self.update_ages()
        recent = ages_text(self.ages.recent())
        return f"{self.count():,} {self.counted}, {self.measured} {recent}"

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
