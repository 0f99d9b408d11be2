"""How fast a Spark cluster takes in the backlog of `backlog.py`, against one process.

A standalone cluster on this machine, with 1, 2 and 4 executors of one core, against `local[N]` of
as many tasks. Each runs the revenue view over orders that wait, in a fresh session, in turn with
the other; the clock starts when an executor has run a task. The goal is 0.7 of the rows a second of
one process. On a machine with fewer cores than executors both are limited by the cores, and the
ratio shows what the cluster adds: tasks sent over the network, and a JVM for each executor.

Then views of Nexmark (`nexmark.sql`), computed for the first time from `--events` events: by two
executors of one core, in stages between which Spark shuffles rows, against one process with two
cores. `equal`: the rows of the view are those of its query.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.backlog import (
    RUN_SECONDS,
    in_fresh_process,
    make_tables,
    print_metrics,
    run_script,
)
from benchmarks.nexmark import Events, select_of

from streamhouse.demo.mariadb import free_port

EXECUTORS = (1, 2, 4)
VIEWS = ("q4", "q7", "q9", "q20")
CORES = 2
"""Those of a cluster that computes a view, and of the process."""
GOAL = 0.7
HOST = "127.0.0.1"
START_SECONDS = 60
SPARK_HOME = Path(pyspark.__file__).parent
CLASS = "org.apache.spark.deploy"
OPENS = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.nio")]
OPENS += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]


@contextlib.contextmanager
def standalone(cores: int) -> Iterator[str]:
    """A master and a worker on this machine; gives the master's address."""
    master = f"spark://{HOST}:{free_port()}"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-")))
        port = master.rpartition(":")[2]
        log = folder / "master"
        words = [f"{CLASS}.master.Master", "--host", HOST, "--port", port, "--webui-port", "0"]
        stack.enter_context(_java(words, log))
        words = [f"{CLASS}.worker.Worker", "--host", HOST, "--cores", str(cores), "--memory", "8g"]
        words += ["--work-dir", str(folder / "work"), "--webui-port", "0", master]
        stack.enter_context(_java(words, folder / "worker"))
        deadline = time.monotonic() + START_SECONDS
        while "Registering worker" not in log.read_text():
            if time.monotonic() > deadline:
                raise SystemExit(f"no worker has registered: {log.read_text()[-1000:]}")
            time.sleep(0.1)
        yield master


