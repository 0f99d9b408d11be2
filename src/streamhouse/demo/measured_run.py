"""Runs a demo: live on a terminal, or measured for `--json`; kills its driver, and reports."""

import contextlib
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from streamhouse.background import RepeatedStep, wait_until
from streamhouse.cli.table_view import TableView
from streamhouse.demo.child_process import process_tree
from streamhouse.demo.driver import Check, DemoPage
from streamhouse.demo.latency import ages_text
from streamhouse.demo.scenario import DemoScenario, ScriptedSteps
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.serve.feeds.table_feed import TableFeed

_RATES_EVERY_S = 1.0
_STYLE = "bold cyan"
_BOARD_LINES, _OWN_LINES = 7, 4
"""The height of the smaller boards, and that of the panel without messages."""
_MOST_MESSAGES = 5


@dataclass
class Kills:
    """SIGKILLs the driver repeatedly, each time about `every_s` seconds after it has recovered.

    By default it never does. Halfway between two kills it kills only the Java sidecar, if one runs.
    """

    every_s: float = math.inf
    times: list[float] = field(default_factory=list)
    sidecars: int = 0
    _next: float | None = None
    _sidecar: float = 0.0

    def step(self, scenario: DemoScenario) -> str | None:
        """Kill and restart if it is time; returns a message for the user, if any."""
        now = time.time()
        if self._next is None:
            last = self.times[-1] if self.times else 0
            if scenario.clock.first_after(last) is not None:
                pause = self.every_s * random.uniform(0.75, 1.25)
                self._next, self._sidecar = now + pause, now + pause / 2
            return None
        if now >= self._next:
            self.times.append(now)
            self._next = None
            scenario.driver.kill()
            scenario.start()
            return f"SIGKILL number {len(self.times)}: restarting the driver"
        if now >= self._sidecar:
            self._sidecar = self._next
            if scenario.driver.kill_sidecar():
                self.sidecars += 1
                return f"SIGKILL number {self.sidecars} of the Java sidecar"
        return None

    def report(self, scenario: DemoScenario) -> dict[str, Any]:
        """How often the driver and the sidecar were killed, and the longest recovery."""
        commits = [(at, scenario.clock.first_after(at)) for at in self.times]
        recoveries = [commit - at for at, commit in commits if commit is not None]
        return {
            "restarts": len(self.times),
            "sidecar_kills": self.sidecars,
            "recovery_s": round(max(recoveries), 2) if recoveries else None,
        }


def print_progress(text: str | None) -> None:
    """Write a line to standard error, unless the text is empty or None."""
    if text:
        print(f"demo: {text}", file=sys.stderr, flush=True)


_PROGRESS_EVERY_S = 5.0
_PAUSE_S = 0.05
FIRST_RESULT_S = 180.0
"""How long the first result of a demo may take."""


def measure(scenario: DemoScenario, seconds: float, kills: Kills, check: Check) -> dict[str, Any]:
    """Run a demo for `seconds`, then verify its results; returns the report.

    `check` is called at each step. If it raises `KeyboardInterrupt`, the driver is stopped cleanly,
    and nothing is verified.
    """
    memory = PeakMemory()
    try:
        print_progress("starting the pipeline")
        scenario.start()
        first = wait_for_first_result(scenario, check)
        changes = scenario.begin(seconds)
        try:
            minutes = _run_steps(scenario, seconds, first, kills, changes, check)
            print_progress("stopping")
            scenario.end_measuring(check)
            scenario.driver.stop()
            _drain(scenario, changes, check)
        finally:
            changes.stop()
    except KeyboardInterrupt:
        print_progress("interrupted; stopping between two batches")
        scenario.driver.stop()
        raise
    print_progress(scenario.verification)
    found = {"peak_rss_mb": round(memory.stop()), "minutes": minutes, **kills.report(scenario)}
    return {**scenario.report(changes), "freshness_ms": scenario.ages.percentiles(), **found}


