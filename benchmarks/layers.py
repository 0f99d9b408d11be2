"""How old a change is when the last layer shows it, in the jobs of both demos.

layers   `streamhouse demo membership`: eight queries in one driver, 500 changes a second in MySQL.
         From the commit of an order in MySQL to the board in the APP layer, four tables later.
hops     `make demo`: 1,000 generated orders a second, from the time that an order is made to the
         view, two queries later.

`ratio` is the goal over the figure, the goal 1.0: 0.8 s and 2 s for the median and the 99th
percentile of `layers`, 0.2 s and 0.5 s of `hops`. The first 15 seconds do not count. Each job
proves its figures in the end: exit code 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from streamhouse.demo.measured_run import Kills, measure
from streamhouse.demo.membership.scenario import Membership
from streamhouse.demo.revenue.scenario import Scenario

GOALS_S = {"layers": {"p50": 0.8, "p99": 2.0}, "hops": {"p50": 0.2, "p99": 0.5}}


def check() -> None:
    """Nothing ends it before its time."""


def layers(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """What `streamhouse demo membership --json` prints."""
    with Membership(folder, given.changes) as world:
        return measure(world, given.seconds, Kills(), check)


def hops(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """What `streamhouse demo --json` prints."""
    with Scenario(folder, given.orders) as scenario:
        return measure(scenario, given.seconds, Kills(), check)


def metrics(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """A figure a percentile."""
    ages = found["freshness_ms"]
    if ages is None:
        raise SystemExit(f"{name}: no change has come through; run it for longer")
    return [
        {
            "name": f"{name}_{which}",
            "ratio": round(goal * 1000 / max(ages[which], 1.0), 3),
            "goal": 1.0,
            "unit": f"{goal} s over the seconds from change to view",
            "seconds": round(ages[which] / 1000, 3),
            "max_s": round(ages["max"] / 1000, 3),
            "orders": found["orders"],
            "equal": found["equal"],
            "load_1min": round(os.getloadavg()[0], 1),
        }
        for which, goal in GOALS_S[name].items()
    ]


def main() -> int:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--changes", type=int, default=500, help="a second, in MySQL")
    parser.add_argument("--orders", type=int, default=1000, help="a second, generated")
    parser.add_argument("--only", nargs="+", choices=list(GOALS_S), default=list(GOALS_S))
    parser.add_argument("--json", action="store_true", help="print one JSON object a figure")
    given = parser.parse_args()
    equal = True
    for name in given.only:
        with tempfile.TemporaryDirectory(prefix="streamhouse-layers-") as folder:
            found = {"layers": layers, "hops": hops}[name](Path(folder) / "demo", given)
        equal = equal and found["equal"]
        for metric in metrics(name, found):
            if given.json:
                print(json.dumps(metric), flush=True)
            else:
                rest = f"{metric['seconds']:8} s   max {metric['max_s']} s, equal {metric['equal']}"
                print(
                    f"{metric['name']:11} {metric['ratio']:6} {metric['goal']:5} {rest}", flush=True
                )
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
