"""Runs the revenue demo without a live view, for `--json`."""

from __future__ import annotations

import time

from streamhouse.demo.driver import Check
from streamhouse.demo.progress import print_progress
from streamhouse.demo.revenue.scenario import Kills, PeakMemory, Scenario, report
from streamhouse.demo.revenue.steps import ScriptedChanges
from streamhouse.errors import StreamhouseError

_PROGRESS_EVERY_S = 5.0
_FIRST_S = 120.0


def measure(
    scenario: Scenario, seconds: float, kills: Kills | None, check: Check
) -> dict[str, object]:
    """Stream orders for `seconds`, then audit the view; returns the report.

    `check` is called at each step. If it raises `KeyboardInterrupt`, the driver is stopped cleanly,
    and nothing is audited.
    """
    memory = PeakMemory()
    try:
        print_progress("starting the pipeline")
        scenario.start()
        first = wait_for_view(scenario, check)
        changes = ScriptedChanges(scenario, seconds)
        try:
            minutes = _run_steps(scenario, first, seconds, kills, changes, check)
        finally:
            changes.stop()
        print_progress("stopping")
        scenario.freshness.end()
        scenario.driver.stop()
        print_progress("processing the remaining changes")
        scenario.drain(check)
    except KeyboardInterrupt:
        print_progress("interrupted; stopping between two batches")
        scenario.driver.stop()
        raise
    print_progress("recomputing the view from its orders")
    return {**report(scenario, kills, changes.merge_ok, memory.stop()), "minutes": minutes}


def wait_for_view(scenario: Scenario, check: Check) -> float:
    """Wait for the view's first result; returns when it could be read (epoch seconds)."""
    deadline = time.time() + _FIRST_S
    while time.time() < deadline:
        check()
        scenario.driver.check()
        first = scenario.clock.first_after(0)
        if first is not None:
            return first
        time.sleep(0.05)
    raise StreamhouseError(
        f"the view is still empty after {_FIRST_S:.0f} s; see {scenario.folder / 'log'}"
    )


def _run_steps(
    scenario: Scenario,
    first: float,
    seconds: float,
    kills: Kills | None,
    changes: ScriptedChanges,
    check: Check,
) -> list[dict[str, float] | None]:
    """Run until `seconds` after `first`, and all changes are made; returns freshness by minute."""
    reported = first
    minutes: list[dict[str, float] | None] = []
    while time.time() - first < seconds:
        check()
        scenario.driver.check()
        for message in (kills.step(scenario) if kills else None, changes.step()):
            print_progress(message)
        if time.time() - reported >= _PROGRESS_EVERY_S:
            reported = time.time()
            scenario.freshness.update()
            if reported - first >= 60 * (len(minutes) + 1):
                minutes.append(scenario.freshness.window())
            print_progress(
                f"{reported - first:.0f} of {seconds:.0f} s, {scenario.freshness.recent()}"
            )
        time.sleep(0.05)
    for message in changes.finish():
        check()
        scenario.driver.check()
        print_progress(message)
    return minutes
