"""The membership demo without a terminal: what it prints with `--json`."""

from __future__ import annotations

import sys
import time
from typing import Any

from streamhouse.demo.membership.act import Act
from streamhouse.demo.membership.scenario import Membership, report
from streamhouse.demo.scenario import Kills, PeakMemory
from streamhouse.errors import StreamhouseError

_TOLD_EVERY_S = 5.0
_FIRST_S = 180.0


def measure(world: Membership, seconds: float, kills: Kills | None) -> dict[str, Any]:
    """Run the business for so long beside the pipeline, then prove every figure."""
    memory = PeakMemory()
    _tell("starting the pipeline")
    world.start()
    wait_for_figures(world)
    world.business.start()
    act = Act(world)
    try:
        minutes = _play(world, seconds, kills, act)
        for said in act.finish():
            world.driver.check()
            _tell(said)
    finally:
        act.stop()
    world.business.stop()
    _tell(f"{world.business.changes:,} changes; stopping")
    world.driver.stop()
    _tell("taking in what is left")
    world.drain()
    _tell("computing every figure again, from ODS and from MySQL")
    return {**report(world, kills, act.done, memory.stop()), "minutes": minutes}


def wait_for_figures(world: Membership) -> None:
    """Wait until the board shows the orders of the last days."""
    deadline = time.monotonic() + _FIRST_S
    while world.clock.first_after(0) is None:
        world.driver.check()
        if time.monotonic() > deadline:
            raise StreamhouseError(
                f"the board has shown nothing for {_FIRST_S:.0f} s; see {world.log}"
            )
        time.sleep(0.05)


def _play(
    world: Membership, seconds: float, kills: Kills | None, act: Act
) -> list[dict[str, float] | None]:
    started = told = time.monotonic()
    minutes: list[dict[str, float] | None] = []
    while time.monotonic() - started < seconds:
        world.driver.check()
        world.business.check()
        for said in (kills and kills.step(world), act.step()):
            if said:
                _tell(said)
        if time.monotonic() - told >= _TOLD_EVERY_S:
            told = time.monotonic()
            if told - started >= 60 * (len(minutes) + 1):
                minutes.append(world.probes.window())
            _tell(
                f"{told - started:.0f} of {seconds:.0f} s, {world.business.changes:,} changes, "
                f"{world.probes.recent()}"
            )
        time.sleep(0.05)
    return minutes


def _tell(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)
