"""Writes the status of a running script into the warehouses of its targets."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamhouse.errors import StreamhouseError
from streamhouse.options import hide_secrets
from streamhouse.paimon.storage.files import is_local, local_path
from streamhouse.runtime.monitoring.log_file import LOG, SPARK_LOG, LogFile
from streamhouse.runtime.monitoring.process import own
from streamhouse.runtime.monitoring.run_reports import ReportedQuery, lag_of, query_status
from streamhouse.runtime.monitoring.status import (
    MaintenanceStatus,
    QueryStatus,
    State,
    Status,
    Statuses,
)
from streamhouse.source import Lag
from streamhouse.state.store import FOLDER, LOOKUPS, StateStore

if TYPE_CHECKING:
    from streamhouse.paimon.maintenance.service import Maintenance

_LOG = logging.getLogger("streamhouse.status")
EVERY_S = 1.0
REMOTE_EVERY_S = 10.0
"""How often the status is written to an object store, where each write is a request."""
AT_LEAST_EVERY_S = 10.0
"""How often the status is written if nothing has changed."""
_STDERR = 2
_LAGS = 4
"""Each step reads the lag of this many queries, since a lag costs reading one or more files."""


@dataclass
class _WarehouseStatus:
    """The status in one warehouse; `written` and `written_at` are of its last write."""

    statuses: Statuses
    status: Status
    queries: list[ReportedQuery]
    every_s: float
    written: Status | None = None
    written_at: float = float("-inf")


class Reporter:
    """Reports the status of a script from `announce` or `begin` on; call it from one thread.

    `script` is its text, `name` its name in the status (default: the pipeline's name), `restarts`
    how often its process was restarted recently. Errors are logged and not raised, since the
    queries must go on; the exception is a `name` that is taken.
    """

    def __init__(
        self,
        script: str,
        name: str | None = None,
        restarts: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._script = script
        self._name = name
        self._restarts = restarts
        self._clock = clock
        self._warehouses: dict[str, _WarehouseStatus] = {}
        self._lags: dict[tuple[str, str], Lag | None] = {}
        self._next_lag = 0
        self._maintenance: Callable[[], Sequence[Maintenance]] = tuple
        self._log: LogFile | None = None
        self._spark_log: LogFile | None = None
        self._spark_output: Callable[[], bytes] = bytes
        self._stepped_at = float("-inf")
        self._ended = False

    def announce(self, warehouse: Mapping[str, str]) -> None:
        """Write a status before the script runs; does nothing without a `name`.

        Raises `StreamhouseError` if a pipeline of that name runs in the warehouse.
        """
        if self._name is not None:
            self._claim(self._name, warehouse, [])
            self._write_status(force=True)

    def begin(
        self,
        queries: Sequence[ReportedQuery],
        maintenance: Callable[[], Sequence[Maintenance]],
        spark_output: Callable[[], bytes] = bytes,
    ) -> None:
        """Report these queries from now on; call it again with all queries when there are more.

        `spark_output` returns Spark's new log messages, which are appended to a file beside the
        status of the first local warehouse.
        """
        self._maintenance = maintenance
        self._spark_output = spark_output
        groups: dict[str, list[ReportedQuery]] = {}
        for query in queries:
            warehouse = query.description.address.warehouse
            if warehouse:
                groups.setdefault(_key(warehouse), []).append(query)
        for key, group in groups.items():
            if key in self._warehouses:
                self._warehouses[key].queries = group
            else:
                first = group[0].description
                self._claim(self._name or first.pipeline, first.address.warehouse, group)
        self._write_status(force=True)

    def step(self) -> None:
        """Write the changed status if it is due, and rotate the log; called often."""
        now = self._clock()
        if self._warehouses and now - self._stepped_at >= EVERY_S:
            self._stepped_at = now
            self._read_lags()
            self._write_status()
            if self._log is not None:
                self._log.trim()
            self._write_spark_log()

    def restarting(self, error: str) -> None:
        """Report an error after which the process restarts itself."""
        self._record_error(error, None)
        self._write_status(force=True)

    def failed(self, error: str, query: str | None = None) -> None:
        """Report that the script ended with an error; `query` is the `part` of the failed query."""
        self._record_error(error, query)
        self._end("failed")

    def close(self) -> None:
        """Report that the script has ended, as `stopped` unless `failed` was called."""
        self._end("stopped")

    def _claim(self, name: str, warehouse: Mapping[str, str], queries: list[ReportedQuery]) -> None:
        """Claim a status name in a warehouse and write the script there."""
        try:
            statuses = Statuses(warehouse)
            before, name = self._free_name(statuses, name)
            now, process = _now_ms(), own()
            status = Status(name, "running", process, now, now, restarts=self._restarts)
            if before is not None and before.process == process:
                began, error, at = before.began_ms, before.error, before.error_ms
                status = replace(status, began_ms=began, error=error, error_ms=at)
            local = is_local(warehouse["warehouse"])
            every = EVERY_S if local else REMOTE_EVERY_S
            log = LogFile(Path(local_path(statuses.path(name, LOG)))) if local else None
            self._log = log if log is not None and log.takes(_STDERR) else self._log
            if local and self._spark_log is None:
                self._spark_log = LogFile(Path(local_path(statuses.path(name, SPARK_LOG))))
            statuses.store_masked_script(name, self._script)
            self._warehouses[_key(warehouse)] = _WarehouseStatus(statuses, status, queries, every)
        except StreamhouseError:
            raise
        except Exception as error:  # noqa: BLE001  # the queries must go on
            _LOG.info("no status is written in %s: %s", warehouse["warehouse"], error)

    def _free_name(self, statuses: Statuses, name: str) -> tuple[Status | None, str]:
        """The former status and the name: the first of `name`, `name-2`, … not in use by others.

        Raises `StreamhouseError` if the name was given explicitly and is in use.
        """
        number, candidate = 1, name
        while True:
            before = statuses.read(candidate)
            in_use = before is not None and before.state == "running"
            if before is None or not in_use or before.process == own():
                return before, candidate
            if self._name is not None:
                raise StreamhouseError(
                    f"a pipeline named '{name}' is already running (process "
                    f"{before.process.pid} on {before.process.host}); stop it first, or "
                    "give this one another --name"
                )
            number += 1
            candidate = f"{name}-{number}"

    def _record_error(self, error: str, query: str | None) -> None:
        now, error = _now_ms(), hide_secrets(error)
        for warehouse in self._warehouses.values():
            status = self._status(warehouse)
            queries = tuple(
                replace(query_status, last_error=error)
                if query_status.name == query
                else query_status
                for query_status in status.queries
            )
            # Freezes the queries' metrics.
            warehouse.queries = []
            warehouse.status = replace(status, error=error, error_ms=now, queries=queries)

    def _end(self, state: State) -> None:
        if self._ended:
            return
        self._ended = True
        now = _now_ms()
        for warehouse in self._warehouses.values():
            warehouse.status = replace(self._status(warehouse), state=state, ended_ms=now)
            warehouse.queries = []
        self._write_status(force=True)
        self._write_spark_log()
        self._warehouses = {}

    def _write_status(self, force: bool = False) -> None:
        now = self._clock()
        for warehouse in self._warehouses.values():
            if not force and now - warehouse.written_at < warehouse.every_s:
                continue
            status = self._status(warehouse)
            if (
                not force
                and status == warehouse.written
                and now - warehouse.written_at < AT_LEAST_EVERY_S
            ):
                continue
            warehouse.written, warehouse.written_at = status, now
            try:
                warehouse.statuses.write(replace(status, updated_ms=_now_ms()))
            except Exception as error:  # noqa: BLE001  # the queries must go on
                _LOG.info("the status of '%s' is not written: %s", status.name, error)

    def _write_spark_log(self) -> None:
        if self._spark_log is not None:
            self._spark_log.append(self._spark_output())

    def _status(self, warehouse: _WarehouseStatus) -> Status:
        """The current status; without queries, the last one."""
        if not warehouse.queries:
            return warehouse.status
        return replace(
            warehouse.status,
            queries=tuple(self._query(query) for query in warehouse.queries),
            maintenance=_maintained(self._maintenance()),
        )

    def _query(self, query: ReportedQuery) -> QueryStatus:
        description = query.description
        sources: tuple[str, ...] = (".".join(description.reads[-2:]),)
        strategy, state_bytes = description.strategy, None
        checkpoint = description.checkpoint_path
        if description.looks_up:
            state_bytes = _kept_bytes(checkpoint / LOOKUPS)
        if strategy == "recomputed":
            sources = tuple(at.identifier for at in description.source_tables)
            state_bytes = _kept_bytes(checkpoint / FOLDER)
            strategy = "incremental" if state_bytes else "recomputed"
        return replace(
            query_status(query, self._lags.get((description.pipeline, description.part))),
            sources=sources,
            lookups=description.looks_up,
            strategy=strategy,
            state_bytes=state_bytes,
        )

    def _read_lags(self) -> None:
        queries = [query for warehouse in self._warehouses.values() for query in warehouse.queries]
        for _ in range(min(_LAGS, len(queries))):
            self._next_lag = (self._next_lag + 1) % len(queries)
            query = queries[self._next_lag]
            lag = lag_of(query)
            if lag is not None and lag.seconds is not None:
                lag = replace(lag, seconds=round(lag.seconds, 2))
            self._lags[query.description.pipeline, query.description.part] = lag


def _kept_bytes(folder: Path) -> int:
    kept = StateStore(folder).newest
    return 0 if kept is None else kept.size


def _maintained(maintenance: Sequence[Maintenance]) -> MaintenanceStatus | None:
    if not maintenance:
        return None
    errors = [service.last_error for service in maintenance if service.last_error is not None]
    seconds, text = max(errors) if errors else (None, None)
    return MaintenanceStatus(
        sum(service.busy for service in maintenance),
        sum(service.failures for service in maintenance),
        None if text is None else hide_secrets(text),
        None if seconds is None else int(seconds * 1000),
    )


def _key(warehouse: Mapping[str, str]) -> str:
    path = warehouse["warehouse"]
    return os.path.abspath(local_path(path)) if is_local(path) else path.rstrip("/")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
