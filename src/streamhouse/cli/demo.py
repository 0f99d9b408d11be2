"""`streamhouse demo`: the revenue view, live, on a MariaDB of its own."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.errors import OptionError

if TYPE_CHECKING:
    from streamhouse.demo.scenario import Kills, Scenario

_TOLD_EVERY_S = 5.0


def demo(
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="N", help="How long; by default until Ctrl-C."),
    ] = None,
    orders_per_second: Annotated[
        int, typer.Option("--orders-per-second", metavar="R", help="Orders made in a second.")
    ] = 1000,
    as_json: Annotated[
        bool, typer.Option("--json", help="No live view; one JSON object at the end.")
    ] = False,
    kill_every: Annotated[
        float | None,
        typer.Option(
            "--kill-every",
            metavar="S",
            help="SIGKILL and restart the driver every S seconds or so.",
        ),
    ] = None,
    dir: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where the demo keeps its files.")
    ] = Path(".streamhouse/demo"),
) -> None:
    """Show revenue per country while orders stream in and customers change in MySQL.

    Starts a private MariaDB with 10 customers, an order generator, the CDC of the customers and
    the lookup join, and shows the view. After 20 seconds customer 7 moves to China; 20 seconds
    later Santa comes, and a merge job brings the view's countries up to date. Needs nothing but
    what `make setup` prepares.
    """
    from streamhouse.demo.scenario import Kills, Scenario

    if seconds is None and as_json:
        raise OptionError("--json needs --seconds N, as it prints when the demo has ended")
    if orders_per_second < 1:
        raise OptionError(f"--orders-per-second: {orders_per_second} is too small; the least is 1")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    kills = None if kill_every is None else Kills(kill_every)
    with Scenario(dir, orders_per_second) as scenario:
        if as_json:
            print(json.dumps(_measure(scenario, seconds or 0.0, kills)))
        else:
            from streamhouse.demo.show import Show

            Show(scenario, seconds, kills).run()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _measure(scenario: Scenario, seconds: float, kills: Kills | None) -> dict[str, object]:
    from streamhouse.demo.act import Act
    from streamhouse.demo.scenario import PeakMemory, report

    memory = PeakMemory()
    _tell("starting the pipeline")
    scenario.start()
    first = _first_figures(scenario)
    act = Act(scenario, seconds)
    told = first
    minutes: list[dict[str, float] | None] = []
    while time.time() - first < seconds:
        scenario.driver.check()
        for said in (kills and kills.step(scenario), act.step()):
            if said:
                _tell(said)
        if time.time() - told >= _TOLD_EVERY_S:
            told = time.time()
            scenario.freshness.update()
            if told - first >= 60 * (len(minutes) + 1):
                minutes.append(scenario.freshness.window())
            _tell(f"{told - first:.0f} of {seconds:.0f} s, {scenario.freshness.recent()}")
        time.sleep(0.05)
    for said in act.finish():
        _tell(said)
    _tell("stopping")
    scenario.driver.stop()
    _tell("taking in what is left")
    scenario.drain()
    _tell("computing the view again from its orders")
    return {**report(scenario, kills, act.merge_ok, memory.stop()), "minutes": minutes}


def _first_figures(scenario: Scenario) -> float:
    """Wait for the first figure of the view; when it came (epoch seconds)."""
    deadline = time.time() + 120
    while time.time() < deadline:
        scenario.driver.check()
        first = scenario.clock.first_after(0)
        if first is not None:
            return first
        time.sleep(0.05)
    raise OptionError("the view has shown nothing for 120 s; see the log in the demo's folder")


def _tell(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)
