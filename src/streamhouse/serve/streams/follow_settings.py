"""How tables are followed for the readers of a server."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class FollowSettings:
    """Times and bounds of all streams of a server.

    `every_ms`: how often a table that somebody reads is looked at. `heartbeat_s`: readers of a
    table where nothing changes hear something this often. `linger_s`: how long a table is still
    looked at after its last reader has gone.

    `max_rows`: rows of a first snapshot, of one change, and of what a reader that comes back has
    missed; what is larger is refused. `queue_events` and `queue_bytes`: how far a reader may fall
    behind before it is cut off. `history_bytes`: recent events of all streams, kept for readers
    that come back. `state_bytes`: first snapshots that are being sent, of all streams; the readers
    of the oldest are cut off beyond it. `part_rows` and `part_bytes`: where a large event is cut
    into parts; a part has at most so many rows, and about so many bytes. `max_streams`: tables,
    and choices of their columns, that are followed at the same time. `gone_s`: how long a table may
    be missing before its readers are told; for less than that they only begin anew.
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
    gone_s: float = 2.0
