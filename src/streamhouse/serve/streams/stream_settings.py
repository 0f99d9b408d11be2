"""Settings of a server's change streams."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class StreamSettings:
    """Intervals and limits of all streams of a server.

    `every_ms`: the poll interval of a table with subscribers. `heartbeat_s`: the interval of
    heartbeats while nothing changes. `linger_s`: how long a table is still polled after its last
    subscriber has left. `missing_s`: how long a table may be missing before its subscribers get an
    error; if it returns earlier, they get its new state.

    `max_rows`: the most rows in an initial state, in one change, and in the missed events of a
    subscriber that resumes; anything larger is refused. `queue_events` and `queue_bytes`: the
    backlog at which a subscriber is disconnected. `history_bytes`: recent events of all streams,
    kept for subscribers that resume. `state_bytes`: initial states being sent, of all streams;
    beyond it the subscribers of the oldest are disconnected. `part_rows` and `part_bytes`: where
    large events are split; a part has at most so many rows, and about so many bytes. `table_bytes`:
    the memory of all tables and views that are kept for comparison. `max_streams`: how many views,
    or selections of their columns, may have streams at the same time.
    """

    every_ms: int = 50
    heartbeat_s: float = 15.0
    linger_s: float = 10.0
    max_rows: int = 200_000
    queue_events: int = 256
    queue_bytes: int = 16 * MIB
    history_bytes: int = 64 * MIB
    state_bytes: int = 128 * MIB
    part_rows: int = 5_000
    part_bytes: int = 256 * KIB
    table_bytes: int = 256 * MIB
    max_streams: int = 256
    missing_s: float = 2.0
