"""`streamhouse demo`: a whole pipeline, live, on a MariaDB of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.cli.errors import INTERRUPTED
from streamhouse.cli.stop import SIGNALS, StopSignal
from streamhouse.errors import OptionError

if TYPE_CHECKING:
    from streamhouse.demo.driver import Check
    from streamhouse.demo.scenario import Kills

_SHOW_CURSOR = b"\x1b[?25h\n"


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
    stop = StopSignal((*SIGNALS, signal.SIGHUP), at_once=_end_all)
    kills = None if kill_every is None else Kills(kill_every)
    if scenario is Scenario.MEMBERSHIP:
        folder = dir or Path(".streamhouse/membership")
        _membership(folder, changes_per_second, seed, seconds, as_json, kills, stop.check)
    else:
        folder = dir or Path(".streamhouse/demo")
        _revenue(folder, orders_per_second, seconds, as_json, kills, stop.check)
    if stop.asked():
        raise typer.Exit(INTERRUPTED)


def _revenue(
    folder: Path,
    rate: int,
    seconds: float | None,
    as_json: bool,
    kills: Kills | None,
    check: Check,
) -> None:
    from streamhouse.demo.scenario import Scenario as World

    with World(folder, rate) as world:
        if as_json:
            from streamhouse.demo.measure import measure

            print(json.dumps(measure(world, seconds or 0.0, kills, check)))
        else:
            from streamhouse.demo.show import Show

            Show(world, seconds, kills, check).run()


def _membership(
    folder: Path,
    rate: int,
    seed: int,
    seconds: float | None,
    as_json: bool,
    kills: Kills | None,
    check: Check,
) -> None:
    from streamhouse.demo.membership.scenario import Membership

    with Membership(folder, rate, seed) as world:
        if as_json:
            from streamhouse.demo.membership.measure import measure

            print(json.dumps(measure(world, seconds or 0.0, kills, check)))
        else:
            from streamhouse.demo.membership.show import Show

            Show(world, seconds, kills, check).run()


def _end_all() -> None:
    """Kill what the demo has started: MariaDB and the driver are in sessions of their own."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), _SHOW_CURSOR)
