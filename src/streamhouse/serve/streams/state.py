"""All rows of a table, encoded for readers that begin, and how much of that is in memory."""

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
    """All rows of a feed's table as of the snapshot it has seen last, as `+I`.

    `TooLargeError` when there are more than `settings.max_rows`, `DataLossError` when the snapshot
    has expired.
    """
    if feed.rows is not None:
        return known_chunks(feed.rows, settings, name, stopping)
    if feed.table is None or not snapshot:
        return ()
    return read_chunks(feed.table, feed.schema.names, snapshot, settings, name, stopping)


def known_chunks(
    rows: pa.Table, settings: FollowSettings, name: str, stopping: Callable[[], bool]
) -> tuple[Chunk, ...]:
    """The same of rows that are in memory."""
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
    """The same of one snapshot of an append table."""
    if (table.snapshot(snapshot).total_record_count or 0) > settings.max_rows:
        raise too_large(_what(name), settings.max_rows)
    read = table.read(columns=columns, snapshot=snapshot)
    batches = (kinded(batch, "+I", columns) for batch in read)
    return encoded(batches, settings, _what(name), stopping=stopping)


class States:
    """What readers are being sent to begin with, of all streams; beyond a limit the oldest go."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._known: list[weakref.ref[Start]] = []

    def add(self, start: Start) -> None:
        """Take in another; readers that have not yet read the oldest may be cut off for it."""
        alive = [one for one in (known() for known in self._known) if one is not None]
        total = start.size + sum(one.size for one in alive)
        while alive and total > self._most:
            oldest = alive.pop(0)
            total -= oldest.size
            oldest.give_up()
        self._known = [weakref.ref(one) for one in (*alive, start)]


def _what(name: str) -> str:
    return f"the first snapshot of {name}"
