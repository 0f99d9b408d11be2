"""Runs a sync in this process: Spark, the query, maintenance, and reports of its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from streamhouse.runtime.monitoring.reporter import Reporter
from streamhouse.runtime.monitoring.run_reports import RunListener
from streamhouse.runtime.pipeline import Pipeline
from streamhouse.runtime.spark.options import SparkOptions
from streamhouse.runtime.state.checkpoint import Checkpoint, checkpoints_of
from streamhouse.runtime.state.checkpoint_registry import announce_checkpoints
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.runtime.sync.progress import Listener, ProgressReports
from streamhouse.runtime.sync.query import SyncQuery


@dataclass
class SyncRun:
    """How a sync runs.

    `name` is that of its checkpoint and of its status: another name is another sync. `checkpoints`
    is the folder of checkpoints; None: in the warehouse. `listener` gets a report each
    `every_s` seconds; `run_listener` shows the start of Spark and of the query. `from_scratch`:
    forget the checkpoint; False once that has begun.
    """

    options: SyncOptions
    name: str | None = None
    checkpoints: Path | None = None
    until_caught_up: bool = False
    spark: SparkOptions = SparkOptions()
    stopped: Callable[[], bool] = field(default=lambda: False)
    notice: Callable[[str], None] = field(default=lambda text: None)
    listener: Listener | None = None
    every_s: float = 5.0
    reporter: Reporter | None = None
    run_listener: RunListener | None = None
    from_scratch: bool = False

    @property
    def pipeline(self) -> str:
        """The name of the pipeline."""
        return self.name or f"sync-{self.options.name}"


def new_query(run: SyncRun, parallelism: int = 2) -> SyncQuery:
    """The query of a sync, which locks its checkpoint; `parallelism`: tasks of a batch."""
    options = run.options
    if run.checkpoints is None:
        announce_checkpoints(options.warehouse["warehouse"], run.notice)
    root = run.checkpoints or checkpoints_of(options.warehouse["warehouse"])
    checkpoint = Checkpoint(root, run.pipeline, f"sync-{options.name}")
    query = SyncQuery(options, checkpoint, run.pipeline, run.notice, parallelism, run.from_scratch)
    run.from_scratch = False
    return query


def run_sync(run: SyncRun) -> list[Mapping[str, object]]:
    """Follow the tables until stopped or, with `until_caught_up`, until nothing is left to read.

    Returns the last state of each table. Raises `OptionError`, `TableError`, `ConnectError`, and
    the errors of the running query.
    """
    for text in run.options.notices:
        run.notice(text)
    with ExitStack() as stack:
        pipeline = Pipeline(run.spark, run.stopped, run.reporter, run.notice, run.run_listener)
        stack.callback(pipeline.close)
        query = new_query(run)
        pipeline.add(query)
        reports = ProgressReports(query, run.listener, run.every_s)
        pipeline.run(run.until_caught_up or run.options.ends_with_snapshot, [reports])
        return reports.last()
