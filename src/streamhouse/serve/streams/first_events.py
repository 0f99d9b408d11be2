"""The first events of new subscribers: initial state or missed events, built once and shared."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TypeVar

from streamhouse.errors import DataLossError
from streamhouse.serve.feeds.feed import Feed
from streamhouse.serve.feeds.table_feed import TableFeed
from streamhouse.serve.streams.event import (
    SNAPSHOT,
    EncodedRows,
    StreamEncoder,
    StreamEvent,
    StreamPosition,
    row_count,
)
from streamhouse.serve.streams.resume import ResumePosition, read_missed_events
from streamhouse.serve.streams.subscriber import FirstEvents, Link
from streamhouse.serve.streams.view_poller import PollResult, StreamStats, same_columns
from streamhouse.serve.views.served_view import ServedView


class StateMemory:
    """The initial states being sent, of all streams, with a limit on their total size.

    A state counts as long as something refers to it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._states: list[weakref.ref[FirstEvents]] = []

    def add(self, state: FirstEvents) -> None:
        """Add a state; beyond the limit, disconnects the subscribers still reading the oldest."""
        alive = [
            found for found in (reference() for reference in self._states) if found is not None
        ]
        total = state.size + sum(kept.size for kept in alive)
        while alive and total > self._max_bytes:
            oldest = alive.pop(0)
            total -= oldest.size
            oldest.disconnect_readers()
        self._states = [weakref.ref(kept) for kept in (*alive, state)]


T = TypeVar("T")


class StreamResources:
    """What all streams of a hub share: worker threads and memory limits."""

    def __init__(
        self,
        workers: ThreadPoolExecutor,
        states: StateMemory,
        trim: Callable[[], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._workers = workers
        self.states = states
        self.trim = trim
        self.stopping = stopping
        # Most subscribers need the state; the few that resume must not occupy all workers.
        self.catching_up = asyncio.Semaphore(1)

    async def run(self, function: Callable[[], T]) -> T:
        """Run the function in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, function)


class FirstEventsBuilder:
    """Builds the `FirstEvents` of one stream; on the event loop.

    `current_position` returns the stream's latest result and the last link of its chain. Concurrent
    subscribers share what is being built. If the stream continues in the meantime, its later events
    are in the chain after the link of the first events.
    """

    def __init__(
        self,
        view: ServedView,
        open_feed: Callable[[ServedView], Feed],
        encoder: StreamEncoder,
        resources: StreamResources,
        stats: StreamStats,
        current_position: Callable[[], tuple[PollResult, Link]],
    ) -> None:
        self._stats = stats
        self._view = view
        self._open_feed = open_feed
        self._encoder = encoder
        self._resources = resources
        self._current_position = current_position
        self._chunks: tuple[EncodedRows, ...] | None = None
        self._added_since: tuple[EncodedRows, ...] | None = None
        self._ready: FirstEvents | None = None
        self._caught_up: dict[str, FirstEvents] = {}
        self._tasks: dict[str, asyncio.Task[FirstEvents | None]] = {}
        self._used = False

    async def state(self) -> FirstEvents | None:
        """The initial state: all rows.

        Raises `TooLargeError`, and `DataLossError` if the snapshot expired before it was read.
        """
        self._used = True
        if self._ready is not None:
            return self._ready
        return await self._shared("", self._make_state)

    async def missed(self, position: ResumePosition) -> FirstEvents | None:
        """The events after a position; None if the subscriber needs the initial state.

        Raises as `serve.streams.resume.read_missed_events`.
        """
        self._used = True
        key = str(position)
        if key in self._caught_up:
            return self._caught_up[key]
        return await self._shared(key, partial(self._catch_up, position))

    def changed(self, result: PollResult) -> None:
        """Update the cached chunks: the stream's latest result is now `result`."""
        self._ready = None
        self._caught_up.clear()
        if result.full or result.chunks is None:
            self._chunks, self._added_since = result.chunks, None
            self._stats.add(state_rows=row_count(result.chunks or ()))
        elif result.chunks:
            self._keep(result, result.chunks)

    def forget_unused(self) -> None:
        """Free the cached events and chunks if they were not used since the last call."""
        if not self._used:
            self._chunks = self._ready = None
            self._caught_up.clear()
        self._used = False

    def close(self) -> None:
        """Cancel what is being built; the subscribers waiting for it are cancelled, too."""
        for task in self._tasks.values():
            task.cancel()

    def _keep(self, result: PollResult, added: tuple[EncodedRows, ...]) -> None:
        """Extend the encoded state of an append-only table by new rows; otherwise discard it."""
        only_new = not result.keyed and all(chunk.only_new for chunk in added)
        self._chunks = self._joined(self._chunks, added) if only_new else None
        self._added_since = self._joined(self._added_since, added) if only_new else None

    def _joined(
        self, kept: tuple[EncodedRows, ...] | None, added: tuple[EncodedRows, ...] | None
    ) -> tuple[EncodedRows, ...] | None:
        if kept is None or added is None:
            return None
        if row_count(kept) + row_count(added) > self._encoder.max_rows:
            return None
        return (*kept, *added)

    async def _shared(
        self, key: str, make: Callable[[], Awaitable[FirstEvents | None]]
    ) -> FirstEvents | None:
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(_awaited(make))
            self._tasks[key] = task
            task.add_done_callback(partial(self._on_done, key))
        # Shielded: a subscriber that disconnects does not cancel it for the others.
        return await asyncio.shield(task)

    def _on_done(self, key: str, task: asyncio.Task[FirstEvents | None]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()

    async def _make_state(self) -> FirstEvents:
        now, link = self._current_position()
        chunks = self._chunks
        if chunks is None:
            self._added_since = ()
            chunks = await self._resources.run(partial(self._read_state, now))
            self._stats.add(state_rows=row_count(chunks))
            # Together with the rows added while it was read, this is the current state.
            self._chunks, self._added_since = self._joined(chunks, self._added_since), None
        encode = partial(self._encoder.events, SNAPSHOT, now.commit, chunks)
        first = FirstEvents(await self._resources.run(encode), link)
        self._resources.states.add(first)
        if self._current_position()[0] is now:
            self._ready = first
        return first

    def _read_state(self, now: PollResult) -> tuple[EncodedRows, ...]:
        if now.state is not None:
            return self._encoder.memory_chunks(now.state.select(now.schema.names))
        if now.keyed or not now.commit.snapshot:
            return ()
        with closing(self._open_feed(self._view)) as feed:
            commit = now.commit
            same = StreamPosition.of(feed.incarnation, commit.snapshot, commit.time_ms) == commit
            same = same and same_columns(feed.schema, now.schema)
            if not isinstance(feed, TableFeed) or not same:
                raise DataLossError(f"{self._view.name} was recreated or altered")
            return self._encoder.table_chunks(feed.shown, now.schema.names, commit.snapshot)

    async def _catch_up(self, position: ResumePosition) -> FirstEvents | None:
        async with self._resources.catching_up:
            now, link = self._current_position()
            missed_events = await self._resources.run(partial(self._read_missed, position, now))
        if missed_events is None:
            return None
        first = FirstEvents(missed_events, link)
        self._resources.states.add(first)
        if self._current_position()[0] is now:
            self._caught_up[str(position)] = first
        return first

    def _read_missed(
        self, position: ResumePosition, now: PollResult
    ) -> tuple[StreamEvent, ...] | None:
        with closing(self._open_feed(self._view)) as feed:
            return read_missed_events(feed, position, now, self._encoder)


async def _awaited(make: Callable[[], Awaitable[FirstEvents | None]]) -> FirstEvents | None:
    return await make()
