"""The first events of subscribers: initial state or missed events, built once and shared."""

import asyncio
import re
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from streamhouse.errors import BadIdError, DataLossError, ExpiredError
from streamhouse.paimon.read.table import Table
from streamhouse.serve.feeds.feed import Feed, as_inserts
from streamhouse.serve.feeds.table_feed import TableFeed
from streamhouse.serve.formats.cells import printable
from streamhouse.serve.streams.event import (
    CHANGES,
    StreamEncoder,
    StreamEvent,
    StreamPosition,
    row_count,
)
from streamhouse.serve.streams.subscriber import FirstEvents, Link
from streamhouse.serve.streams.view_poller import PollResult, StreamStats, same_columns
from streamhouse.serve.views.shown_table import ShownTable
from streamhouse.source import ROW_KIND

LATEST = "latest"
"""As `last_id`: skip the initial state, and send only changes from now on."""

_ID = re.compile(r"([0-9]{1,18})(?:-([0-9a-z]{1,16}))?")
_SHOWN = 40


_MAX_POSITIONS = 4096


@dataclass(frozen=True)
class ResumePosition:
    """A parsed `last_id`: the snapshot after which a subscriber resumes.

    `stamp` identifies the table's incarnation and the commit; None if the client gave only a
    snapshot's number.
    """

    snapshot: int
    stamp: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an event id or a snapshot id; `BadIdError` for anything else."""
        match = _ID.fullmatch(text)
        if match is None:
            raise BadIdError(
                f"last_id '{printable(text[:_SHOWN])}' is not an event id; give the id of the "
                "last event received, such as 17-k3x9, a snapshot's number, or "
                f"'{LATEST}' for new changes only"
            )
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.snapshot}" if self.stamp is None else f"{self.snapshot}-{self.stamp}"

    def matches(self, commit: StreamPosition) -> bool:
        """Whether the position is that of a commit; without a stamp, only the number counts."""
        return self.snapshot == commit.snapshot and self.stamp in (None, commit.stamp)


def read_missed_events(
    feed: Feed, position: ResumePosition, target: PollResult, encoder: StreamEncoder
) -> tuple[StreamEvent, ...] | None:
    """Read the change events between a position and the target, a result of the stream.

    A table with a primary key returns one event, the difference of the two states; an append-only
    table returns one event per snapshot. Returns None if the columns have changed since: the
    subscriber must start with the initial state.

    Raises `ExpiredError` if the position's snapshot has expired, does not exist yet, or belongs to
    another table of that name, and always for a view; `TooLargeError` if too many rows were missed;
    `DataLossError` if the table was recreated or rolled back since the target was determined.
    """
    name = encoder.name
    if not isinstance(feed, TableFeed):
        raise ExpiredError(
            f"the stream of {name} cannot resume from {position}: the past changes of a view are "
            "kept only for a short time; start again without last_id"
        )
    end, table = target.commit, feed.table
    if end != StreamPosition.of(feed.incarnation, end.snapshot, end.time_ms):
        raise DataLossError(f"{name} was recreated")
    start = _commit(table, feed.incarnation, position)
    if start is None or not position.matches(start) or start.snapshot > end.snapshot:
        raise expired(table, position, name)
    if not start.snapshot or not _same_columns(feed, table, start.snapshot):
        return None
    try:
        if feed.primary_key:
            return _compare_states(feed, start, target, encoder)
        return _read_each_snapshot(feed, start, end, encoder)
    except ExpiredError:
        raise
    except DataLossError:
        raise expired(table, position, name) from None


def expired(table: Table, position: ResumePosition, name: str) -> ExpiredError:
    """The error for a position from which a stream cannot resume."""
    earliest = table.earliest_snapshot_id()
    oldest = "the table has no snapshot" if earliest is None else f"the oldest is {earliest}"
    return ExpiredError(
        f"the stream of {name} cannot resume from {position}: that snapshot has expired, or does "
        f"not belong to this table; {oldest}; start again without last_id. The table options "
        "snapshot.time-retained and snapshot.num-retained.min keep more snapshots",
        earliest,
    )


def _commit(table: Table, incarnation: str, position: ResumePosition) -> StreamPosition | None:
    if not position.snapshot:
        return StreamPosition.of(incarnation, 0, 0)
    record = table.snapshots.find(position.snapshot)
    return None if record is None else StreamPosition.of(incarnation, record.id, record.time_ms)


def _same_columns(feed: TableFeed, table: Table, snapshot: int) -> bool:
    then = table.find_version(table.snapshot(snapshot).schema_id)
    if then is None:
        return False
    names, shown = feed.schema.names, ShownTable(then)
    if names == list(feed.shown.names):
        return same_columns(shown.read_schema(), feed.schema)
    if any(name not in shown.names for name in names):
        return False
    return same_columns(shown.read_schema(names), feed.schema)


def _compare_states(
    feed: TableFeed, start: StreamPosition, target: PollResult, encoder: StreamEncoder
) -> tuple[StreamEvent, ...]:
    old, new = feed.state_at(start.snapshot), target.state
    if new is None:
        raise DataLossError(f"the rows of {encoder.name} are not in memory")
    changes = feed.differ.by_key(old, new, feed.primary_key)
    visible = changes.select([ROW_KIND, *feed.schema.names]).to_batches()
    subject = _subject(encoder.name, start)
    # An updated row counts twice, as -U and as +U.
    return encoder.events(CHANGES, target.commit, visible, subject, 2 * encoder.max_rows)


def _read_each_snapshot(
    feed: TableFeed, start: StreamPosition, end: StreamPosition, encoder: StreamEncoder
) -> tuple[StreamEvent, ...]:
    feed.resume_after(start.snapshot, None)
    missed_events: list[StreamEvent] = []
    rows_left, last = encoder.max_rows, start.snapshot
    subject = _subject(encoder.name, start)
    while last < end.snapshot:
        change = feed.poll()
        if change is None or change.is_whole_table or change.snapshot > end.snapshot:
            raise DataLossError(f"{encoder.name} was rolled back")
        last = change.snapshot
        commit = StreamPosition.of(feed.incarnation, change.snapshot, change.commit_time_ms)
        events = encoder.events(CHANGES, commit, change.batches, subject, rows_left)
        rows_left -= row_count(events)
        if row_count(events) or last == end.snapshot:
            missed_events += events
    return tuple(missed_events)


def _subject(name: str, start: StreamPosition) -> str:
    return f"the backlog of {name} since snapshot {start.snapshot}"


class EventHistory:
    """The positions from which subscribers can resume: each keeps the events after it alive."""

    def __init__(self) -> None:
        self._positions: dict[int, tuple[StreamPosition, Link]] = {}
        self._newest = Link()

    @property
    def bytes(self) -> int:
        """The memory of the events."""
        oldest = next(iter(self._positions.values()), None)
        return 0 if oldest is None else self._newest.size - oldest[1].size

    def record(self, commit: StreamPosition, link: Link) -> None:
        """Add the newest position: `link` is the last one of the stream."""
        # Reinsert at the end, so that the dict stays ordered by age.
        self._positions.pop(commit.snapshot, None)
        self._positions[commit.snapshot] = (commit, link)
        self._newest = link
        while len(self._positions) > _MAX_POSITIONS:
            self.forget_oldest()

    def find(self, position: ResumePosition) -> Link | None:
        """The link after which a subscriber continues; None if the position is not kept."""
        recorded = self._positions.get(position.snapshot)
        return recorded[1] if recorded is not None and position.matches(recorded[0]) else None

    def forget_oldest(self) -> None:
        """Forget the oldest position."""
        del self._positions[next(iter(self._positions))]

    def clear(self) -> None:
        """Forget all positions."""
        self._positions.clear()


class StateMemory:
    """The initial states being sent, of all streams, with a limit on their total size.

    A state counts as long as something refers to it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._states: weakref.WeakKeyDictionary[FirstEvents, None] = weakref.WeakKeyDictionary()
        """From the oldest one on."""

    def add(self, state: FirstEvents) -> None:
        """Add a state; beyond the limit, disconnects the subscribers still reading the oldest."""
        total = state.size + sum(kept.size for kept in self._states)
        for oldest in list(self._states):
            if total <= self._max_bytes:
                break
            total -= oldest.size
            del self._states[oldest]
            oldest.disconnect_readers()
        self._states[state] = None


