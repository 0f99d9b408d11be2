"""The status of the pipelines of a warehouse, as JSON objects; `models` describes their keys.

Times are ISO 8601, in UTC.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from streamhouse.runtime.monitoring.status import (
    SCRIPT,
    MaintenanceStatus,
    QueryStatus,
    Status,
    Statuses,
)
from streamhouse.serve.pipelines.query_metrics import query_metrics

Pipeline = dict[str, Any]
_KEYS = (
    "name", "target", "sources", "lookups", "rows", "batches", "strategy", "state_bytes",
    "view_rows", "last_error",
)  # fmt: skip
"""The facts of a query that are listed as they are."""


class Pipelines:
    """Reads the status of the pipelines of a warehouse; `options` are those of its catalog."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._statuses = Statuses(options)

    def all(self) -> list[Pipeline]:
        """All pipelines, sorted by name."""
        statuses = ((name, self._statuses.read(name)) for name in self._statuses.names())
        return [self._record(status) for _, status in statuses if status is not None]

    def find(self, name: str) -> Pipeline:
        """One pipeline; `TableError`, which names the nearest match, if it does not exist."""
        return self._record(self._statuses.find(name))

    def forget(self, name: str) -> None:
        """Delete the files of a pipeline that has ended; raises as `Statuses.forget`."""
        self._statuses.forget(name)

    def _record(self, status: Status) -> Pipeline:
        name, is_live = status.name, status.is_live
        return {
            "name": name,
            "state": "running" if is_live else status.state,
            "pid": None if status.state == "starting" else status.process.pid,
            "host": status.process.host,
            "started": _time(status.began_ms),
            "updated": _time(status.updated_ms),
            "ended": _time(status.ended_ms),
            "script": self._statuses.masked_script(name),
            "startable": self._statuses.has(name, SCRIPT),
            "restarts": status.restarts,
            "last_error": status.error,
            "last_error_time": _time(status.error_ms),
            "queries": [_query(query, is_live) for query in status.queries],
            "maintenance": _maintenance(status.maintenance),
        }


def _query(query: QueryStatus, is_live: bool) -> dict[str, Any]:
    lag = query.lag if is_live and query.lag is not None and query.lag.known else None
    return {
        **{key: getattr(query, key) for key in _KEYS},
        "rows_per_second": query.rows_per_second if is_live else 0.0,
        "last_batch": _time(query.last_batch_ms),
        "last_batch_ms": query.took_ms,
        "refresh": _refresh(query) if query.is_view else None,
        "lag": None if lag is None else lag.parts,
        "metrics": query_metrics(query, is_live, time.time_ns() // 1_000_000),
    }


def _refresh(query: QueryStatus) -> dict[str, Any] | None:
    if query.last_batch_ms is None or query.took_ms is None:
        return None
    age_ms = max(0, time.time_ns() // 1_000_000 - query.last_batch_ms)
    behind = None if query.lag is None else query.lag.seconds
    return {
        "seconds": query.took_ms / 1000,
        "age_seconds": age_ms / 1000,
        "current": None if behind is None else behind == 0,
    }


def _maintenance(status: MaintenanceStatus | None) -> dict[str, Any] | None:
    if status is None:
        return None
    return {
        "busy": status.busy,
        "failures": status.failures,
        "last_error": status.last_error,
        "last_error_time": _time(status.last_error_ms),
    }


def _time(epoch_ms: int | None) -> str | None:
    if epoch_ms is None:
        return None
    at = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
