"""Runs a demo without a live view, for `--json`: measures it, verifies its results, reports."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psutil

from streamhouse.demo.driver import Check
from streamhouse.demo.scenario import DemoScenario, ScriptedSteps
from streamhouse.errors import StreamhouseError


@dataclass
class Kills:
    """SIGKILLs the driver repeatedly, each time about `every_s` seconds after it has recovered.

    Halfway between two kills it kills only the Java sidecar, if one runs.
    """

    every_s: float
    times: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    sidecars: int = 0
    _next: float | None = None
    _sidecar: float = 0.0

    def step(self, scenario: DemoScenario) -> str | None:
        """Kill and restart if it is time; returns a message for the user, if any."""
        if len(self.recoveries) < len(self.times):
            recovered = scenario.clock.first_after(self.times[-1])
            if recovered is None:
                return None
            self.recoveries.append(recovered - self.times[-1])
            self._next = None
        now = time.time()
        if self._next is None:
            if scenario.clock.first_after(0) is not None:
                pause = self.every_s * random.uniform(0.75, 1.25)
                self._next, self._sidecar = now + pause, now + pause / 2
            return None
        if now >= self._next:
            self.times.append(now)
            scenario.driver.kill()
            scenario.start()
            return f"SIGKILL number {len(self.times)}: restarting the driver"
        if now >= self._sidecar:
            self._sidecar = self._next
            if scenario.driver.kill_sidecar():
                self.sidecars += 1
                return f"SIGKILL number {self.sidecars} of the Java sidecar"
        return None


def print_progress(text: str | None) -> None:
    """Write a line to standard error, unless the text is empty or None."""
    if text:
        print(f"demo: {text}", file=sys.stderr, flush=True)


_PROGRESS_EVERY_S = 5.0
_PAUSE_S = 0.05
FIRST_RESULT_S = 180.0
"""How long the first result of a demo may take."""


def measure(
    scenario: DemoScenario, seconds: float, kills: Kills | None, check: Check
) -> dict[str, Any]:
    """Run a demo for `seconds`, then verify its results; returns the report.

    `check` is called at each step. If it raises `KeyboardInterrupt`, the driver is stopped cleanly,
    and nothing is verified.
    """
    memory = PeakMemory()
    try:
        print_progress("starting the pipeline")
        scenario.start()
        first = wait_for_first_result(scenario, scenario.result, check)
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
    peak_mb = round(memory.stop())
    recovery = _recovery(scenario, kills)
    return {**scenario.report(changes), **recovery, "peak_rss_mb": peak_mb, "minutes": minutes}


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


def _recovery(scenario: DemoScenario, kills: Kills | None) -> dict[str, Any]:
    """How often the driver and the sidecar were killed, and how long the driver took to recover."""
    times = kills.times if kills else []
    commits = [(at, scenario.clock.first_after(at)) for at in times]
    recoveries = [commit - at for at, commit in commits if commit is not None]
    return {
        "restarts": len(times),
        "sidecar_kills": kills.sidecars if kills else 0,
        "recovery_s": round(max(recoveries), 2) if recoveries else None,
    }


def wait_for_first_result(scenario: DemoScenario, name: str, check: Check) -> float:
    """Wait until the first result can be read; returns when that was (epoch seconds).

    `name` is that of the result in an error. `check` is called at each step.
    """
    deadline = time.monotonic() + FIRST_RESULT_S
    while True:
        check()
        scenario.driver.raise_if_failed()
        first = scenario.clock.first_after(0)
        if first is not None:
            return first
        if time.monotonic() > deadline:
            raise StreamhouseError(
                f"the {name} is still empty after {FIRST_RESULT_S:.0f} s; see {scenario.log}"
            )
        time.sleep(_PAUSE_S)


def _run_steps(
    scenario: DemoScenario,
    seconds: float,
    first: float,
    kills: Kills | None,
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
        for message in (kills.step(scenario) if kills else None, changes.step()):
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
        self._root = psutil.Process(pid)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak-memory", daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._stopped.set()
        self._thread.join(5)
        return self.peak_mb

    def _run(self) -> None:
        pause = _EVERY_S
        while not self._stopped.wait(pause):
            began, total = time.monotonic(), 0
            for process in self._processes():
                with contextlib.suppress(psutil.Error):
                    total += _memory(process)
            self.peak_mb = max(self.peak_mb, total / 2**20)
            pause = max(_EVERY_S, _PAUSE_FACTOR * (time.monotonic() - began))

    def _processes(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def _memory(process: psutil.Process) -> int:
    """A process's memory in bytes, with its share of shared pages (PSS); else its RSS."""
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)
