"""Encodes the initial state of a stream, and limits the memory of states that are being sent."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.serve.feeds.table_feed import Feed, kinded, with_kind
from streamhouse.serve.streams.encoding import Chunk, encoded, too_large
from streamhouse.serve.streams.follow_settings import FollowSettings
from streamhouse.serve.streams.subscriber import Start

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table


def state_chunks(
    feed: Feed, snapshot: int, settings: FollowSettings, name: str, stopping: Callable[[], bool]
) -> tuple[Chunk, ...]:
    """All rows of a feed's table as of `snapshot`, which the feed has polled last, as `+I`.

    Raises `TooLargeError` for more than `settings.max_rows` rows, `DataLossError` if the snapshot
    has expired.
    """
    if feed.rows is not None:
        return memory_chunks(feed.rows, settings, name, stopping)
    if feed.table is None or not snapshot:
        return ()
    return read_chunks(feed.table, feed.schema.names, snapshot, settings, name, stopping)


def memory_chunks(
    rows: pa.Table, settings: FollowSettings, name: str, stopping: Callable[[], bool]
) -> tuple[Chunk, ...]:
    """As `state_chunks`, for rows that are in memory."""
    if rows.num_rows > settings.max_rows:
        raise too_large(_what(name), settings.max_rows)
    return encoded(with_kind(rows, "+I").to_batches(), settings, _what(name), stopping=stopping)


def read_chunks(
    table: Table,
    columns: Sequence[str],
    snapshot: int,
    settings: FollowSettings,
    name: str,
    stopping: Callable[[], bool],
) -> tuple[Chunk, ...]:
    """As `state_chunks`, for one snapshot of an append-only table."""
    if (table.snapshot(snapshot).total_record_count or 0) > settings.max_rows:
        raise too_large(_what(name), settings.max_rows)
    read = table.read(columns=columns, snapshot=snapshot)
    batches = (kinded(batch, "+I", columns) for batch in read)
    return encoded(batches, settings, _what(name), stopping=stopping)


class States:
    """The initial states being sent, of all streams, with a limit on their total size.

    A state counts as long as something refers to it.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._starts: list[weakref.ref[Start]] = []

    def add(self, start: Start) -> None:
        """Add a state; beyond the limit, cuts off subscribers still reading the oldest states."""
        alive = [one for one in (reference() for reference in self._starts) if one is not None]
        total = start.size + sum(state.size for state in alive)
        while alive and total > self._most:
            oldest = alive.pop(0)
            total -= oldest.size
            oldest.cut_readers()
        self._starts = [weakref.ref(state) for state in (*alive, start)]


def _what(name: str) -> str:
    return f"the first snapshot of {name}"
