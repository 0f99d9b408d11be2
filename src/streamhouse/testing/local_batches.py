"""Runs the batches of continuous queries in the calling thread, one by one, without Spark."""

import time
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import cast

from pyspark import RDD

from streamhouse.errors import UnsupportedSqlError
from streamhouse.runtime.streaming.query import JobQuery
from streamhouse.runtime.streaming.spark_job import Record, records
from streamhouse.runtime.views.query import ViewQuery


def begin(query: JobQuery) -> None:
    """Prepare a query for `run_batches`."""
    query.prepare()
    query.progress.planner = resolve_name(query.spec.planner)(query.spec, query.run_folder)
    query.request_stop()  # So nothing waits for a next batch.


def run_batches(query: JobQuery) -> None:
    """Plan, run and commit batches until there is nothing to read."""
    # A refresh may wait for inputs that change together (decision 263).
    while _run_next(query) or (
        isinstance(query, ViewQuery) and query.progress.caught_up_offset() is None
    ):
        time.sleep(0.001)


def _run_next(query: JobQuery) -> bool:
    """Plan, run and commit the next batch; False: there is none."""
    logs, job, planner = query.checkpoint.logs, query.spec, query.progress.planner
    assert planner is not None
    start, task = logs.newest(), resolve_name(job.task)
    end = planner.latest_offset(start, job.max_rows)
    if end == start:
        return False
    logs.plan(end)
    tasks = planner.tasks(start, end)

    def collect() -> list[Record]:
        return [record for each in tasks for record in records(task(job, each))]

    # Commits only collect what the tasks return.
    query.run_batch(cast("RDD[Record]", SimpleNamespace(collect=collect)))
    logs.commit()
    planner.committed(end)
    return True


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