@dataclass(frozen=True)
class StreamResources:
    """What all streams of a hub share: worker threads and memory limits.

    Most subscribers need the state; `catching_up` keeps the few that resume from occupying all
    workers.
    """

    workers: ThreadPoolExecutor
    states: StateMemory
    trim: Callable[[], None]
    stopping: Callable[[], bool]
    catching_up: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))


@dataclass(eq=False)
class FirstEventsBuilder:
    """Builds the `FirstEvents` of one stream; on the event loop.

    `current_position` returns the stream's latest result and the last link of its chain. Concurrent
    subscribers share what is being built. If the stream continues in the meantime, its later events
    are in the chain after the link of the first events.
    """

    _open_feed: Callable[[], Feed]
    _encoder: StreamEncoder
    _resources: StreamResources
    _stats: StreamStats
    _current_position: Callable[[], tuple[PollResult, Link]]
    _built: dict[ResumePosition | None, FirstEvents] = field(default_factory=dict)
    _tasks: dict[ResumePosition | None, asyncio.Task[FirstEvents | None]] = field(
        default_factory=dict
    )
    _used: bool = False

    async def after(self, position: ResumePosition | None) -> FirstEvents | None:
        """The events after a position; without one the initial state, all rows.

        None if the columns have changed since: the subscriber needs the initial state. Raises as
        `read_missed_events`, `TooLargeError`, and `DataLossError` if a snapshot expired before it
        was read.
        """
        self._used = True
        if position in self._built:
            return self._built[position]
        task = self._tasks.get(position)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._build(position))
            self._tasks[position] = task
            task.add_done_callback(partial(self._on_done, position))
        # Shielded: a subscriber that disconnects does not cancel it for the others.
        return await asyncio.shield(task)

    def changed(self, result: PollResult) -> None:
        """Forget the events that lead to an earlier result: the latest one is now `result`."""
        self._built.clear()
        if result.full:
            self._stats.add(state_rows=row_count(result.events or ()))

    def forget_unused(self) -> None:
        """Free the cached events if they were not used since the last call."""
        if not self._used:
            self._built.clear()
        self._used = False

    def close(self) -> None:
        """Cancel what is being built; the subscribers waiting for it are cancelled, too."""
        for task in self._tasks.values():
            task.cancel()

    def _on_done(
        self, position: ResumePosition | None, task: asyncio.Task[FirstEvents | None]
    ) -> None:
        del self._tasks[position]
        if not task.cancelled():
            task.exception()

    async def _build(self, position: ResumePosition | None) -> FirstEvents | None:
        async with nullcontext() if position is None else self._resources.catching_up:
            now, link = self._current_position()
            read = (
                partial(self._state, now)
                if position is None
                else partial(self._missed, position, now)
            )
            workers = self._resources.workers
            events = await asyncio.get_running_loop().run_in_executor(workers, read)
        if events is None:
            return None
        if position is None:
            self._stats.add(state_rows=row_count(events))
        first = FirstEvents(events, link)
        self._resources.states.add(first)
        if self._current_position()[0] is now:
            self._built[position] = first
        return first

    def _state(self, now: PollResult) -> tuple[StreamEvent, ...]:
        commit = now.commit
        if now.state is not None:
            inserts = as_inserts(now.state.select(now.schema.names)).to_batches()
            return self._encoder.state(commit, now.state.num_rows, inserts)
        if not commit.snapshot:
            return self._encoder.state(commit, 0, ())
        with closing(self._open_feed()) as feed:
            same = StreamPosition.of(feed.incarnation, commit.snapshot, commit.time_ms) == commit
            if not same or not same_columns(feed.schema, now.schema):
                raise DataLossError(f"{self._encoder.name} was recreated or altered")
            return self._encoder.state(commit, *feed.inserts(commit.snapshot))

    def _missed(self, position: ResumePosition, now: PollResult) -> tuple[StreamEvent, ...] | None:
        with closing(self._open_feed()) as feed:
            return read_missed_events(feed, position, now, self._encoder)
