"""Runs the membership demo without a live view, for `--json`."""

from __future__ import annotations

import time
from typing import Any

from streamhouse.demo.driver import Check
from streamhouse.demo.membership.scenario import Membership, report
from streamhouse.demo.membership.steps import Act
from streamhouse.demo.progress import tell
from streamhouse.demo.revenue.scenario import Kills, PeakMemory
from streamhouse.errors import StreamhouseError

_TOLD_EVERY_S = 5.0
_FIRST_S = 180.0
_SHOWN_S = 30.0


def measure(world: Membership, seconds: float, kills: Kills | None, check: Check) -> dict[str, Any]:
    """Run the business and the pipeline for `seconds`, then verify all results.

    `check` is called at each step. If it raises `KeyboardInterrupt`, the driver is stopped cleanly,
    and nothing is verified.
    """
    memory = PeakMemory()
    try:
        tell("starting the pipeline")
        world.start()
        wait_for_figures(world, check)
        world.business.start()
        act = Act(world)
        try:
            minutes = _play(world, seconds, kills, act, check)
            world.business.stop()
            tell(f"{world.business.changes:,} changes; stopping")
            _await_board(world, check)
            world.probes.stop()
            world.driver.stop()
            _drain(world, act, check)
        finally:
            act.stop()
    except KeyboardInterrupt:
        tell("interrupted; stopping between two batches")
        world.driver.stop()
        raise
    tell("computing every figure again, from ODS and from MySQL")
    return {**report(world, kills, act.done, memory.stop()), "minutes": minutes}


def wait_for_figures(world: Membership, check: Check) -> None:
    """Wait until the board shows the orders of the last days."""
    deadline = time.monotonic() + _FIRST_S
    while world.clock.first_after(0) is None:
        check()
        world.driver.check()
        if time.monotonic() > deadline:
            raise StreamhouseError(
                f"the board has shown nothing for {_FIRST_S:.0f} s; see {world.log}"
            )
        time.sleep(0.05)


def _play(
    world: Membership, seconds: float, kills: Kills | None, act: Act, check: Check
) -> list[dict[str, float] | None]:
    """Run for `seconds`, and while the act needs the pipeline; returns each minute's freshness."""
    started = told = time.monotonic()
    minutes: list[dict[str, float] | None] = []
    while time.monotonic() - started < seconds:
        check()
        world.driver.check()
        world.business.check()
        for said in (kills.step(world) if kills else None, act.step()):
            tell(said)
        if time.monotonic() - told >= _TOLD_EVERY_S:
            told = time.monotonic()
            if told - started >= 60 * (len(minutes) + 1):
                minutes.append(world.probes.window())
            tell(
                f"{told - started:.0f} of {seconds:.0f} s, {world.business.changes:,} changes, "
                f"{world.probes.recent()}"
            )
        time.sleep(0.05)
    for said in act.finish():
        check()
        world.driver.check()
        tell(said)
        if act.followed:
            break
    return minutes


def _await_board(world: Membership, check: Check) -> None:
    """Wait until the board shows all orders of the desk, so that no restart is measured."""
    deadline = time.monotonic() + _SHOWN_S
    while world.probes.waiting and time.monotonic() < deadline:
        check()
        world.driver.check()
        time.sleep(0.05)


def _drain(world: Membership, act: Act, check: Check) -> None:
    """Process the remaining changes, and play the rest of the act, which needs no pipeline."""

    def step() -> None:
        check()
        tell(act.step())

    tell("taking in what is left")
    world.drain(step)
    for said in act.finish():
        check()
        tell(said)
