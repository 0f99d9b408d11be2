"""The continuous queries of one script, in one driver, with the maintenance of their tables."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from streamhouse.paimon.care import shows_compacted
from streamhouse.paimon.maintenance import Maintenance
from streamhouse.runtime.query import ContinuousQuery
from streamhouse.runtime.relays import Relays
from streamhouse.runtime.reporter import Reporter
from streamhouse.source import Offset

_TICK_S = 0.05
_CALM_LOOKS = 3
_NICE = 5
"""By how much compaction stands back behind queries that do not wait for it."""


_FEW_QUERIES = 4
_PAUSE_A_QUERY_S = 0.0625


def least_pause(queries: int, looked_up: bool = False) -> float:
    """Seconds from a batch of a query to its next, where so many run in one driver.

    A batch of few rows costs as much as one of many. Queries at the front that run all the time
    take the processors from those behind them, which are what a view waits for. Nothing waits for
    one whose target is only `looked_up`: a change of it counts from the next row on.
    """
    pause = 0.0 if queries <= _FEW_QUERIES else _PAUSE_A_QUERY_S * queries
    return 2 * pause if looked_up else pause


class Side(Protocol):
    """Something that runs beside the queries in the driver, such as a SELECT on the console."""

    def step(self) -> None:
        """Do what there is to do now."""

    def settled(self) -> Offset | None:
        """Where it stands if nothing is left to do, else None."""

    def close(self) -> None: ...


class Pipeline:
    """Starts queries, watches them, stops them between two batches."""

    def __init__(
        self,
        master: str,
        verbose: bool,
        stopped: Callable[[], bool],
        reporter: Reporter | None = None,
    ) -> None:
        self._master = master
        self._verbose = verbose
        self._stopped = stopped
        self._reporter = reporter
        self._new: list[ContinuousQuery] = []
        self._running: list[ContinuousQuery] = []
        self._maintenance: dict[str, Maintenance] = {}
        self._relays = Relays()

    @property
    def queries(self) -> list[ContinuousQuery]:
        """All queries, running or still to be started."""
        return [*self._running, *self._new]

    def add(self, query: ContinuousQuery) -> None:
        """Take a query to be started by the next `run`."""
        self._new.append(query)

    def run(self, until_caught_up: bool, sides: Sequence[Side]) -> None:
        """Run all queries until stopped, or until nothing moves in any of them."""
        try:
            if self._new:
                self._start(warm=not until_caught_up)
            calm = 0
            before: list[Offset | None] = []
            while not self._stopped():
                self._step(sides)
                if until_caught_up:
                    now = [*(q.settled() for q in self._running), *(s.settled() for s in sides)]
                    still = now == before and None not in now
                    calm = calm + 1 if still and not self._compacts() else 0
                    before = now
                    if calm >= _CALM_LOOKS:
                        return
                time.sleep(_TICK_S)
        finally:
            for side in sides:
                side.close()

    def close(self) -> None:
        """Stop all queries between two batches, then the maintenance.

        Everything is stopped; then the first error on the way is raised, if there was one.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self._relays.close)
            for maintenance in self._maintenance.values():
                stack.callback(maintenance.stop)
            for query in reversed(self.queries):
                stack.callback(query.stop)
            for query in self._running:
                query.hold()
            self._running, self._new, self._maintenance = [], [], {}

    def _compacts(self) -> bool:
        """Whether queries may still get rows that wait for a compaction."""
        return any(maintenance.behind() for maintenance in self._maintenance.values())

    def _step(self, sides: Sequence[Side]) -> None:
        self._relays.step()
        for query in self._running:
            query.tick()
        for side in sides:
            side.step()
        if self._reporter is not None:
            self._reporter.step()

    def _start(self, warm: bool) -> None:
        from streamhouse.runtime.spark_session import start_session

        started = time.monotonic()
        if sys.stderr.isatty():
            print("starting Spark …", file=sys.stderr, flush=True)
        if self._reporter is not None:
            self._reporter.begin(self.queries, lambda: list(self._maintenance.values()))
        self._relays.start(self._new)
        for query in self._new:
            query.prepare()
        spark = start_session("streamhouse", self._master, self._verbose)
        for query in self._new:
            query.relieve(self._maintenance_of(query, warm).pressure)
            query.pace(least_pause(len(self._new), self._only_looked_up(query)) if warm else 0.0)
            query.start(spark)
            self._running.append(query)
        self._new = []
        if sys.stderr.isatty():
            took = time.monotonic() - started
            print(f"{len(self._running)} queries run after {took:.1f} s", file=sys.stderr)

    def _only_looked_up(self, query: ContinuousQuery) -> bool:
        """Whether others look the query's target up, and none follows it."""
        others, target = self.queries, query.address
        followed = any(one.source.address and target.same(one.source.address) for one in others)
        return not followed and any(target.same(at) for one in others for at in one.lookups)

    def _waits(self, warehouse: Mapping[str, str]) -> bool:
        """Whether rows pass through a table of the warehouse only when it is compacted."""
        targets = [one.address for one in self.queries if one.address.warehouse == warehouse]
        tables = [target.open() for target in targets]
        return any(shows_compacted(bool(table.primary_key), table.options) for table in tables)

    def _maintenance_of(self, query: ContinuousQuery, warm: bool) -> Maintenance:
        """What looks after the tables of the query's warehouse; `warm` has its JVM start now."""
        warehouse = query.address.warehouse
        key = repr(sorted(warehouse.items()))
        if key not in self._maintenance:
            self._maintenance[key] = Maintenance(
                warehouse,
                lambda: [
                    table
                    for one in self._running
                    if one.address.warehouse == warehouse
                    for table in one.tables
                ],
                may_expire=lambda: all(one.replayed for one in self._running),
                warm=warm,
                nice=0 if self._waits(warehouse) else _NICE,
            )
            self._maintenance[key].start()
        return self._maintenance[key]
