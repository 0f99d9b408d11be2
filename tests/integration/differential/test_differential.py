"""Generated cases: the tables that readers fill equal those of a model in plain Python.

A case is a source table of some layout, how it is filled, and what reads it, all drawn from a
seed. After each run until caught up, and after each change of a live one, the source and each
target are compared with a plain model, with the Java core's reading, and with the audit.

`make test` plays the cases of `FEW` without Spark, `make soak` as many more as these variables say:

- `STREAMHOUSE_DIFFERENTIAL_CASES` (2000) and `STREAMHOUSE_DIFFERENTIAL_SEED` (1000, the first one),
  or `STREAMHOUSE_DIFFERENTIAL_SEEDS`, such as `17,1203`;
- `STREAMHOUSE_DIFFERENTIAL_PACK` (12): how many cases share a script;
- `STREAMHOUSE_DIFFERENTIAL_SECONDS`: no further cases are begun after so long;
- `STREAMHOUSE_DIFFERENTIAL_LOCAL`: queries run without Spark (`local_run`), except in the processes
  that a SIGKILL ends;
- `STREAMHOUSE_DIFFERENTIAL_LOG`: a file to which each case's verdict is appended, as JSON;
- `STREAMHOUSE_DIFFERENTIAL_SHRINK`: so many seconds go into making each failing case smaller.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.integration.differential.case import (
    BETWEENS,
    FEEDS,
    FILTERED,
    MODES,
    READERS,
    RETRY,
    Case,
    case_of,
)
from tests.integration.differential.history import history_of
from tests.integration.differential.layout import (
    BUCKETS,
    ENGINES,
    FORMATS,
    NUMBERS,
    PARTITIONS,
    PRODUCERS,
    WAITS,
)
from tests.integration.differential.local_run import without_spark
from tests.integration.differential.pack import Pack
from tests.integration.differential.report import Report, verdicts
from tests.integration.differential.shrink import History, shrunk

from streamhouse.procedures.context import Context

# py4j leaves the socket open with which it has tried to reach a JVM that was killed.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("spark_here"),
]
FEW = {
    8: ("sums", "newest"),
    24: ("copy", "dimension-partial"),
    39: ("lookup-full", "dimension-bucket", "filtered", "lookup-retry"),
    101: ("union", "dimension-full"),
    119: ("union-sums", "filtered-removing"),
    143: ("two-hops",),
    146: ("distinct", "lookup-partial"),
    258: ("lookup-bucket",),
}
"""Seeds and readers that together have each merge engine, producer and reader, in two rounds."""
A_PACK = int(os.environ.get("STREAMHOUSE_DIFFERENTIAL_PACK", "12"))
"""Cases that share a script: more of them take more memory, fewer more starts and waits."""
A_WAREHOUSE = 8 * A_PACK
"""Cases that share a warehouse and its JVM, which is slow at first."""
DIMENSIONS: dict[str, Sequence[str]] = {
    "engine": ENGINES,
    "producer": PRODUCERS,
    "buckets": BUCKETS,
    "partition": PARTITIONS,
    "vectors": ("true", "false"),
    "format": FORMATS,
    "number": NUMBERS,
    "waits": [name or "no" for name in WAITS],
    "feed": FEEDS,
    "mode": MODES,
    "reader": (*READERS, *FILTERED, RETRY),
    "between": BETWEENS,
}


def test_a_few_cases(tmp_path: Path) -> None:
    cases = [case_of(seed, readers=readers, mode="stopped") for seed, readers in FEW.items()]
    with without_spark():
        report = play(tmp_path, cases)
    assert not report.problems, "\n".join(report.lines())
    played = {
        "reader": DIMENSIONS["reader"],
        "engine": ENGINES,
        "producer": PRODUCERS,
        "format": FORMATS,
    }
    wanted = [(name, value) for name, values in played.items() for value in values]
    assert report.missing(wanted, 1) == []


@pytest.mark.soak
def test_many_cases(tmp_path: Path) -> None:
    given = os.environ.get("STREAMHOUSE_DIFFERENTIAL_SEEDS")
    first, count = _number("SEED", 1000), _number("CASES", 2000)
    seeds = [int(one) for one in given.split(",")] if given else range(first, first + count)
    deadline = time.monotonic() + _number("SECONDS", 10**9)
    report = Report()
    for number in range(0, len(seeds), A_WAREHOUSE):
        if time.monotonic() > deadline:
            break
        cases = [case_of(seed) for seed in seeds[number : number + A_WAREHOUSE]]
        one = play(tmp_path / f"warehouse-{cases[0].seed}", cases, report)
        print(f"{one.cases} cases of {len(seeds)}, {len(one.problems)} wrong", flush=True)
        print("\n".join(one.found({case.seed for case in cases})), flush=True)
    print("\n".join(report.lines()), flush=True)
    for seed in report.problems:
        _shrink(tmp_path, case_of(seed))
    assert not report.problems
    wanted = [(name, value) for name, values in DIMENSIONS.items() for value in values]
    assert given or report.missing(wanted, report.cases // 100) == []


def packs(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Cases of one mode, some at a time; the modes take turns."""
    filling: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        pack = filling[case.mode]
        pack.append(case)
        if len(pack) == A_PACK:
            yield filling.pop(case.mode)
    yield from filling.values()


def play(
    folder: Path,
    cases: Sequence[Case],
    report: Report | None = None,
    history: History | None = None,
) -> Report:
    """Play cases; what was found."""
    report = report or Report()
    (folder / "warehouse").mkdir(parents=True)
    with Context(str(folder / "warehouse")) as context:
        for some in packs(cases):
            place = folder / f"{some[0].mode}-{some[0].seed}"
            place.mkdir()
            pack = Pack(place, context, some, history)
            local = os.environ.get("STREAMHOUSE_DIFFERENTIAL_LOCAL")
            with without_spark() if local else nullcontext():
                pack.run()
            report.add(pack.plays)
            if log := os.environ.get("STREAMHOUSE_DIFFERENTIAL_LOG"):
                with Path(log).open("a") as file:
                    file.writelines(f"{line}\n" for line in verdicts(pack.plays, pack.seconds))
    return report


def _shrink(folder: Path, case: Case) -> None:
    """Print the smallest form of a failing case that is found in the time given for it."""
    seconds = _number("SHRINK", 0)
    if not seconds:
        return
    tries = iter(range(10**6))

    def fails(one: Case, history: History) -> bool:
        place = folder / f"shrink-{case.seed}-{next(tries)}"
        return bool(play(place, [one], history=history).problems)

    smallest, history = shrunk(case, history_of(case), fails, seconds)
    print(f"smallest form of seed {case.seed}:\n{smallest}", flush=True)
    for number, one in enumerate(history):
        print(f"  round {number}: {one}", flush=True)


def _number(name: str, default: int) -> int:
    return int(os.environ.get(f"STREAMHOUSE_DIFFERENTIAL_{name}", default))
