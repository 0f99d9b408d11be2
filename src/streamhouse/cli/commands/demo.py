"""`streamhouse demo`: runs a whole pipeline, live, on a MariaDB of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamhouse.cli.errors import INTERRUPTED
from streamhouse.cli.flags import with_flags
from streamhouse.cli.stop_signals import SIGNALS, StopSignal
from streamhouse.errors import OptionError

if TYPE_CHECKING:
    from streamhouse.demo.driver import Check
    from streamhouse.demo.measured_run import Kills
    from streamhouse.demo.page import DemoPage

_SHOW_CURSOR = b"\x1b[?25h\n"


class DemoName(StrEnum):
    """What the demo shows."""

    REVENUE = "revenue"
    MEMBERSHIP = "membership"


class Orders(StrEnum):
    """Where the orders of the revenue demo come from."""

    DATAGEN = "datagen"
    KAFKA = "kafka"


@with_flags("demo")
def demo(
    scenario: DemoName = DemoName.REVENUE,
    seconds: float | None = None,
    orders_per_second: int = 1000,
    changes_per_second: int = 500,
    seed: int = 1,
    as_json: bool = False,
    kill_every: float | None = None,
    page: bool | None = None,
    dir: Path | None = None,
    warehouse: str = "local",
    orders: Orders = Orders.DATAGEN,
) -> None:
    """Run a pipeline with its own MariaDB, and show its views live.

    revenue: orders stream in, and customers change in MySQL. After 20 seconds customer 7 moves to
    China; 20 seconds later Santa becomes a customer, and a MERGE updates the countries in the view.

    membership: MySQL has new, corrected, cancelled and late orders of members; four layers of
    tables keep the agents' scores and the monthly members up to date. Then one order goes through
    all of these changes, and a day with wrong data is repaired.

    The demo prints the address of a web page that shows the tables, too.

    Needs Java 17 and MariaDB's server; `streamhouse setup` names the packages. Prepares whatever
    else `streamhouse setup` prepares, if that has not run.
    """
    from streamhouse.cli.preparation import check_packages, prepare
    from streamhouse.demo.measured_run import print_progress

    check_packages(with_demo=True)
    from streamhouse.demo.measured_run import Kills

    if seconds is None and as_json:
        raise OptionError("--json needs --seconds N, since it prints at the end of the demo")
    rates = {"orders-per-second": orders_per_second, "changes-per-second": changes_per_second}
    for name, rate in rates.items():
        if rate < 1:
            raise OptionError(f"--{name}: {rate} is too small; the least is 1")
    prepare(print_progress)
    stop = StopSignal((*SIGNALS, signal.SIGHUP), at_once=_kill_all)
    kills = None if kill_every is None else Kills(kill_every)
    with_page = not as_json if page is None else page
    with _location(warehouse) as location:
        if scenario is DemoName.MEMBERSHIP:
            folder = dir or Path(".streamhouse/membership")
            run = _Run(folder, seconds, as_json, with_page, kills, stop.check, location)
            _membership(run, changes_per_second, seed)
        else:
            folder = dir or Path(".streamhouse/demo")
            run = _Run(folder, seconds, as_json, with_page, kills, stop.check, location)
            _revenue(run, orders_per_second, orders is Orders.KAFKA)
    if stop.requested():
        raise typer.Exit(INTERRUPTED)


@contextlib.contextmanager
def _location(warehouse: str) -> Iterator[str | None]:
    """The location of the demo's warehouse; None: in its folder. For `s3` a server runs meanwhile.

    The server's address is set in the environment, which the demo's processes inherit.
    """
    from streamhouse.sql.options.store_options import is_object_store, s3_location

    if warehouse == "local":
        yield None
    elif warehouse == "s3":
        from streamhouse.demo.s3_server import BUCKET, S3Server

        with S3Server() as server:
            os.environ.update(server.environment)
            yield f"s3://{BUCKET}/demo"
    elif is_object_store(warehouse):
        yield s3_location(warehouse)
    else:
        raise OptionError(
            f"option '--warehouse': '{warehouse}' is neither local, s3, nor the URL of an object "
            "store, such as s3://bucket/demo; --dir sets the demo's local folder"
        )


@dataclass(frozen=True)
class _Run:
    """The settings of a demo's run."""

    folder: Path
    seconds: float | None
    as_json: bool
    with_page: bool
    kills: Kills | None
    check: Check
    warehouse: str | None

    def page(self, warehouse: str, view: str) -> AbstractContextManager[DemoPage | None]:
        """The web page of the warehouse, which shows `view` first; None inside without a page."""
        from streamhouse.demo.page import DemoPage

        if not self.with_page:
            return contextlib.nullcontext()
        return DemoPage(warehouse, self.folder, view)

    def report(self, page: DemoPage | None, measure: Callable[[], Mapping[str, object]]) -> None:
        """Measure, and print the result as JSON."""
        from streamhouse.demo.measured_run import print_progress

        page_result: dict[str, object] = {}
        if page is not None:
            page_result["page"] = page.wait(self.check)
            print_progress(page.news())
        print(json.dumps({**measure(), **page_result}))


def _revenue(run: _Run, rate: int, with_kafka: bool) -> None:
    from streamhouse.demo.revenue.scenario import VIEW, Scenario

    scenario = Scenario(run.folder, rate, run.warehouse, with_kafka)
    with scenario, run.page(scenario.warehouse, VIEW) as page:
        if run.as_json:
            from streamhouse.demo.measured_run import measure

            run.report(page, lambda: measure(scenario, run.seconds or 0.0, run.kills, run.check))
        else:
            from streamhouse.demo.revenue.terminal import RevenueScreen

            RevenueScreen(scenario, run.seconds, run.kills, run.check, page).run()


def _membership(run: _Run, rate: int, seed: int) -> None:
    from streamhouse.demo.membership.scenario import SPRINT_BOARD, Membership

    scenario = Membership(run.folder, rate, seed, run.warehouse)
    with scenario, run.page(scenario.warehouse.path, SPRINT_BOARD) as page:
        if run.as_json:
            from streamhouse.demo.measured_run import measure

            run.report(page, lambda: measure(scenario, run.seconds or 0.0, run.kills, run.check))
        else:
            from streamhouse.demo.membership.terminal import MembershipScreen

            MembershipScreen(scenario, run.seconds, run.kills, run.check, page).run()


def _kill_all() -> None:
    """Kill MariaDB and the driver: in OS sessions of their own, they get no Ctrl-C."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), _SHOW_CURSOR)
