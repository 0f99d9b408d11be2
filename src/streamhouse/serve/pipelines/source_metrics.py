"""Metrics of a query's source under the names of Flink, Flink CDC and Debezium.

A metric is absent where its value is not known exactly. Times are in milliseconds. The binlog's
event times have whole seconds, so a lag by them is up to 999 ms too long.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.runtime.monitoring.status import QueryStatus

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
}
"""The metrics that are numbers, and what each means; `BinlogFilename` is a text."""


def source_metrics(query: QueryStatus, lives: bool, now_ms: int) -> Values:
    """The metrics that are known; those of an ended query are its counts and its position."""
    values: Values = {"numRecordsIn": query.rows}
    if query.bad_records:
        values["numRecordsInErrors"] = query.bad_records
    state = None if query.lag is None else query.lag.state
    if lives:
        values["numRecordsInPerSecond"] = query.rows_per_second
        if query.last_rows_ms is not None:
            values["sourceIdleTime"] = max(0, now_ms - query.last_rows_ms)
    if state is None:
        return values
    if lives:
        values["isSnapshotting"] = int(state.snapshotting)
        values["isStreamReading"] = int(not state.snapshotting)
    if lives and state.event_ms is not None and state.received_ms is not None:
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
