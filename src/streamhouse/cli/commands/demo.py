"""`streamhouse demo`: runs a whole pipeline, live, on a MariaDB of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamhouse.cli.errors import INTERRUPTED, SIGNALS, StopSignal
from streamhouse.cli.flags import with_flags
from streamhouse.errors import OptionError

if TYPE_CHECKING:
    from streamhouse.demo.driver import Check, DemoPage
    from streamhouse.demo.measured_run import Kills
    from streamhouse.demo.scenario import DemoScenario

_SHOW_CURSOR = b"\x1b[?25h\n"


class DemoName(StrEnum):
    """What the demo shows."""

    REVENUE = "revenue"
    MEMBERSHIP = "membership"
    NEXMARK = "nexmark"


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
    events_per_second: int = 5000,
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

    nexmark: persons, auctions and bids of an auction house stream in; three views join and
    count them. Needs no MySQL.

    The demo prints the address of a web page that shows the tables, too.

    Needs Java 17 and, for revenue and membership, MariaDB's server; `streamhouse setup` names the
    packages. Prepares whatever else `streamhouse setup` prepares, if that has not run.
    """
    from streamhouse.cli.preparation import check_packages, prepare
    from streamhouse.demo.driver import DemoPage
    from streamhouse.demo.measured_run import Kills, LiveScreen, print_progress

    check_packages(with_demo=scenario is not DemoName.NEXMARK)

    if seconds is None and as_json:
        raise OptionError("--json needs --seconds N, since it prints at the end of the demo")
    rates = {
        "orders-per-second": orders_per_second,
        "changes-per-second": changes_per_second,
        "events-per-second": events_per_second,
    }
    for name, rate in rates.items():
        if rate < 1:
            raise OptionError(f"--{name}: {rate} is too small; the least is 1")
    prepare(print_progress)
    stop = StopSignal((*SIGNALS, signal.SIGHUP), at_once=_kill_all)
    kills = Kills() if kill_every is None else Kills(kill_every)
    with_page = not as_json if page is None else page
    with _location(warehouse) as location:
        running: DemoScenario
        if scenario is DemoName.MEMBERSHIP:
            from streamhouse.demo.membership.scenario import Membership

            folder = dir or Path(".streamhouse/membership")
            running = Membership(folder, changes_per_second, seed, location)
        elif scenario is DemoName.NEXMARK:
            from streamhouse.demo.nexmark.scenario import Nexmark

            folder = dir or Path(".streamhouse/nexmark")
            running = Nexmark(folder, events_per_second, location)
        else:
            from streamhouse.demo.revenue.scenario import Scenario

            folder = dir or Path(".streamhouse/demo")
            running = Scenario(folder, orders_per_second, location, orders is Orders.KAFKA)
        with running, ExitStack() as pages:
            shown = None
            if with_page:
                shown = pages.enter_context(
                    DemoPage(running.warehouse.path, running.folder, running.boards[0])
                )
            if as_json:
                _report(running, seconds or 0.0, kills, stop.check, shown)
            else:
                LiveScreen(running, seconds, kills, stop.check, shown).run()
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


def _report(
    scenario: DemoScenario,
    seconds: float,
    kills: Kills,
    check: Check,
    page: DemoPage | None,
) -> None:
    """Measure, and print the result as JSON."""
    from streamhouse.demo.measured_run import measure, print_progress

    page_result: dict[str, object] = {}
    if page is not None:
        page_result["page"] = page.wait(check)
        print_progress(page.news())
    print(json.dumps({**measure(scenario, seconds, kills, check), **page_result}))


def _kill_all() -> None:
    """Kill MariaDB and the driver: in OS sessions of their own, they get no Ctrl-C."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), _SHOW_CURSOR)
