"""Runs a sync in this process: Spark, the query, maintenance, and reports of its progress."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Unpack

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.monitoring.reporter import Reporter
from streamhouse.runtime.pipeline import Pipeline
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.spark.settings import SparkOptions
from streamhouse.runtime.state.checkpoint import Checkpoint, checkpoints_of
from streamhouse.runtime.state.checkpoint_registry import announce_checkpoints
from streamhouse.runtime.sync.options import (
    DatabaseArguments,
    SyncOptions,
    TableArguments,
    sync_database_options,
    sync_table_options,
)
from streamhouse.runtime.sync.planner import TableState
from streamhouse.runtime.sync.query import SyncQuery
from streamhouse.source import Offset

_SHOWN, _EVERY_S = 3, 5.0


@dataclass(frozen=True)
class Report:
    """The progress of a sync, `seconds` after its start."""

    seconds: float
    tables: Sequence[TableState]

    @property
    def followed(self) -> int:
        """How many tables have a complete snapshot."""
        return sum(table.complete for table in self.tables)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        lags = [table.lag_s for table in self.tables if table.lag_s is not None]
        return {
            "seconds": round(self.seconds, 1),
            "tables": len(self.tables),
            "followed": self.followed,
            "snapshot_rows": sum(table.snapshot_rows for table in self.tables),
            "changes": sum(table.changes for table in self.tables),
            "lag_s": round(max(lags), 2) if lags else None,
            "table": [asdict(table) for table in self.tables],
        }

    def text(self) -> str:
        """The report in one line."""
        if self.followed < len(self.tables):
            read = sum(table.snapshot_rows for table in self.tables)
            expected = max(read, sum(table.estimate for table in self.tables))
            running = [
                table.table for table in self.tables if table.snapshot_rows and not table.complete
            ]
            now = f"; reading {', '.join(running[:_SHOWN])}" if running else ""
            return (
                f"{self.followed} of {len(self.tables)} tables read, {read:,} of about "
                f"{expected:,} rows{now}"
            )
        changes = sum(table.changes for table in self.tables)
        late = [table for table in self.tables if table.lag_s]
        late.sort(key=lambda table: table.lag_s or 0.0, reverse=True)
        slowest = ", ".join(f"{table.table} {table.lag_s:.1f} s" for table in late[:_SHOWN])
        behind = f"behind: {slowest}" if slowest else "none is behind"
        return f"{len(self.tables)} tables followed, {changes:,} changes; {behind}"


Listener = Callable[[Report], None]


@dataclass
class SyncRun:
    """How a sync runs.

    `name` is that of its checkpoint and of its status: another name is another sync. `checkpoints`
    is the folder of checkpoints; None: in the warehouse. `listener` gets a report every few
    seconds; `output` shows the start of Spark and of the query. `from_scratch`:
    forget the checkpoint; False once that has begun.
    """

    options: SyncOptions
    name: str | None = None
    checkpoints: Path | None = None
    until_caught_up: bool = False
    from_scratch: bool = False
    stopped: Callable[[], bool] = field(default=lambda: False)
    notice: Callable[[str], None] = field(default=lambda text: None)
    listener: Listener | None = None
    spark: SparkOptions = SparkOptions()
    reporter: Reporter | None = None
    output: RunOutput | None = None

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
    query = SyncQuery(options, checkpoint, run.notice, parallelism, run.from_scratch)
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
        pipeline = Pipeline(run.spark, run.stopped, run.reporter, run.notice, run.output)
        stack.callback(pipeline.close)
        query = new_query(run)
        pipeline.add(query)
        reports = ProgressReports(query, run.listener)
        ends = run.until_caught_up or run.options.mysql.startup_mode == "snapshot"
        pipeline.run(ends, [reports])
        return reports.last()


class ProgressReports:
    """Calls the listener every few seconds, and when all tables have been read; a `Side`."""

    def __init__(self, query: SyncQuery, listener: Listener | None) -> None:
        self._query, self._listener = query, listener or (lambda report: None)
        self._began = time.monotonic()
        self._reported_at = self._began
        self._batches = 0
        self._complete = False
        self._states: Sequence[TableState] = ()

    @property
    def reads(self) -> Sequence[TableAddress]:
        return []

    def step(self) -> None:
        """Report, if it is due."""
        batches, now = self._query.metrics.read().batches, time.monotonic()
        due = now - self._reported_at >= _EVERY_S
        if batches == self._batches and not due:
            return
        self._batches = batches
        report = self._reported()
        complete = bool(report.tables) and report.followed == len(report.tables)
        first, self._complete = complete and not self._complete, complete
        if due or first:
            self._reported_at = now
            self._listener(report)

    def caught_up_offset(self) -> Offset | None:
        return {}

    def last(self) -> list[Mapping[str, object]]:
        """The last state of each table."""
        return [asdict(state) for state in self._states]

    def close(self) -> None:
        """Report once more, at the end."""
        if self._batches:
            self._listener(self._reported())

    def _reported(self) -> Report:
        report = Report(time.monotonic() - self._began, self._query.states())
        self._states = report.tables
        return report


def sync_mysql_table(
    warehouse: str | Mapping[str, str],
    database: str,
    table: str,
    mysql_conf: Mapping[str, str],
    *,
    name: str | None = None,
    until_caught_up: bool = False,
    from_scratch: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = print,
    listener: Listener | None = None,
    **arguments: Unpack[TableArguments],
) -> list[Mapping[str, object]]:
    """Follow one or several MySQL tables into one Paimon table, as `streamhouse sync mysql-table`.

    `warehouse` is a folder, a URI or catalog options. `mysql_conf` has the options of a `mysql-cdc`
    table, with regular expressions for `database-name` and `table-name`. Uses the active Spark
    session, or starts one. Blocks until `stopped` returns True or, with `until_caught_up`, until
    nothing is left to read. Called again with the same `name` (default: `sync-` and the target), it
    goes on where it was; each change is written once, also after a crash. With `from_scratch` it
    forgets where it was, reads the tables again, and writes the differences. The other arguments
    are the flags of the command, with underscores. `notice` gets messages, `listener` a `Report`
    every few seconds. Returns the last state of each table: `table`, `target`, `complete`,
    `snapshot_rows`, `estimate`, `changes`, `lag_s`. Raises `OptionError`, `TableError`,
    `ConnectError`, and `QueryFailed` for a failure while it runs.

        >>> sync_mysql_table("warehouse", "ods", "orders", {
        ...     "hostname": "localhost", "username": "reader", "password": "secret",
        ...     "database-name": "shop_\\\\d+", "table-name": "orders",
        ... })  # doctest: +SKIP
    """
    catalog = Warehouse(warehouse).options
    options = sync_table_options(catalog, database, table, mysql_conf, **arguments)
    run = SyncRun(options, name, None, until_caught_up, from_scratch, stopped, notice, listener)
    return run_sync(run)


def sync_mysql_database(
    warehouse: str | Mapping[str, str],
    database: str,
    mysql_conf: Mapping[str, str],
    *,
    name: str | None = None,
    until_caught_up: bool = False,
    from_scratch: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = print,
    listener: Listener | None = None,
    **arguments: Unpack[DatabaseArguments],
) -> list[Mapping[str, object]]:
    """Follow whole MySQL databases into a Paimon database, as `streamhouse sync mysql-database`.

    For the arguments, what it returns and raises see `sync_mysql_table`; `mysql_conf` has no
    `table-name`.
    """
    options = sync_database_options(Warehouse(warehouse).options, database, mysql_conf, **arguments)
    run = SyncRun(options, name, None, until_caught_up, from_scratch, stopped, notice, listener)
    return run_sync(run)