def _drain(scenario: DemoScenario, changes: ScriptedSteps, check: Check) -> None:
    """Process the remaining changes, and make the scripted ones that need no pipeline."""

    def step() -> None:
        check()
        print_progress(changes.step())

    print_progress("processing the remaining changes")
    scenario.drain(step)
    for message in changes.finish():
        check()
        print_progress(message)


def wait_for_first_result(scenario: DemoScenario, check: Check) -> float:
    """Wait until the first result can be read; returns when that was (epoch seconds).

    `check` is called at each step.
    """

    def arrived() -> bool:
        check()
        scenario.driver.raise_if_failed()
        return scenario.clock.first_after(0) is not None

    wait_until(arrived, FIRST_RESULT_S, _PAUSE_S)
    first = scenario.clock.first_after(0)
    if first is None:
        raise StreamhouseError(
            f"{scenario.boards[0]} is still empty after {FIRST_RESULT_S:.0f} s; see {scenario.log}"
        )
    return first


def _run_steps(
    scenario: DemoScenario,
    seconds: float,
    first: float,
    kills: Kills,
    changes: ScriptedSteps,
    check: Check,
) -> list[dict[str, float] | None]:
    """Make the kills and changes that are due, until `seconds` after `first`.

    Goes on until all changes that need the pipeline are made. Returns the freshness of each whole
    minute.
    """
    reported = time.time() - first
    minutes: list[dict[str, float] | None] = []
    while (passed := time.time() - first) < seconds:
        check()
        scenario.raise_if_failed()
        for message in (kills.step(scenario), changes.step()):
            print_progress(message)
        if passed - reported >= _PROGRESS_EVERY_S:
            reported = passed
            if passed >= 60 * (len(minutes) + 1):
                minutes.append(scenario.freshness_window())
            print_progress(f"{passed:.0f} of {seconds:.0f} s, {scenario.progress()}")
        time.sleep(_PAUSE_S)
    for message in changes.finish():
        check()
        scenario.raise_if_failed()
        print_progress(message)
        if changes.followed:
            break
    return minutes


_EVERY_S = 3.0
_PAUSE_FACTOR = 20
"""The least pause between two measurements, as a multiple of the time that one takes: the system
walks through all memory of a process to compute its share, which may take long."""


class PeakMemory:
    """The peak memory of a process and its descendants, in MiB; measured by a thread.

    `pid`: the process; None for this one. Memory that processes share, such as libraries and
    unchanged pages after a fork, counts once.
    """

    def __init__(self, pid: int | None = None) -> None:
        self.peak_mb = 0.0
        self._pid = pid or os.getpid()
        self._thread = RepeatedStep(self._measure, "peak-memory", _EVERY_S)

    def stop(self) -> float:
        self._thread.stop()
        return self.peak_mb

    def _measure(self) -> float:
        began, total = time.monotonic(), 0
        for process in process_tree(self._pid):
            with contextlib.suppress(psutil.Error):
                total += _memory(process)
        self.peak_mb = max(self.peak_mb, total / 2**20)
        return max(_EVERY_S, _PAUSE_FACTOR * (time.monotonic() - began))


def _memory(process: psutil.Process) -> int:
    """A process's memory in bytes, with its share of shared pages (PSS); else its RSS."""
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)


