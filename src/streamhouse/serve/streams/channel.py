"""The change stream of one served view and all its subscribers, on the event loop.

A thread (`ViewPoller`) polls for changes and encodes them. The channel appends the events to a
linked list that all subscribers read. A new subscriber gets the initial state, or the events that
it has missed, and continues after the link that was the last at that time, so that no event is
lost or sent twice.

docs/decisions/060-subscribers-share-one-event-chain.md says why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from streamhouse.errors import (
    BusyError,
    DataLossError,
    ExpiredError,
    SqlError,
    StreamhouseError,
    TableError,
)
from streamhouse.serve.feeds.feed import Feed
from streamhouse.serve.settings import StreamSettings
from streamhouse.serve.streams.event import (
    CHANGES,
    EncodingStopped,
    StreamEncoder,
    StreamEvent,
    heartbeat,
)
from streamhouse.serve.streams.first_events import (
    LATEST,
    EventHistory,
    FirstEventsBuilder,
    ResumePosition,
    StreamResources,
)
from streamhouse.serve.streams.subscriber import FirstEvents, Link, Subscription
from streamhouse.serve.streams.view_poller import PollResult, StreamStats, ViewPoller
from streamhouse.serve.views.served_view import ServedView

_MAX_ATTEMPTS = 5
_EARLY_S = 0.002
"""Tolerance for timers that fire slightly early."""


class Channel:
    """Streams one served view while it has subscribers, and `linger_s` longer.

    Use it on the event loop that created it. It calls `ended` when it closes.
    """

    def __init__(
        self,
        view: ServedView,
        open_feed: Callable[[ServedView], Feed],
        settings: StreamSettings,
        resources: StreamResources,
        stats: StreamStats,
        ended: Callable[[Channel], None],
        client: str = "",
    ) -> None:
        self.view = view
        self.history = EventHistory()
        self._stats = stats
        self._settings = settings
        self._trim = resources.trim
        self._ended = ended
        self._client = client
        self._open_feed = open_feed
        self._loop = asyncio.get_running_loop()
        self._current: PollResult | None = None
        self._head = Link()
        self._readers: dict[Subscription, str] = {}
        self._openings = 0
        self._closed = False
        self._end_error: StreamhouseError | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._last_sent_at = self._loop.time()
        self._encoder = StreamEncoder(view.name, settings, resources.stopping)
        self._builder = FirstEventsBuilder(
            self._opened, self._encoder, resources, stats, self._current_position
        )
        self._poller = ViewPoller(
            view.name,
            self._opened,
            settings,
            stats,
            partial(self._post, self._on_result),
            partial(self._post, self._end_missing),
        )

    def _opened(self) -> Feed:
        """A feed whose computations count for the client; called by several threads."""
        feed = self._open_feed(self.view)
        feed.client = self._client
        return feed

    @property
    def client(self) -> str:
        """The client to whose share the stream counts: that of its longest subscriber."""
        return next(iter(self._readers.values()), self._client)

    @property
    def unused(self) -> bool:
        """Whether the stream has no subscriber, and none is being set up."""
        return not self._readers and not self._openings

    async def subscribe(self, position: ResumePosition | str | None, client: str) -> Subscription:
        """Add a subscriber; it begins with all rows, after a position, or with `latest`.

        Raises as `Hub.subscribe`.
        """
        self._openings += 1
        try:
            first = await self._first_events(position)
            if self._closed:
                raise self._stopped()
            resumed = str(position) if isinstance(position, ResumePosition) else None
            reader = Subscription(first, self._leave, resumed)
            self._readers[reader] = client
            self._stats.add(subscribers=1)
            if self._heartbeat_timer is None:
                self._last_sent_at = self._loop.time()
                self._schedule_heartbeat(self._last_sent_at + self._settings.heartbeat_s)
            return reader
        finally:
            self._openings -= 1
            self._start_linger()

    async def _first_events(self, position: ResumePosition | str | None) -> FirstEvents:
        """What a subscriber gets first; polls before, so it includes every commit before."""
        for attempts_left in range(_MAX_ATTEMPTS, 0, -1):
            try:
                return await self._build(position, await self._poll())
            except ExpiredError:
                raise
            except DataLossError:
                # The snapshot expired before it was read, or the table was recreated.
                if attempts_left == 1:
                    raise
            except EncodingStopped:
                break
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._closed or (task is not None and task.cancelling()):
                    raise
                break
        raise self._stopped()

    def close(self, end_error: StreamhouseError | None = None) -> None:
        """Stop polling and end all subscriptions.

        With `end_error`, subscribers first get all events so far, then that error.
        """
        if self._closed:
            return
        self._closed, self._end_error = True, end_error
        for timer in (self._linger_timer, self._heartbeat_timer):
            if timer is not None:
                timer.cancel()
        if end_error is None:
            for reader in tuple(self._readers):
                reader.end(None)
        else:
            self._head = self._head.append(None, end_error)
            self._wake()
        self._builder.close()
        self._poller.stop()
        self._ended(self)

    def join(self, seconds: float) -> None:
        """Wait for the poller's thread to end; blocks, so not for the event loop."""
        self._poller.join(seconds)

    async def _poll(self) -> PollResult:
        if self._closed:
            raise self._stopped()
        error = await asyncio.wrap_future(self._poller.poll_now())
        if self._closed:
            raise self._stopped()
        is_missing = isinstance(error, TableError | SqlError)
        if error is not None and (is_missing or self._current is None):
            if isinstance(error, StreamhouseError):
                raise error.with_traceback(None)
            raise StreamhouseError(f"{self.view.name} cannot be read: {error}") from error
        return self._current_position()[0]

    async def _build(self, position: ResumePosition | str | None, now: PollResult) -> FirstEvents:
        if position == LATEST:
            return FirstEvents(self._encoder.events(CHANGES, now.commit), self._head)
        first = None
        if isinstance(position, ResumePosition):
            link = self.history.find(position)
            if link is not None:
                return FirstEvents((), link)
            first = await self._builder.after(position)
        first = first or await self._builder.after(None)
        if first is None:
            raise self._stopped()
        return first

    def _current_position(self) -> tuple[PollResult, Link]:
        if self._current is None:
            raise self._stopped()
        return self._current, self._head

    def _on_result(self, result: PollResult) -> None:
        """Process the result of a poll: append its events and record the new position."""
        if self._closed:
            return
        self._current, self._stats.snapshot = result, result.commit.snapshot
        self._builder.changed(result)
        if result.events is None:
            self._expire_positions(result)
        elif result.events:
            if result.full:
                self.history.clear()
            else:
                self._stats.add(rows=sum(event.changed for event in result.events))
                age_ms = time.time_ns() // 1_000_000 - result.commit.time_ms
                self._stats.freshness_ms = max(0, age_ms)
            self._publish(result.events)
        # Subscribers can resume from here.
        self.history.record(result.commit, self._head)
        self._trim()

    def _publish(self, events: Sequence[StreamEvent]) -> None:
        self._disconnect_slow()
        for event in events:
            self._head = self._head.append(event)
        self._stats.add(events=len(events), bytes=sum(len(event.data) for event in events))
        self._wake()

    def _expire_positions(self, result: PollResult) -> None:
        self._disconnect_slow()
        self.history.clear()
        error = ExpiredError(
            f"the stream of {self.view.name} cannot continue after snapshot "
            f"{result.commit.snapshot}: more than {self._settings.max_rows:,} rows changed at "
            "once, a table with as many rows was recreated or altered, or it exceeds the limits on "
            "memory or time; start again, with "
            f"last_id={LATEST} if only the first snapshot is too large"
        )
        self._head = self._head.append(None, error)
        self._wake()

    def _end_missing(self) -> None:
        """Close the channel; subscribers get the error that the table or view does not exist."""
        # Does not name the source table, which the client may not be allowed to see.
        message = (
            f"{self.view.name} no longer exists: it, or a table that it reads, was dropped; "
            "subscribe again once it exists"
        )
        self.close(TableError(message))

    def _wake(self) -> None:
        self._last_sent_at = self._loop.time()
        for reader in self._readers:
            reader.wake()

    def _disconnect_slow(self) -> None:
        """Disconnect subscribers whose backlog, before the new events, exceeds a limit."""
        settings = self._settings
        for reader in tuple(self._readers):
            unread, size = reader.backlog(self._head)
            if unread > settings.queue_events or size > settings.queue_bytes:
                reader.disconnect_slow(f"it had {unread:,} unread events of {size:,} bytes")

    def _schedule_heartbeat(self, at: float) -> None:
        self._heartbeat_timer = self._loop.call_at(at, self._send_heartbeats)

    def _send_heartbeats(self) -> None:
        self._heartbeat_timer = None
        self._builder.forget_unused()
        if not self._readers:
            return
        now, idle = self._loop.time(), self._settings.heartbeat_s
        if now - self._last_sent_at >= idle - _EARLY_S and self._current is not None:
            self._last_sent_at = now
            event = heartbeat(self._current.commit)
            for reader in self._readers:
                reader.send_heartbeat(event)
        self._schedule_heartbeat(self._last_sent_at + idle)

    def _leave(self, reader: Subscription) -> None:
        if reader not in self._readers:
            return
        del self._readers[reader]
        self._stats.add(subscribers=-1, overflows=reader.too_slow.is_set())
        self._start_linger()

    def _start_linger(self) -> None:
        if self._closed or not self.unused:
            return
        if self._current is None:
            self.close()
            return
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self._linger_timer = self._loop.call_later(self._settings.linger_s, self._close_unused)

    def _close_unused(self) -> None:
        self._linger_timer = None
        if self.unused:
            self.close()

    def _post(self, function: Callable[..., None], *values: object) -> None:
        """Call the function on the event loop; called from the poller's thread."""
        try:
            self._loop.call_soon_threadsafe(function, *values)
        except RuntimeError:
            # The event loop has closed, and all subscriptions with it.
            self._poller.stop()

    def _stopped(self) -> StreamhouseError:
        if self._end_error is not None:
            return self._end_error.with_traceback(None)
        return BusyError(
            f"the stream of {self.view.name} has ended, since the server is shutting down; try "
            "again later"
        )
