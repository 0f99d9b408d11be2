"""The status of the pipelines of a warehouse, as JSON objects; `http.models` has their keys.

Times are ISO 8601, in UTC. Metrics of a query have the names of Flink, Flink CDC, Debezium and
Paimon. A metric is absent where its value is not known exactly; its times are in milliseconds. The
binlog's event times have whole seconds, so a lag by them is up to 999 ms too long.
"""

import time
from collections.abc import Mapping
from typing import Any

from streamhouse.options import table_of
from streamhouse.runtime.monitoring.metrics import Commit
from streamhouse.runtime.monitoring.status import (
    SCRIPT,
    MaintenanceStatus,
    QueryStatus,
    Status,
    Statuses,
)
from streamhouse.serve.formats.cells import iso
from streamhouse.source import SourceState

Values = dict[str, float | str]

HELP: Mapping[str, str] = table_of(__package__, "query_metrics.toml")
"""The metrics that are numbers, and what each means; `BinlogFilename` is a text."""


Pipeline = dict[str, Any]
_KEYS = (
    "name", "target", "sources", "lookups", "rows", "batches", "strategy", "state_bytes",
    "view_rows", "last_error",
)  # fmt: skip
"""The facts of a query that are listed as they are."""


def query_metrics(query: QueryStatus, is_live: bool, now_ms: int) -> Values:
    """The metrics that are known; those of an ended query are its counts and its position."""
    values: Values = {"numRecordsIn": query.rows}
    if query.bad_records:
        values["numRecordsInErrors"] = query.bad_records
    if query.late_rows:
        values["numLateRecordsDropped"] = query.late_rows
    values |= _changes(query.changes)
    state = None if query.lag is None else query.lag.state
    if state is not None and state.position is not None:
        values["BinlogFilename"], values["BinlogPosition"] = state.position
    if not is_live:
        return values
    if query.is_view:
        values |= _refresh_metrics(query, now_ms)
    if query.state_bytes is not None:
        values["stateSize"] = query.state_bytes
    if query.commit is not None:
        values |= _commit(query.commit)
    values["numRecordsInPerSecond"] = query.rows_per_second
    if query.last_rows_ms is not None:
        values["sourceIdleTime"] = max(0, now_ms - query.last_rows_ms)
    if state is None:
        return values
    values["isSnapshotting"] = int(state.snapshotting)
    values["isStreamReading"] = int(not state.snapshotting)
    values |= _snapshots(state)
    if state.event_ms is not None and state.received_ms is not None:
        values["currentFetchEventTimeLag"] = state.received_ms - state.event_ms
        values["MilliSecondsBehindSource"] = state.received_ms - state.event_ms
        committed = query.last_rows_ms
        caught_up = query.lag is not None and query.lag.seconds == 0
        if caught_up and committed is not None and committed >= state.received_ms:
            values["currentEmitEventTimeLag"] = committed - state.event_ms
        values["MilliSecondsSinceLastEvent"] = max(0, now_ms - state.received_ms)
    return values


def _refresh_metrics(query: QueryStatus, now_ms: int) -> Values:
    values: Values = {"refreshIncremental": int(query.strategy == "incremental")}
    if query.view_rows is not None:
        values["viewRows"] = query.view_rows
    if query.took_ms is not None and query.last_batch_ms is not None:
        values["lastRefreshDuration"] = query.took_ms
        values["refreshAge"] = max(0, now_ms - query.last_batch_ms)
    if query.lag is not None and query.lag.seconds is not None:
        values["refreshLag"] = 1000 * query.lag.seconds
    return values


def _changes(changes: Mapping[str, int] | None) -> Values:
    """The changes that were read; an update is one event."""
    if changes is None:
        return {}
    kinds = {"Create": "+I", "Update": "+U", "Delete": "-D"}
    counts = {name: changes.get(kind, 0) for name, kind in kinds.items()}
    values: Values = {f"TotalNumberOf{name}EventsSeen": count for name, count in counts.items()}
    return {"TotalNumberOfEventsSeen": sum(counts.values()), **values}


def _snapshots(state: SourceState) -> Values:
    values: Values = {}
    if state.tables is not None and state.tables_left is not None:
        values["numTablesSnapshotted"] = state.tables - state.tables_left
        values["numTablesRemaining"] = state.tables_left
    if state.splits_left is not None:
        values["numSnapshotSplitsRemaining"] = state.splits_left
    return values


def _commit(commit: Commit) -> Values:
    return {
        "lastCommitDuration": commit.took_ms,
        "lastTableFilesAdded": commit.files,
        "lastTableFilesAppended": commit.files,
        "lastDeltaRecordsAppended": commit.rows,
        "lastPartitionsWritten": commit.partitions,
        "lastBucketsWritten": commit.buckets,
    }


def all_pipelines(statuses: Statuses) -> list[Pipeline]:
    """All pipelines of a warehouse, sorted by name."""
    found = map(statuses.read, statuses.names())
    return [described(statuses, status) for status in found if status is not None]


def described(statuses: Statuses, status: Status) -> Pipeline:
    """One pipeline, by its status."""
    name, is_live = status.name, status.is_live
    return {
        "name": name,
        "state": "running" if is_live else status.state,
        "pid": None if status.state == "starting" else status.process.pid,
        "host": status.process.host,
        "started": _time(status.began_ms),
        "updated": _time(status.updated_ms),
        "ended": _time(status.ended_ms),
        "script": statuses.masked_script(name),
        "startable": statuses.has(name, SCRIPT),
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
    return None if epoch_ms is None else iso(epoch_ms)