@contextlib.contextmanager
def _java(words: list[str], log: Path) -> Iterator[None]:
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-Dorg.apache.logging.log4j.level=INFO", *OPENS]
    given = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOST}
    given["SPARK_SCALA_VERSION"] = "2.13"
    with log.open("wb") as out:
        command = ["java", *options, "-cp", f"{SPARK_HOME}/jars/*", *words]
        process = subprocess.Popen(command, env=given, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def on_cluster(warehouse: str, total: float, executors: int) -> dict[str, Any]:
    """A run on a fresh cluster."""
    with standalone(executors) as master:
        settings = cluster_settings(executors)
        return in_fresh_process(warehouse, total, master=master, settings=settings, tasks=executors)


def cluster_settings(executors: int) -> dict[str, str]:
    """Spark's settings for executors of one core."""
    return {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.cores.max": str(executors),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        # Tasks begin when all executors are there, as tasks of one process do.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }


def measure(rows: int, runs: int, executors: int, warehouse: str, total: float) -> dict[str, Any]:
    """The figures of one number of executors, medians over `runs`."""
    cluster, process = [], []
    for _ in range(runs):
        process.append(
            in_fresh_process(warehouse, total, master=f"local[{executors}]", tasks=executors)
        )
        cluster.append(on_cluster(warehouse, total, executors))
    right = all(result["right"] for result in [*cluster, *process])
    ours, limit = (
        rows / statistics.median(result["seconds"] for result in results) if right else 0.0
        for results in (cluster, process)
    )
    return {
        "name": f"cluster_{executors}",
        "unit": "rows/s",
        "rows_per_s": round(ours),
        "one_process_rows_per_s": round(limit),
        "ratio": round(ours / limit, 3) if right else None,
        "goal": GOAL,
        "seconds": [one["seconds"] for one in cluster],
        "one_process_seconds": [one["seconds"] for one in process],
        "session_start_s": round(statistics.median(one["session_s"] for one in cluster), 1),
        "sum_is_right": right,
    }


def measure_view(events: Events, name: str, total: int, runs: int) -> dict[str, Any]:
    """The figures of a view, medians over `runs`."""
    cluster, process, equal = [], [], True
    for number in range(runs):
        views = [f"{name}_{where}_{number}" for where in ("process", "cluster")]
        process.append(view_run(events, name, views[0], f"local[{CORES}]", {}))
        with standalone(CORES) as master:
            cluster.append(view_run(events, name, views[1], master, cluster_settings(CORES)))
        equal = equal and all(events.has_rows_of(view, select_of(name)) for view in views)
    ours, limit = (total / statistics.median(seconds) for seconds in (cluster, process))
    return {
        "name": name,
        "unit": "events/s",
        "events_per_s": round(ours),
        "one_process_events_per_s": round(limit),
        "ratio": round(ours / limit, 3),
        "goal": GOAL,
        "seconds": cluster,
        "one_process_seconds": process,
        "equal": equal,
    }


def view_run(events: Events, name: str, view: str, master: str, settings: dict[str, str]) -> float:
    """The seconds until a new view has its rows, in a fresh process with its own session."""
    how = json.dumps([events.warehouse.path, name, view, master, settings])
    command = [sys.executable, __file__, "--one-view", how]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=RUN_SECONDS)
    if done.returncode:
        raise SystemExit(f"{name}: the run failed with exit code {done.returncode}")
    return round(events.ended_ms(view) / 1000 - float(done.stdout.splitlines()[-1]), 3)


def one_view(warehouse: str, name: str, view: str, master: str, settings: dict[str, str]) -> None:
    """Create a view, and run its pipeline until it has caught up; prints when its clock started."""
    from streamhouse.runtime.spark.session import check_cluster, start_session
    from streamhouse.runtime.spark.settings import SparkOptions

    options = SparkOptions(master, settings)
    check_cluster(start_session(name, options), options, [{"warehouse": warehouse}], print)
    started = time.time()
    text = f"SET 'parallelism.default' = '{CORES}'; USE nexmark; "
    text += f"CREATE MATERIALIZED VIEW {view} AS {select_of(name)};"
    run_script(text, view, warehouse, spark=options)
    print(started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3, help="figures are medians over them")
    parser.add_argument("--executors", type=int, nargs="*", default=EXECUTORS)
    parser.add_argument("--events", type=int, default=10_000_000, help="of Nexmark, for views")
    parser.add_argument("--views", nargs="*", default=VIEWS, help="queries of Nexmark")
    parser.add_argument("--one-view", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    given = parser.parse_args()
    if given.one_view:
        one_view(*json.loads(given.one_view))
        return 0
    right = True
    with tempfile.TemporaryDirectory(prefix="streamhouse-cluster-") as folder:
        warehouse = str(Path(folder) / "warehouse")
        total = make_tables(warehouse, given.rows) if given.executors else 0.0
        for executors in given.executors:
            metrics = measure(given.rows, given.runs, executors, warehouse, total)
            right = right and metrics["sum_is_right"]
            print_metrics(metrics, given.json)
    with tempfile.TemporaryDirectory(prefix="streamhouse-cluster-") as folder:
        if given.views:
            events = Events(f"{folder}/warehouse", given.events)
        for name in given.views:
            metrics = measure_view(events, name, given.events, given.runs)
            right = right and metrics["equal"]
            print_metrics(metrics, given.json)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
