"""All change streams of a server: one channel per view, shared by its subscribers."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from streamhouse.errors import BusyError
from streamhouse.serve.feeds.feed import Feed
from streamhouse.serve.settings import StreamSettings
from streamhouse.serve.streams.channel import Channel
from streamhouse.serve.streams.first_events import (
    LATEST,
    ResumePosition,
    StateMemory,
    StreamResources,
)
from streamhouse.serve.streams.subscriber import Subscription
from streamhouse.serve.streams.view_poller import StreamStats
from streamhouse.serve.views.served_view import ServedView

_WORKERS = 2
_JOIN_S = 1.0


class Hub:
    """All change streams of a server; created once, on the server's event loop.

    `open_feed` opens the feed of a served view. It is called from several threads; each feed is
    used by one thread only.
    """

    def __init__(
        self, open_feed: Callable[[ServedView], Feed], settings: StreamSettings | None = None
    ) -> None:
        self._open_feed = open_feed
        self._settings = settings or StreamSettings()
        self._channels: dict[ServedView, Channel] = {}
        self._stats: dict[str, StreamStats] = {}
        self._stopping = threading.Event()
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="stream")
        states = StateMemory(self._settings.state_bytes)
        self._resources = StreamResources(self._workers, states, self._trim, self._stopping.is_set)

    async def subscribe(
        self, view: ServedView, last_id: str | None = None, client: str = ""
    ) -> Subscription:
        """Subscribe to a view: all of its rows, then each change, in order.

        `client` is whose share of the streams it uses.

        With `last_id`, the id of an event or a snapshot id, the changes after it instead of all
        rows; with `latest` only changes from now on. A subscriber that cannot resume because the
        columns have changed gets all rows, too.

        Raises `BadIdError` for a malformed `last_id`, `ExpiredError` if the stream cannot resume
        from it, `TableError` and `SqlError` if the view is missing, `TooLargeError` if it has too
        many rows, `BusyError` if too many views have streams and the client has its share of them.
        """
        position: ResumePosition | str | None = last_id or None
        if position is not None and position != LATEST:
            position = ResumePosition.parse(str(position))
        return await self._channel(view, client).subscribe(position, client)

    async def close(self) -> None:
        """End all subscriptions and poller threads; waits at most a second for the threads.

        There are no new ones afterwards. A second call does nothing.
        """
        self._stopping.set()
        channels = list(self._channels.values())
        for channel in channels:
            channel.close()
        self._workers.shutdown(wait=False, cancel_futures=True)
        if channels:
            await asyncio.get_running_loop().run_in_executor(None, _join, channels)

    def stats(self) -> list[StreamStats]:
        """Statistics of each view that has had subscribers, sorted by name."""
        return [self._stats[name] for name in sorted(self._stats)]

    def _channel(self, view: ServedView, client: str) -> Channel:
        if self._stopping.is_set():
            raise BusyError("the server is shutting down; try again later")
        channel = self._channels.get(view)
        if channel is None:
            if len(self._channels) >= self._settings.max_streams:
                self._make_room(client)
            stats = self._stats.setdefault(view.name, StreamStats(view.name))
            channel = Channel(
                view, self._open_feed, self._settings, self._resources, stats, self._ended, client
            )
            self._channels[view] = channel
        return channel

    def _make_room(self, client: str) -> None:
        """End an unused stream, or one of the client with the most if that has two more than this.

        Otherwise raises `BusyError`.
        """
        unused = next((one for one in self._channels.values() if one.unused), None)
        if unused is not None:
            unused.close()
            return
        counts = Counter(channel.client for channel in self._channels.values())
        busiest = max(counts, key=lambda name: counts[name])
        most = f"the server streams its maximum of {len(self._channels)} views or selections of"
        if counts[busiest] < counts[client] + 2:
            raise BusyError(
                f"{most} their columns, {counts[client]} of them for you; end some of your "
                "streams, or try again later"
            )
        newest = [one for one in self._channels.values() if one.client == busiest][-1]
        newest.close(
            BusyError(
                f"the stream of {newest.view.name} has ended: {most} their columns, "
                f"{counts[busiest]} of them for you, and other clients have fewer; end some of "
                "your streams before you start others"
            )
        )

    def _ended(self, channel: Channel) -> None:
        del self._channels[channel.view]

    def _trim(self) -> None:
        """Drop events from the largest histories until their total is within `history_bytes`."""
        sizes = {channel: channel.history.bytes for channel in self._channels.values()}
        total = sum(sizes.values())
        while total > self._settings.history_bytes:
            largest = max(sizes, key=lambda channel: sizes[channel])
            largest.history.forget_oldest()
            total -= sizes[largest] - largest.history.bytes
            sizes[largest] = largest.history.bytes


def _join(channels: list[Channel]) -> None:
    deadline = time.monotonic() + _JOIN_S
    for channel in channels:
        channel.join(max(0.0, deadline - time.monotonic()))
