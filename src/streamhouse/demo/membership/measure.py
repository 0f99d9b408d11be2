"""Runs the membership demo without a live view, for `--json`."""

from __future__ import annotations

import time
from typing import Any

from streamhouse.demo.driver import Check
from streamhouse.demo.kills import Kills
from streamhouse.demo.measured_run import print_progress, run_steps, wait_for_first_result
from streamhouse.demo.membership.scenario import Membership, report
from streamhouse.demo.membership.steps import MembershipChanges
from streamhouse.demo.peak_memory import PeakMemory

_SHOWN_S = 30.0


def measure(
    scenario: Membership, seconds: float, kills: Kills | None, check: Check
) -> dict[str, Any]:
    """Run the business and the pipeline for `seconds`, then verify all results.

    `check` is called at each step. If it raises `KeyboardInterrupt`, the driver is stopped cleanly,
    and nothing is verified.
    """
    memory = PeakMemory()
    try:
        print_progress("starting the pipeline")
        scenario.start()
        wait_for_first_result(scenario, "board", check)
        scenario.business.start()
        changes = MembershipChanges(scenario)
        try:
            minutes = _run_steps(scenario, seconds, kills, changes, check)
            scenario.business.stop()
            print_progress(f"{scenario.business.changes:,} changes; stopping")
            _await_board(scenario, check)
            scenario.probes.stop()
            scenario.driver.stop()
            _drain(scenario, changes, check)
        finally:
            changes.stop()
    except KeyboardInterrupt:
        print_progress("interrupted; stopping between two batches")
        scenario.driver.stop()
        raise
    print_progress("recomputing all results from ODS and from MySQL")
    return {**report(scenario, kills, changes.done, memory.stop()), "minutes": minutes}


def _run_steps(
    scenario: Membership,
    seconds: float,
    kills: Kills | None,
    changes: MembershipChanges,
    check: Check,
) -> list[dict[str, float] | None]:
    """Run for `seconds`, and while changes need the pipeline; returns freshness by minute."""
    started = time.monotonic()
    minutes = run_steps(
        scenario, seconds, lambda: time.monotonic() - started, kills, changes, check
    )
    for message in changes.finish():
        check()
        scenario.driver.raise_if_failed()
        print_progress(message)
        if changes.followed:
            break
    return minutes


def _await_board(scenario: Membership, check: Check) -> None:
    """Wait until the board shows all orders of the desk, so that no restart is measured."""
    deadline = time.monotonic() + _SHOWN_S
    while scenario.probes.waiting and time.monotonic() < deadline:
        check()
        scenario.driver.raise_if_failed()
        time.sleep(0.05)


def _drain(scenario: Membership, changes: MembershipChanges, check: Check) -> None:
    """Process the remaining changes, and make the scripted changes that need no pipeline."""

    def step() -> None:
        check()
        print_progress(changes.step())

    print_progress("processing the remaining changes")
    scenario.drain(step)
    for message in changes.finish():
        check()
        print_progress(message)
