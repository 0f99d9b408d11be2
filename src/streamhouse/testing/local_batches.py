"""Runs the batches of continuous queries in the calling thread, one by one, without Spark."""

import json
import time
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql import DataFrame

from streamhouse.errors import UnsupportedSqlError
from streamhouse.runtime.streaming.query import JobQuery
from streamhouse.runtime.views.query import ViewQuery
from streamhouse.source import Offset


def begin(query: JobQuery) -> None:
    """Prepare a query for `run_batches`."""
    query.prepare()
    query.progress.planner = resolve_name(query.spec.planner)(query.spec, query.run_folder)
    query.request_stop()  # So nothing waits for a next batch.


def run_batches(query: JobQuery) -> None:
    """Run batches until there is nothing to read."""
    # A refresh may wait for inputs that change together (decision 356).
    while _run_next(query) or (
        isinstance(query, ViewQuery) and query.progress.caught_up_offset() is None
    ):
        time.sleep(0.001)


def _run_next(query: JobQuery) -> bool:
    """Plan, run and commit the next batch, and log it as Spark does; False: there is none."""
    logs, job, planner = query.checkpoint.logs, query.spec, query.progress.planner
    assert planner is not None
    start, number, task = logs.newest(), logs.last_logged() + 1, resolve_name(job.task)
    end = planner.latest_offset(start, job.max_rows)
    if end == start:
        return False
    tasks = planner.tasks(start, end)

    def collect() -> list[dict[str, Any]]:
        return [row for each in tasks for found in task(job, each) for row in found.to_pylist()]

    _log(query, "offsets", number, end)
    # Commits only collect the results of the tasks.
    query.run_batch(cast(DataFrame, SimpleNamespace(collect=collect)), number)
    _log(query, "commits", number, {})
    planner.committed(end)
    return True


def _log(query: JobQuery, log: str, number: int, entry: Offset) -> None:
    (query.checkpoint_path / log / str(number)).write_text(f"v1\n{{}}\n{json.dumps(entry)}")


def in_order(queries: Sequence[JobQuery]) -> Iterable[JobQuery]:
    """The queries, each after those that fill the tables which it reads or looks up."""
    order = TopologicalSorter[JobQuery]()
    for query in queries:
        reads = (*query.description.source_tables, *query.description.lookups)
        fill = (each for each in queries if any(to.same(at) for to in each.targets for at in reads))
        order.add(query, *fill)
    try:
        return list(order.static_order())
    except CycleError:
        raise UnsupportedSqlError(
            "queries of the script read each other's targets, which a test cannot run"
        ) from None
