"""One reader of a stream: a place in a chain of events that all its readers share.

The chain is linked forwards only. What no reader and no history points before is freed, so a reader
costs a pointer, and one that lags keeps alive what it has still to read and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Self

from streamhouse.errors import SlowReaderError, StreamhouseError
from streamhouse.serve.streams.event import Event


class Link:
    """A place in the chain: just behind its event.

    `number` and `size` are of all events up to here, so that distances are differences. A link with
    an `error` ends the stream of each reader that comes to it.
    """

    __slots__ = ("error", "event", "next", "number", "size")

    def __init__(self) -> None:
        self.event: Event | None = None
        self.error: StreamhouseError | None = None
        self.next: Link | None = None
        self.number = 0
        self.size = 0

    def append(self, event: Event | None, error: StreamhouseError | None = None) -> Link:
        """Put an event, or an end, behind this link, which is the last."""
        link = Link()
        link.event, link.error = event, error
        link.number = self.number + 1
        link.size = self.size + (0 if event is None else event.size)
        self.next = link
        return link


class Start:
    """What readers get before the events behind `link`: shared by all who begin at one moment."""

    def __init__(self, events: Sequence[Event], link: Link) -> None:
        self.events = tuple(events)
        self.link = link
        self.size = sum(event.size for event in self.events)
        self.readers: set[Subscription] = set()

    def give_up(self) -> None:
        """Cut off those who have not read it yet."""
        for reader in tuple(self.readers):
            reader.cut("more is being sent than this server keeps in memory")


class Subscription:
    """The events for one reader, in order, each once; an async iterator for one task.

    Made by `Hub.subscribe`. It ends when the server stops (or after `close`). `SlowReaderError`
    is raised when the reader fell too far behind, `ExpiredError` when it has to begin anew.
    `cut_off` is set at the moment when it is cut off for being slow, for those who would
    otherwise wait for a send that never ends.
    """

    def __init__(
        self, start: Start, leave: Callable[[Subscription], None], last_id: str | None = None
    ) -> None:
        self.cut_off = asyncio.Event()
        self.last_id = last_id
        self._start: Start | None = start if start.events else None
        self._place = 0
        self._link: Link | None = start.link
        self._leave = leave
        self._error: StreamhouseError | None = None
        self._heartbeat: Event | None = None
        self._waiter: asyncio.Future[None] | None = None
        if self._start is not None:
            start.readers.add(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
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
        """Let go of the stream; asking for more afterwards ends the iteration."""
        self.end(None)

    def behind(self, head: Link) -> tuple[int, int]:
        """How many events, and bytes, are waiting besides the start."""
        if self._link is None:
            return 0, 0
        return head.number - self._link.number, head.size - self._link.size

    def cut(self, reason: str) -> None:
        """End the stream of a reader that is too slow."""
        place = "begin anew" if self.last_id is None else f"go on with last_id={self.last_id}"
        message = f"this reader is too slow and was cut off: {reason}; {place}"
        self.cut_off.set()
        self.end(SlowReaderError(message, self.last_id))

    def end(self, error: StreamhouseError | None) -> None:
        """Nothing more comes; the reader gets the error, if there is one, once."""
        self._error = error
        self._finish_start()
        self._link = None
        self._leave(self)
        self.wake()

    def beat(self, heartbeat: Event) -> None:
        """Give a waiting reader a sign of life."""
        if self._waiter is not None:
            self._heartbeat = heartbeat
            self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _next(self) -> Event | None:
        """What is there to read now; None if that is to be waited for."""
        if self._start is not None:
            event = self._start.events[self._place]
            self._place += 1
            if self._place == len(self._start.events):
                self._finish_start()
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
            # One error for many readers must not gather their tracebacks.
            raise link.error.with_traceback(None)
        self._link = link
        return link.event

    def _finish_start(self) -> None:
        if self._start is not None:
            self._start.readers.discard(self)
            self._start = None
