"""Runs the revenue demo without a live view, for `--json`."""

from __future__ import annotations

import time

from streamhouse.demo.driver import Check
from streamhouse.demo.kills import Kills
from streamhouse.demo.measured_run import print_progress, run_steps, wait_for_first_result
from streamhouse.demo.peak_memory import PeakMemory
from streamhouse.demo.revenue.scenario import Scenario, report
from streamhouse.demo.revenue.steps import RevenueChanges


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
        first = wait_for_first_result(scenario, "view", check)
        changes = RevenueChanges(scenario, seconds)
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


def _run_steps(
    scenario: Scenario,
    first: float,
    seconds: float,
    kills: Kills | None,
    changes: RevenueChanges,
    check: Check,
) -> list[dict[str, float] | None]:
    """Run until `seconds` after `first`, and all changes are made; returns freshness by minute."""
    minutes = run_steps(scenario, seconds, lambda: time.time() - first, kills, changes, check)
    for message in changes.finish():
        check()
        scenario.raise_if_failed()
        print_progress(message)
    return minutes
