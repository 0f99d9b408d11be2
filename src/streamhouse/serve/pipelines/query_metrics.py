"""Metrics of a query under the names of Flink, Flink CDC, Debezium and Paimon.

A metric is absent where its value is not known exactly. Times are in milliseconds. The binlog's
event times have whole seconds, so a lag by them is up to 999 ms too long.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.options import table_of
from streamhouse.runtime.monitoring.metrics import Commit
from streamhouse.runtime.monitoring.status import QueryStatus
from streamhouse.source import SourceState

Values = dict[str, float | str]

HELP: Mapping[str, str] = table_of(__package__, "query_metrics.toml")
"""The metrics that are numbers, and what each means; `BinlogFilename` is a text."""


def query_metrics(query: QueryStatus, is_live: bool, now_ms: int) -> Values:
    """The metrics that are known; those of an ended query are its counts and its position."""
    values: Values = {"numRecordsIn": query.rows}
    if query.bad_records:
        values["numRecordsInErrors"] = query.bad_records
    if query.late_rows:
        values["numLateRecordsDropped"] = query.late_rows
    values |= _changes(query.changes)
    if is_live and query.is_view:
        values |= _refresh(query, now_ms)
    state = None if query.lag is None else query.lag.state
    if is_live and query.commit is not None:
        values |= _commit(query.commit)
    if is_live:
        values["numRecordsInPerSecond"] = query.rows_per_second
        if query.last_rows_ms is not None:
            values["sourceIdleTime"] = max(0, now_ms - query.last_rows_ms)
    if state is None:
        return values
    if is_live:
        values["isSnapshotting"] = int(state.snapshotting)
        values["isStreamReading"] = int(not state.snapshotting)
        values |= _snapshots(state)
    if is_live and state.event_ms is not None and state.received_ms is not None:
        values["currentFetchEventTimeLag"] = state.received_ms - state.event_ms
        values["MilliSecondsBehindSource"] = state.received_ms - state.event_ms
        committed = query.last_rows_ms
        caught_up = query.lag is not None and query.lag.seconds == 0
        if caught_up and committed is not None and committed >= state.received_ms:
            values["currentEmitEventTimeLag"] = committed - state.event_ms
        values["MilliSecondsSinceLastEvent"] = max(0, now_ms - state.received_ms)
    if state.position is not None:
        values["BinlogFilename"], values["BinlogPosition"] = state.position
    return values


def _refresh(query: QueryStatus, now_ms: int) -> Values:
    values: Values = {"refreshIncremental": int(query.strategy == "incremental")}
    if query.state_bytes is not None:
        values["stateSize"] = query.state_bytes
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
