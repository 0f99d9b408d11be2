"""Scripts run as a user runs them: the command as a process, its whole tree watched by a mark."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import pyarrow as pa
import pytest
from tests.integration.differential.local_run import without_spark
from tests.processes import Command, reachable
from tests.waiting import DEADLINE_S, NotSeenError, looks, until

import streamhouse
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime import failpoint
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.runtime.streaming.query import QueryFailed
from streamhouse.sql.statements.script import parse_script

MARK = "STREAMHOUSE_TEST_RUN"
INSTALLED = (str(Path(sys.executable).with_name("streamhouse")),)
_CUT_OFF = "cut off at a failpoint"
Until = Callable[[Callable[[], Any]], None]
"""Waits until something is so."""
Dying = Callable[[str, str], contextlib.AbstractContextManager[Until]]
"""Runs a script, which must end at a failpoint (`runtime.failpoint`), beside the `with`; the `with`
ends then, too."""


REPORT = re.compile(
    r"starting Spark …|\d+ quer(y runs|ies run) after .*"
    r"|(after \d+ s|stopped|caught up): [\d,]+ rows? into .*"
)
"""A line by which a run reports its start, its progress or its end."""


@dataclass(frozen=True)
class Ended:
    """How a run of the command ended; `err` without its reports, which `reports` has."""

    code: int
    out: str
    err: str
    reports: tuple[str, ...] = ()

    @classmethod
    def of(cls, code: int, out: str, err: str) -> Ended:
        lines = err.splitlines(keepends=True)
        reports = tuple(line.rstrip() for line in lines if REPORT.fullmatch(line.rstrip()))
        others = "".join(line for line in lines if not REPORT.fullmatch(line.rstrip()))
        return cls(code, out, others, reports)


class Run:
    """One running `streamhouse` command, with its output in files, so that no pipe fills up.

    Without `spark` its queries run in threads, and it is a fork (`tests.processes.Command`).
    """

    deadline_s = DEADLINE_S

    def __init__(
        self,
        folder: Path,
        arguments: list[str],
        env: Mapping[str, str],
        mark: str | None = None,
        spark: bool = True,
    ) -> None:
        self.mark = mark or uuid.uuid4().hex
        output = uuid.uuid4().hex
        self._out = folder / f"{output}.out"
        self._err = folder / f"{output}.err"
        given = {"COLUMNS": "200", **env, MARK: self.mark}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process: subprocess.Popen[bytes] | Command
            if not spark:
                self.process = Command(arguments, out.fileno(), err.fileno(), given, spark=False)
                return
            self.process = subprocess.Popen(
                [*INSTALLED, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={**os.environ, **given},
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait(self) -> Ended:
        """Wait for the command's end, and for the end of all that it had started."""
        try:
            code = self.process.wait(self.deadline_s)
        except subprocess.TimeoutExpired:
            stacks = self._stacks()
            self.kill()
            raise AssertionError(f"still running: {stacks}") from None
        self.gone()
        return Ended.of(code, self.out, self.err)

    def until(self, what: Callable[[], Any]) -> Any:
        """Wait until `what` gives something, while the command runs."""
        try:
            for _ in looks(self._stacks, self.deadline_s):
                if found := what():
                    break
                if (code := self.process.poll()) is not None:
                    raise AssertionError(f"ended with {code}: {self.err}")
        except NotSeenError:
            self.kill()
            raise
        self.closed()
        return found

    def _stacks(self) -> str:
        """Its errors, with the stacks of all its threads."""
        self.signal(signal.SIGUSR1)
        time.sleep(1.0)
        return self.err

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def closed(self) -> None:
        """Fail if other machines can reach a port of the command."""
        open_to_all = reachable((self.process.pid, *self.tree()))
        assert not open_to_all, f"others can reach {sorted(open_to_all)}"

    def kill(self) -> None:
        """SIGKILL for the whole tree."""
        for pid in (self.process.pid, *self.tree()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)
        self.gone()

    def kill_driver(self) -> None:
        """SIGKILL for the process that was started, and for nothing else."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def tree(self) -> list[int]:
        """All processes that descend from the command, orphans too."""
        return list(marked(self.mark))

    def gone(self) -> None:
        """Fail if a process is left; driver and JVM end one after the other."""
        until(lambda: not self.tree(), self._kill_left)

    def _kill_left(self) -> str:
        """Kill the processes that are left; returns what they were."""
        left = {pid: _command(pid) for pid in self.tree()}
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return f"processes left: {left}"


def marked(mark: str) -> Iterator[int]:
    """Processes whose environment has the mark."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)


def _command(pid: int) -> str:
    """What a process is, its state and parent, and what it waits for in the kernel."""
    with contextlib.suppress(OSError):
        process = Path(f"/proc/{pid}")
        state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
        waits = (process / "wchan").read_text()
        command = (process / "cmdline").read_text().replace("\0", " ")[:80]
        return f"{state} of {parent} in {waits}: {command}"
    return "gone"


