"""`streamhouse demo`: runs a whole pipeline, live, on a MariaDB of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.cli.errors import INTERRUPTED
from streamhouse.cli.stop_signals import SIGNALS, StopSignal
from streamhouse.errors import OptionError

if TYPE_CHECKING:
    from streamhouse.demo.driver import Check
    from streamhouse.demo.page import Page
    from streamhouse.demo.revenue.scenario import Kills

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
    page: Annotated[
        bool | None,
        typer.Option(
            "--page/--no-page",
            help="Serve the tables on a web page too. By default, but not with --json.",
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

    The tables are on a web page too, whose address is told.

    Needs nothing but what `make setup` prepares.
    """
    from streamhouse.demo.revenue.scenario import Kills

    if seconds is None and as_json:
        raise OptionError("--json needs --seconds N, as it prints when the demo has ended")
    rates = {"orders-per-second": orders_per_second, "changes-per-second": changes_per_second}
    for name, rate in rates.items():
        if rate < 1:
            raise OptionError(f"--{name}: {rate} is too small; the least is 1")
    stop = StopSignal((*SIGNALS, signal.SIGHUP), at_once=_end_all)
    kills = None if kill_every is None else Kills(kill_every)
    serves = not as_json if page is None else page
    if scenario is Scenario.MEMBERSHIP:
        folder = dir or Path(".streamhouse/membership")
        run = _Run(folder, seconds, as_json, serves, kills, stop.check)
        _membership(run, changes_per_second, seed)
    else:
        folder = dir or Path(".streamhouse/demo")
        run = _Run(folder, seconds, as_json, serves, kills, stop.check)
        _revenue(run, orders_per_second)
    if stop.asked():
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True)
class _Run:
    """The settings of a demo's run."""

    folder: Path
    seconds: float | None
    as_json: bool
    serves: bool
    kills: Kills | None
    check: Check

    def page(self, warehouse: str, view: str) -> AbstractContextManager[Page | None]:
        """The page of the demo's warehouse, with a view to begin with, if there is to be one."""
        from streamhouse.demo.page import Page

        if not self.serves:
            return contextlib.nullcontext()
        return Page(Path(warehouse), self.folder, view)

    def report(self, page: Page | None, measure: Callable[[], Mapping[str, object]]) -> None:
        """Measure, and print what has come of it."""
        from streamhouse.demo.progress import tell

        served: dict[str, object] = {}
        if page is not None:
            served["page"] = page.wait(self.check)
            tell(page.news())
        print(json.dumps({**measure(), **served}))


def _revenue(run: _Run, rate: int) -> None:
    from streamhouse.demo.revenue.scenario import VIEW
    from streamhouse.demo.revenue.scenario import Scenario as World

    with World(run.folder, rate) as world, run.page(str(world.warehouse), VIEW) as page:
        if run.as_json:
            from streamhouse.demo.revenue.measure import measure

            run.report(page, lambda: measure(world, run.seconds or 0.0, run.kills, run.check))
        else:
            from streamhouse.demo.revenue.terminal import Show

            Show(world, run.seconds, run.kills, run.check, page).run()


def _membership(run: _Run, rate: int, seed: int) -> None:
    from streamhouse.demo.membership.scenario import SPRINT_BOARD, Membership

    world = Membership(run.folder, rate, seed)
    with world, run.page(world.warehouse.path, SPRINT_BOARD) as page:
        if run.as_json:
            from streamhouse.demo.membership.measure import measure

            run.report(page, lambda: measure(world, run.seconds or 0.0, run.kills, run.check))
        else:
            from streamhouse.demo.membership.terminal import Show

            Show(world, run.seconds, run.kills, run.check, page).run()


def _end_all() -> None:
    """Kill what the demo has started: MariaDB and the driver are in sessions of their own."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), _SHOW_CURSOR)
