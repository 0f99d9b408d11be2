"""Metrics of a query under the names of Flink, Flink CDC, Debezium and Paimon.

A metric is absent where its value is not known exactly. Times are in milliseconds. The binlog's
event times have whole seconds, so a lag by them is up to 999 ms too long.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.runtime.monitoring.commit_times import Commit
from streamhouse.runtime.monitoring.status import QueryStatus
from streamhouse.source import SourceState

Values = dict[str, float | str]

HELP: Mapping[str, str] = {
    "numRecordsIn": "Rows that the query has read since it started",
    "numRecordsInPerSecond": "Rows that the query has read per second, over the last ten seconds",
    "numRecordsInErrors": "Records that the query has left out, since they cannot be decoded",
    "isSnapshotting": "1 while the snapshot of a mysql-cdc table is read, else 0",
    "isStreamReading": "1 once the changes of a mysql-cdc table are read, else 0",
    "currentFetchEventTimeLag": "Milliseconds from the table's last change on the server, in whole "
    "seconds, until it was received",
    "MilliSecondsBehindSource": "The same, by its name in Debezium",
    "currentEmitEventTimeLag": "Milliseconds from the table's last change on the server until it "
    "was committed; while the query is not behind",
    "MilliSecondsSinceLastEvent": "Milliseconds since the table's last change was received",
    "sourceIdleTime": "Milliseconds since the query committed rows",
    "BinlogPosition": "The query's position in its binlog file",
    "numTablesSnapshotted": "Tables whose snapshot has been read",
    "numTablesRemaining": "Tables whose snapshot has not been read to its end",
    "numSnapshotSplitsRemaining": "About how many chunks of the snapshots are left",
    "TotalNumberOfEventsSeen": "Changes that the query has read since it started",
    "TotalNumberOfCreateEventsSeen": "Inserts that the query has read since it started",
    "TotalNumberOfUpdateEventsSeen": "Updates that the query has read since it started",
    "TotalNumberOfDeleteEventsSeen": "Deletes that the query has read since it started",
    "lastRefreshDuration": "Milliseconds that the last refresh of a view took",
    "refreshAge": "Milliseconds since the last refresh of a view ended",
    "refreshLag": "Milliseconds that a view is behind its inputs; 0 if none is newer",
    "refreshIncremental": "1 if the last refresh of a view was computed from changes, else 0",
    "stateSize": "Bytes of the rows that a view keeps between refreshes",
    "viewRows": "Rows of a view",
    "lastCommitDuration": "Milliseconds that the last commit of rows took",
    "lastTableFilesAdded": "Data files that the last commit added",
    "lastTableFilesAppended": "The same: commits of rows compact nothing",
    "lastDeltaRecordsAppended": "Rows in the data files of the last commit",
    "lastPartitionsWritten": "Partitions that the last commit wrote",
    "lastBucketsWritten": "Buckets that the last commit wrote",
}
"""The metrics that are numbers, and what each means; `BinlogFilename` is a text."""


def query_metrics(query: QueryStatus, is_live: bool, now_ms: int) -> Values:
    """The metrics that are known; those of an ended query are its counts and its position."""
    values: Values = {"numRecordsIn": query.rows}
    if query.bad_records:
        values["numRecordsInErrors"] = query.bad_records
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
