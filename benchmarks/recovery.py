"""How soon the view shows a new figure after a SIGKILL of the driver.

The job of `make demo` runs: generated orders, customers by change data capture from a MariaDB of
its own, the view of both. It is killed again and again, some seconds after its view was back, and
the same command is started at once.

recovery     from the SIGKILL of the driver, the process of `streamhouse run`, to the first snapshot
             of the view that a reader can see. `ratio` is 5 s over the median, the goal 1.0.
cold_start   the same where its JVMs and its Python workers are killed, too.
minute       the freshness of the orders that came to be seen in the minute that begins with the
             last SIGKILL. `ratio` is 15 s over the 99th percentile, the goal 1.0.

In the end the view is computed again from its orders: exit code 1 if it is not equal.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from streamhouse.demo.measured_run import wait_for_first_result
from streamhouse.demo.revenue.scenario import Scenario

GOAL_S, GOAL_MINUTE_S = 5.0, 15.0
MINUTE_S = 60.0
AGAIN_S = 120.0


def check() -> None:
    """Nothing ends it before its time."""


def recovered(scenario: Scenario, alone: bool) -> float:
    """Kill the driver and start it; seconds until the view has a new figure."""
    killed = time.time()
    scenario.driver.kill(alone=alone)
    dead = time.time()
    scenario.start()
    while time.time() < dead + AGAIN_S:
        scenario.driver.raise_if_failed()
        first = scenario.clock.first_after(dead)
        if first is not None:
            return first - killed
        time.sleep(0.02)
    raise SystemExit(f"the view has shown nothing for {AGAIN_S:.0f} s after a SIGKILL")


def run(scenario: Scenario, seconds: float) -> None:
    """Let it run."""
    until = time.time() + seconds
    while time.time() < until:
        scenario.driver.raise_if_failed()
        scenario.update_ages()
        time.sleep(0.2)


def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures; ends the program if the view is wrong."""
    with (
        tempfile.TemporaryDirectory(prefix="streamhouse-recovery-") as folder,
        Scenario(Path(folder), given.rate) as scenario,
    ):
        scenario.start()
        wait_for_first_result(scenario, check)
        run(scenario, given.pause)
        took: dict[str, list[float]] = {}
        # In this order: the first driver that is killed alone has a JVM of its own.
        for name in ("cold_start", "recovery"):
            took[name] = []
            for number in range(given.kills):
                run(scenario, given.pause * random.uniform(0.75, 1.25))
                scenario.ages.window()
                killed = time.time()
                took[name].append(recovered(scenario, alone=name == "recovery"))
                said = f"{name}, {number + 1} of {given.kills}: {took[name][-1]:.2f} s"
                print(said, file=sys.stderr, flush=True)
        run(scenario, killed + given.minute - time.time())
        minute = scenario.ages.window()
        scenario.ages.end()
        scenario.driver.stop()
        scenario.drain()
        if not scenario.audit().equal:
            raise SystemExit("the view is not what its orders make")
    load = round(os.getloadavg()[0], 1)
    if minute is None:
        raise SystemExit("no order has come to be seen in the minute of the last SIGKILL")
    return [
        *(
            {
                "name": name,
                "ratio": round(GOAL_S / statistics.median(each), 3),
                "goal": 1.0,
                "unit": "5 s over the median of the seconds from SIGKILL to a new figure",
                "median_s": round(statistics.median(each), 2),
                "min_s": round(min(each), 2),
                "max_s": round(max(each), 2),
                "kills": len(each),
                "load_1min": load,
            }
            for name, each in reversed(took.items())
        ),
        {
            "name": "minute",
            "ratio": round(GOAL_MINUTE_S * 1000 / minute["p99"], 3),
            "goal": 1.0,
            "unit": "15 s over the 99th percentile of the seconds from order to view",
            "p50_s": round(minute["p50"] / 1000, 2),
            "p99_s": round(minute["p99"] / 1000, 2),
            "max_s": round(minute["max"] / 1000, 2),
            "seconds": given.minute,
            "load_1min": load,
        },
    ]


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument(
        "--pause", type=float, default=6.0, help="seconds between recovery and kill"
    )
    parser.add_argument("--minute", type=float, default=MINUTE_S, help="seconds of the last figure")
    parser.add_argument("--rate", type=int, default=1000, help="orders a second")
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    given = parser.parse_args()
    for one in measure(given):
        if given.json:
            print(json.dumps(one), flush=True)
        else:
            rest = ", ".join(f"{key} {one[key]}" for key in one if key.endswith("_s"))
            print(f"{one['name']:10} {one['ratio']:6} {one['goal']:5}   {rest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