class CollectedOutput(RunOutput):
    """An output that keeps what it is given, row by row."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def notice(self, text: str) -> None:
        self.lines.append(f"notice: {text}")

    def rows(self, reader: pa.RecordBatchReader) -> None:
        for row in reader.read_all().to_pylist():
            self.lines.append("  ".join(map(str, row.values())))

    def changes(self, batch: pa.RecordBatch) -> None:
        self.lines += [str(row) for row in batch.to_pylist()]


@contextlib.contextmanager
def in_thread(run: Callable[[Callable[[], bool]], None]) -> Iterator[Until]:
    """Call `run` in a thread until the `with` ends; gives what waits while it runs.

    `run` gets what tells it to stop. What it raises is raised where the test can see it.
    """
    ending, failed = threading.Event(), list[BaseException]()

    def caught() -> None:
        try:
            run(ending.is_set)
        except BaseException as error:  # noqa: BLE001  # raised where the test can see it
            failed.append(error)

    def until(what: Callable[[], Any]) -> None:
        for _ in looks():
            if failed:
                raise failed.pop()
            if what():
                break

    thread = threading.Thread(target=caught)
    thread.start()
    try:
        yield until
    finally:
        ending.set()
        thread.join(DEADLINE_S)
    assert not thread.is_alive()
    if failed:
        raise failed.pop()


@contextlib.contextmanager
def failing_at(point: str) -> Iterator[None]:
    """A query that runs in this process during the `with` must fail at a failpoint."""
    with (
        patch.dict(os.environ, STREAMHOUSE_FAILPOINT=point),
        patch.object(failpoint, "_die", _fail),
        pytest.raises((QueryFailed, RuntimeError), match=_CUT_OFF),
    ):
        yield


@dataclass
class Shop:
    """A warehouse and scripts over it; `place` is the warehouse where it is not in `folder`."""

    folder: Path
    runs: list[Run] = field(default_factory=list)
    place: Path | None = None

    @property
    def path(self) -> Path:
        return self.place or self.folder / "warehouse"

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(str(self.path))

    def script(self, text: str, name: str = "shop.sql") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def start(
        self,
        text: str,
        *arguments: str,
        name: str = "shop.sql",
        mark: str | None = None,
        spark: bool = True,
        **env: str,
    ) -> Run:
        """Start a script; `env` goes over this process's environment."""
        script = str(self.script(text, name))
        options = ["--warehouse", str(self.path), *arguments]
        run = Run(self.folder, ["run", script, *options], env, mark, spark)
        self.runs.append(run)
        return run

    def run(self, text: str, *arguments: str, name: str = "shop.sql", **how: Any) -> Ended:
        """Run a script until it ends; `how` is for `start`."""
        return self.start(text, *arguments, name=name, **how).wait()

    def settle(self, text: str, *arguments: str, name: str = "shop.sql", **how: Any) -> Ended:
        """Run a script until it has caught up; it must end well, and say nothing but notices."""
        ended = self.run(text, "--until-caught-up", *arguments, name=name, **how)
        noise = [line for line in ended.err.splitlines() if not line.startswith("notice: ")]
        assert (ended.code, noise) == (0, [])
        return ended

    def settle_here(self, text: str, name: str = "shop.sql", **how: bool) -> str:
        """The same without a process and a Spark of its own, which take long to start; what it
        told. `how` are further options of the script."""
        printed = CollectedOutput()
        options = ScriptOptions(name, self.warehouse.options, until_caught_up=True, **how)  # type: ignore[arg-type]
        ScriptRunner(options, printed).run(parse_script(text))
        return "\n".join(printed.lines)

    @contextlib.contextmanager
    def running_here(
        self, text: str, name: str = "shop.sql", printed: CollectedOutput | None = None
    ) -> Iterator[Until]:
        """Run a script in a thread until the `with` ends; gives what waits while it runs.

        `printed` collects what the script prints.
        """

        def run(stopped: Callable[[], bool]) -> None:
            options = ScriptOptions(name, self.warehouse.options, stopped=stopped)
            ScriptRunner(options, printed or CollectedOutput()).run(parse_script(text))

        with in_thread(run) as until:
            yield until

    @contextlib.contextmanager
    def failing_here(self, text: str, point: str) -> Iterator[Until]:
        """Run a script in a thread beside the `with`, whose query must fail at a failpoint."""
        with failing_at(point), self.running_here(text) as until:
            yield until
            until(lambda: False)

    def do(self, text: str) -> None:
        """Definitions and statements that end, in this process: a command takes long to start."""
        streamhouse.execute(self.warehouse, text)

    def printed(self, text: str) -> str:
        """What a script that needs no Spark prints, as plain text; in this process."""
        printed = CollectedOutput()
        options = ScriptOptions("told", self.warehouse.options, until_caught_up=True)
        ScriptRunner(options, printed).run(parse_script(text))
        return "\n".join(printed.lines)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of `default.<table>`, sorted."""
        opened = self.warehouse.table(f"default.{table}")
        if opened.latest_snapshot_id() is None:
            return []
        rows = [row for batch in opened.read() for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: [str(value) for value in row.values()])


@pytest.fixture
def shop(tmp_path: Path, spark_here: None) -> Iterator[Shop]:
    """An empty warehouse; no process may outlive the test."""
    made = Shop(tmp_path)
    yield made
    for run in made.runs:
        if run.process.poll() is None:
            run.kill()


@pytest.fixture(params=["fails", pytest.param("killed", marks=pytest.mark.soak)])
def dying(request: pytest.FixtureRequest, shop: Shop) -> Dying:
    """The driver is killed, or a query in this process fails, which is cheaper, and leaves the same
    of a batch: nothing is taken back."""

    @contextlib.contextmanager
    def killed(text: str, point: str) -> Iterator[Until]:
        run = shop.start(text, STREAMHOUSE_FAILPOINT=point)
        yield lambda what: run.until(what) and None
        ended = run.wait()
        assert ended.code == -signal.SIGKILL, ended.err

    return killed if request.param == "killed" else shop.failing_here


def _fail() -> None:
    raise RuntimeError(_CUT_OFF)


@pytest.fixture
def without_jvm() -> Iterator[None]:
    """Syncs and queries of this process run in threads; nothing is compacted."""
    maintenance = MagicMock(pressure=None, waiting=lambda: [])
    with (
        without_spark(),
        patch("streamhouse.runtime.pipeline.Maintenance", lambda *args, **named: maintenance),
    ):
        yield
