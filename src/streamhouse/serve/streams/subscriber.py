"""One subscriber of a stream: a pointer into a linked list of events shared by all subscribers.

The list is linked forwards only, so events that every subscriber and the history have passed are
freed by themselves. A subscriber costs a pointer; one that lags keeps alive only the events that it
has yet to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from streamhouse.errors import SlowReaderError, StreamhouseError
from streamhouse.serve.streams.event import StreamEvent


@dataclass(eq=False, repr=False, slots=True)
class Link:
    """A node of the list; a subscriber that points to it has read its event.

    `number` and `size` are cumulative, so that a backlog is a difference. A link with an `error`
    ends the stream of each subscriber that reaches it.
    """

    event: StreamEvent | None = None
    error: StreamhouseError | None = None
    number: int = 0
    size: int = 0
    next: Link | None = None

    def append(self, event: StreamEvent | None, error: StreamhouseError | None = None) -> Link:
        """Append an event, or an error that ends the stream, to this link, which is the last."""
        size = self.size + (0 if event is None else event.size)
        self.next = Link(event, error, self.number + 1, size)
        return self.next


class FirstEvents:
    """What new subscribers get before the events after `link`: all rows, or missed changes.

    Shared between subscribers.
    """

    def __init__(self, events: Sequence[StreamEvent], link: Link) -> None:
        self.events = tuple(events)
        self.link = link
        self.size = sum(event.size for event in self.events)
        self.readers: set[Subscription] = set()

    def disconnect_readers(self) -> None:
        """Disconnect the subscribers that have not read all of it."""
        for reader in tuple(self.readers):
            reader.disconnect_slow(
                "the first snapshots being sent exceed the server's memory limit"
            )


class Subscription:
    """The events for one subscriber, in order, each once; an async iterator for one task.

    Made by `Hub.subscribe`. The iteration ends when the server stops, or after `close`. It raises
    `SlowReaderError` if the subscriber fell too far behind, `ExpiredError` if it has to start
    again, `TableError` if the view is gone. `too_slow` is set as soon as the subscriber is
    disconnected for being slow, so that a blocked send can be aborted.
    """

    def __init__(
        self, first: FirstEvents, leave: Callable[[Subscription], None], last_id: str | None = None
    ) -> None:
        self.too_slow = asyncio.Event()
        self.last_id = last_id
        self._first: FirstEvents | None = first if first.events else None
        self._first_index = 0
        self._link: Link | None = first.link
        self._leave = leave
        self._error: StreamhouseError | None = None
        self._heartbeat: StreamEvent | None = None
        self._waiter: asyncio.Future[None] | None = None
        if self._first is not None:
            first.readers.add(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        while True:
            event = self._next()
            if event is not None:
                if event.id is not None:
                    self.last_id = event.id
                return event
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def close(self) -> None:
        """Leave the stream; the iteration ends."""
        self.end(None)

    def backlog(self, head: Link) -> tuple[int, int]:
        """The unread events and their bytes, without the first events."""
        if self._link is None:
            return 0, 0
        return head.number - self._link.number, head.size - self._link.size

    def disconnect_slow(self, reason: str) -> None:
        """End the subscription with `SlowReaderError`."""
        advice = "start again" if self.last_id is None else f"resume with last_id={self.last_id}"
        message = f"this subscriber reads too slowly and was disconnected: {reason}; {advice}"
        self.too_slow.set()
        self.end(SlowReaderError(message, self.last_id))

    def end(self, error: StreamhouseError | None) -> None:
        """End the subscription; the next read raises the error, if there is one, once."""
        self._error = error
        self._finish_first()
        self._link = None
        self._leave(self)
        self.wake()

    def send_heartbeat(self, heartbeat: StreamEvent) -> None:
        """Send a heartbeat, if the subscriber is waiting for an event."""
        if self._waiter is not None:
            self._heartbeat = heartbeat
            self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _next(self) -> StreamEvent | None:
        """The next event that is available; None if the subscriber has to wait."""
        if self._first is not None:
            event = self._first.events[self._first_index]
            self._first_index += 1
            if self._first_index == len(self._first.events):
                self._finish_first()
            return event
        if self._link is None:
            error, self._error = self._error, None
            if error is not None:
                raise error
            raise StopAsyncIteration
        heartbeat, self._heartbeat = self._heartbeat, None
        link = self._link.next
        if link is None:
            return heartbeat
        if link.error is not None:
            self.end(None)
            # Subscribers share the error object, which would collect their tracebacks.
            raise link.error.with_traceback(None)
        self._link = link
        return link.event

    def _finish_first(self) -> None:
        if self._first is not None:
            self._first.readers.discard(self)
            self._first = None
