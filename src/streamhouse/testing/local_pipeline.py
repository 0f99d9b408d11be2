"""The queries of a script under test: their batches run one by one in the calling thread."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pkgutil import resolve_name
from typing import Any, cast

from pyspark.sql import DataFrame

from streamhouse.errors import UnsupportedSqlError
from streamhouse.runtime.pipeline import Pipeline
from streamhouse.runtime.query_description import Planner
from streamhouse.runtime.spark.settings import DEFAULT_MASTER, SparkOptions
from streamhouse.runtime.streaming.continuous_query import ContinuousQuery
from streamhouse.runtime.streaming.query import JobQuery
from streamhouse.runtime.streaming.tasks.worker_resources import close_resources
from streamhouse.runtime.views.build import build
from streamhouse.runtime.views.query import ViewQuery
from streamhouse.source import Offset

_PAUSE_S = 0.001


@dataclass(frozen=True)
class LocalFrame:
    """The results of a batch's tasks: as much of a DataFrame as commits need."""

    run: Callable[[], list[Any]]

    def collect(self) -> list[dict[str, Any]]:
        """Run the tasks; returns their results as rows."""
        return [row for batch in self.run() for row in batch.to_pylist()]


class LocalPipeline(Pipeline):
    """Its views are refreshed from changes, however small their inputs are."""

    def __init__(self) -> None:
        super().__init__(SparkOptions(DEFAULT_MASTER), lambda: False)
        self._planner: Callable[[JobQuery], Planner] = cache(
            lambda query: resolve_name(query.spec.planner)(query.spec, query.run_folder)
        )

    def add(self, query: JobQuery) -> None:
        if isinstance(query, ViewQuery):
            query.spec = replace(query.spec, strategy="incremental", freshness_s=0.0)
        elif isinstance(query, ContinuousQuery):
            query.spec = replace(query.spec, parallelism=1, choices=())
        super().add(query)

    @property
    def views(self) -> list[ViewQuery]:
        """The queries that refresh views."""
        return [query for query in self._running if isinstance(query, ViewQuery)]

    def settle(self) -> None:
        """Start new queries, then run batches until no query has anything left to read."""
        for query in self._new:
            query.prepare()
            query.request_stop()  # So nothing waits for a next batch.
        self._running, self._new = self.queries, []
        for query in self._in_order():
            # A refresh may wait for inputs that change together (decision 356).
            while self._run_next(query) or (
                isinstance(query, ViewQuery) and query.progress.caught_up_offset() is None
            ):
                time.sleep(_PAUSE_S)
        for view in self.views:
            build(view.spec, view.progress.last_offset)

    def _run_next(self, query: JobQuery) -> bool:
        """Plan, run and commit the next batch, and log it as Spark does; False: there is none."""
        logs, job, planner = query.checkpoint.logs, query.spec, self._planner(query)
        start, number, task = logs.newest(), logs.last_logged() + 1, resolve_name(job.task)
        end = planner.latest_offset(start, job.max_rows)
        if end == start:
            return False
        tasks = planner.tasks(start, end)
        frame = LocalFrame(lambda: [result for each in tasks for result in task(job, each)])
        _log(query, "offsets", number, end)
        query.run_batch(cast(DataFrame, frame), number)
        _log(query, "commits", number, {})
        planner.committed(end)
        return True

    def _in_order(self) -> list[JobQuery]:
        """The queries, each after those that fill the tables which it reads or looks up."""
        order = TopologicalSorter[JobQuery]()
        for query in self._running:
            reads = (*query.description.source_tables, *query.description.lookups)
            order.add(query)
            for other in self._running:
                if any(target.same(at) for target in other.targets for at in reads):
                    order.add(query, other)
        try:
            return list(order.static_order())
        except CycleError:
            raise UnsupportedSqlError(
                "queries of the script read each other's targets, which a test cannot run"
            ) from None

    def close(self) -> None:
        ids = [query.checkpoint.query_id() for query in self.queries]
        super().close()
        for query_id in ids:
            close_resources(query_id)


def _log(query: JobQuery, log: str, number: int, entry: Offset) -> None:
    (query.checkpoint_path / log / str(number)).write_text(f"v1\n{{}}\n{json.dumps(entry)}")
