"""`streamhouse demo`: a whole pipeline, live, on a MariaDB of its own."""

from __future__ import annotations

import json
import signal
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.errors import OptionError

if TYPE_CHECKING:
    from streamhouse.demo.scenario import Kills
    from streamhouse.demo.scenario import Scenario as World

_TOLD_EVERY_S = 5.0


class Scenario(StrEnum):
    """What the demo shows."""

    REVENUE = "revenue"
    MEMBERSHIP = "membership"


def demo(
    scenario: Annotated[
        Scenario, typer.Argument(metavar="[revenue|membership]", help="Which demo to run.")
    ] = Scenario.REVENUE,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="N", help="How long; by default until Ctrl-C."),
    ] = None,
    orders_per_second: Annotated[
        int,
        typer.Option("--orders-per-second", metavar="R", help="revenue: orders made in a second."),
    ] = 1000,
    changes_per_second: Annotated[
        int,
        typer.Option(
            "--changes-per-second", metavar="R", help="membership: changes made in a second."
        ),
    ] = 500,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="membership: of what happens.")
    ] = 1,
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
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where the demo keeps its files; .streamhouse/demo or .streamhouse/membership.",
        ),
    ] = None,
) -> None:
    """Run a whole pipeline on a MariaDB of its own, and show its views live.

    revenue: orders stream in, customers change in MySQL. After 20 seconds customer 7 moves to
    China; 20 seconds later Santa comes, and a merge job brings the view's countries up to date.

    membership: orders of members are made, corrected, cancelled and late in MySQL; four layers of
    tables keep the agents' scores and the members of the month right. Then an order of Zoe's goes
    through all of that, and a day that somebody has spoilt is repaired.

    Needs nothing but what `make setup` prepares.
    """
    from streamhouse.demo.scenario import Kills

    if seconds is None and as_json:
        raise OptionError("--json needs --seconds N, as it prints when the demo has ended")
    rates = {"orders-per-second": orders_per_second, "changes-per-second": changes_per_second}
    for name, rate in rates.items():
        if rate < 1:
            raise OptionError(f"--{name}: {rate} is too small; the least is 1")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    kills = None if kill_every is None else Kills(kill_every)
    if scenario is Scenario.MEMBERSHIP:
        folder = dir or Path(".streamhouse/membership")
        _membership(folder, changes_per_second, seed, seconds, as_json, kills)
    else:
        _revenue(dir or Path(".streamhouse/demo"), orders_per_second, seconds, as_json, kills)


def _revenue(
    folder: Path, rate: int, seconds: float | None, as_json: bool, kills: Kills | None
) -> None:
    from streamhouse.demo.scenario import Scenario as World

    with World(folder, rate) as world:
        if as_json:
            print(json.dumps(_measure(world, seconds or 0.0, kills)))
        else:
            from streamhouse.demo.show import Show

            Show(world, seconds, kills).run()


def _membership(
    folder: Path, rate: int, seed: int, seconds: float | None, as_json: bool, kills: Kills | None
) -> None:
    from streamhouse.demo.membership.scenario import Membership

    with Membership(folder, rate, seed) as world:
        if as_json:
            from streamhouse.demo.membership.measure import measure

            print(json.dumps(measure(world, seconds or 0.0, kills)))
        else:
            from streamhouse.demo.membership.show import Show

            Show(world, seconds, kills).run()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _measure(scenario: World, seconds: float, kills: Kills | None) -> dict[str, object]:
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


def _first_figures(scenario: World) -> float:
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