@dataclass
class LiveScreen:
    """Runs a demo until the time is over or Ctrl-C, then verifies its results."""

    _scenario: DemoScenario
    _seconds: float | None
    _kills: Kills
    _check: Check
    _page: DemoPage | None = None
    _console: Console = field(default_factory=Console)
    _messages: list[str] = field(default_factory=list)
    _boards: list[tuple[TableFeed, TableView]] = field(default_factory=list)
    _counts: list[tuple[float, int]] = field(default_factory=list)
    _ages: dict[str, float] | None = None
    _lag: str = ""

    def run(self) -> None:
        """Run the whole demo."""
        scenario = self._scenario
        self._console.print(f"[bold]Streamhouse demo[/bold] in {scenario.folder}")
        self._console.print(scenario.introduction())
        scenario.start()
        changes: ScriptedSteps | None = None
        try:
            self._wait_for_first_result()
            feeds = [TableFeed(scenario.warehouse, name) for name in scenario.boards]
            self._boards = [(feed, TableView(feed)) for feed in feeds]
            changes = scenario.begin(self._seconds)
            self._draw_until_end(changes)
        except KeyboardInterrupt:
            pass
        if changes is not None:
            changes.stop()
        self._end()

    def _update(self) -> None:
        """Poll the boards, and measure."""
        for feed, view in self._boards:
            change = feed.poll()
            if change is not None:
                view.apply(change)
        now = time.monotonic()
        if not self._counts or now - self._counts[-1][0] >= _RATES_EVERY_S:
            self._scenario.update_ages()
            self._ages = self._scenario.ages.recent()
            self._counts = [*self._counts[-10:], (now, self._scenario.count())]
            self._lag = self._scenario.lag()

    def _views(self) -> Sequence[RenderableType]:
        others = [_BOARD_LINES] * (len(self._boards) - 1)
        free = self._console.size.height - sum(others) - len(self._messages) - _OWN_LINES
        heights = [max(8, free), *others]
        return [view.render(lines) for (_, view), lines in zip(self._boards, heights, strict=True)]

    def _rates(self) -> str:
        """The rates and the freshness in one line."""
        if len(self._counts) < 2:
            return "measuring …"
        scenario = self._scenario
        (t0, n0), (t1, n1) = self._counts[0], self._counts[-1]
        parts = [f"{n1:,} {scenario.counted}", f"{(n1 - n0) / (t1 - t0):,.0f}/s"]
        if self._ages:
            parts.append(f"{scenario.measured} {ages_text(self._ages)}")
        parts.append(f"lag {self._lag}")
        return "  ·  ".join(parts)

    def _end(self) -> None:
        """Stop the pipeline, then verify and print its results."""
        scenario = self._scenario
        with self._console.status("stopping between two batches …"):
            scenario.end()
            scenario.driver.stop()
        if not self._boards:
            return
        if scenario.drained:
            with self._console.status("processing the remaining changes …"):
                scenario.drain()
        with self._console.status(f"{scenario.verification} …"):
            try:
                lines = scenario.verdict()
            except TableError:
                return
        for line in lines:
            self._console.print(line)
        self._console.print("The tables remain. Query them without Spark:")
        query = f'"SELECT * FROM {scenario.boards[0]}" --warehouse {scenario.warehouse.path}'
        self._console.print(f"  streamhouse query {query}", soft_wrap=True)

    def _wait_for_first_result(self) -> None:
        began = time.monotonic()
        with self._console.status(f"{self._scenario.starting} …") as status:

            def check() -> None:
                self._check_and_print_address()
                passed = f"{time.monotonic() - began:.0f} s"
                status.update(f"{self._scenario.starting} … {passed}")

            wait_for_first_result(self._scenario, check)

    def _draw_until_end(self, changes: ScriptedSteps) -> None:
        started = time.monotonic()
        plain = not sys.stdout.isatty()
        with Live(self._frame(), console=self._console, auto_refresh=False) as live:
            while self._seconds is None or time.monotonic() - started < self._seconds:
                self._check_and_print_address()
                self._scenario.raise_if_failed()
                for message in (self._kills.step(self._scenario), changes.step()):
                    if message:
                        self._add_message(message)
                self._update()
                if not plain:
                    live.update(self._frame(), refresh=True)
                time.sleep(_PAUSE_S)
            live.update(self._frame(), refresh=True)

    def _check_and_print_address(self) -> None:
        self._check()
        news = None if self._page is None else self._page.news()
        if news is not None:
            self._console.print(Text(news, style=_STYLE), soft_wrap=True)

    def _add_message(self, text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')}  {text}"
        self._messages = [*self._messages, line][-_MOST_MESSAGES:]

    def _frame(self) -> RenderableType:
        lines = [
            Text(self._rates()),
            *(Text(message, style="yellow") for message in self._messages),
        ]
        if self._page is not None and self._page.line is not None:
            lines.insert(0, Text(self._page.line, style=_STYLE))
        return Group(
            *self._views(), Panel(Group(*lines), title=f"{self._scenario.title} — Ctrl-C ends")
        )
