"""Runs the revenue demo without a live view, for `--json`."""

from __future__ import annotations

import time

from streamhouse.demo.driver import Check
from streamhouse.demo.progress import tell
from streamhouse.demo.revenue.scenario import Kills, PeakMemory, Scenario, report
from streamhouse.demo.revenue.steps import Act
from streamhouse.errors import StreamhouseError

_TOLD_EVERY_S = 5.0
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
        tell("starting the pipeline")
        scenario.start()
        first = first_figures(scenario, check)
        act = Act(scenario, seconds)
        try:
            minutes = _play(scenario, first, seconds, kills, act, check)
        finally:
            act.stop()
        tell("stopping")
        scenario.freshness.end()
        scenario.driver.stop()
        tell("taking in what is left")
        scenario.drain(check)
    except KeyboardInterrupt:
        tell("interrupted; stopping between two batches")
        scenario.driver.stop()
        raise
    tell("computing the view again from its orders")
    return {**report(scenario, kills, act.merge_ok, memory.stop()), "minutes": minutes}


def first_figures(scenario: Scenario, check: Check) -> float:
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
        f"the view has shown nothing for {_FIRST_S:.0f} s; see {scenario.folder / 'log'}"
    )


def _play(
    scenario: Scenario,
    first: float,
    seconds: float,
    kills: Kills | None,
    act: Act,
    check: Check,
) -> list[dict[str, float] | None]:
    """Run until `seconds` after `first` and the act's end; returns each minute's freshness."""
    told = first
    minutes: list[dict[str, float] | None] = []
    while time.time() - first < seconds:
        check()
        scenario.driver.check()
        for said in (kills.step(scenario) if kills else None, act.step()):
            tell(said)
        if time.time() - told >= _TOLD_EVERY_S:
            told = time.time()
            scenario.freshness.update()
            if told - first >= 60 * (len(minutes) + 1):
                minutes.append(scenario.freshness.window())
            tell(f"{told - first:.0f} of {seconds:.0f} s, {scenario.freshness.recent()}")
        time.sleep(0.05)
    for said in act.finish():
        check()
        scenario.driver.check()
        tell(said)
    return minutes
