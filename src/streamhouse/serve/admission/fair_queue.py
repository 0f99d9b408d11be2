"""Concurrency and rate limits that are fair between clients, and what waits for their slots."""

import asyncio
import concurrent.futures
import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeVar

from starlette.requests import HTTPConnection

from streamhouse.errors import BusyError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.errors import Problem
from streamhouse.serve.settings import ServerSettings

_MAX_RETRY_S = 60
_WEIGHT = 0.2
"""Weight of the newest value in the moving average of how long a slot is held."""


SHORT_S = 1.0
FIRST_WAIT_S = 10.0
"""How long the first rows of a stream may wait for a slot; later ones wait until they get one."""
_FOREVER_S = 1e9
_CANCEL_INTERVAL_S = 0.1
T = TypeVar("T")


class FairQueue:
    """A semaphore of `slots`, with a fair queue of at most `max_waiting` requests.

    A free slot goes to the waiting client that holds the fewest slots; of these to the one that has
    waited longest since its last slot. If the queue is full, a client with fewer requests in it
    than another replaces the other's last one. With `shared`, one client never holds all slots.
    `name` appears in messages and metrics. Use it on one event loop.
    """

    def __init__(self, name: str, slots: int, max_waiting: int, shared: bool = False) -> None:
        self.name = name
        self._free = slots
        self._slots = slots
        self._max_waiting = max_waiting
        self._max_per_client = slots - 1 if shared and slots > 1 else slots
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._seconds = 1.0

    @property
    def running(self) -> int:
        """The number of slots in use."""
        return self._slots - self._free

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return sum(map(len, self._waiting.values()))

    def has_free_slot(self, client: str) -> bool:
        """Whether the client would get a slot at once."""
        return self._free > 0 and self._may_run(client) and self._next() is None

    async def acquire(self, client: str, seconds: float) -> ExitStack:
        """Wait for a slot, which is held until the returned stack is closed.

        Raises `Problem` busy if the queue is full, or no slot is free within `seconds`.
        """
        if self.has_free_slot(client):
            self._count(client)
            return self._held(client)
        self._make_room(client)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException as error:
            self._forget(client, waiter)
            if isinstance(error, TimeoutError):
                raise self._busy(f"no slot was free within {seconds:g} s") from None
            raise
        return self._held(client)

    def _held(self, client: str) -> ExitStack:
        slot = ExitStack()
        slot.callback(self._release, client, time.monotonic())
        return slot

    def _release(self, client: str, acquired_at: float) -> None:
        held_s = time.monotonic() - acquired_at
        self._seconds += _WEIGHT * (held_s - self._seconds)
        self._free_slot(client)

    def _count(self, client: str) -> None:
        self._free -= 1
        self._running[client] += 1

    def _free_slot(self, client: str) -> None:
        self._free += 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        while self._free and (chosen := self._next()) is not None:
            waiter = self._waiting[chosen].popleft()
            self._waiting.move_to_end(chosen)
            self._remove_if_empty(chosen)
            if not waiter.done():
                self._count(chosen)
                waiter.set_result(None)

    def _may_run(self, client: str) -> bool:
        return self._running[client] < self._max_per_client

    def _next(self) -> str | None:
        """The client that gets the next slot; None if no waiting client may have one."""
        eligible = (client for client in self._waiting if self._may_run(client))
        return min(eligible, key=lambda client: self._running[client], default=None)

    def _make_room(self, client: str) -> None:
        """Drop the last request of the busiest client if the queue is full; else `Problem` busy."""
        if self.waiting < self._max_waiting:
            return
        busiest = max(self._waiting, key=lambda waiting: len(self._waiting[waiting]))
        if len(self._waiting[busiest]) <= len(self._waiting.get(client, ())) + 1:
            raise self._busy(f"{self._max_waiting} requests already wait")
        last = self._waiting[busiest].pop()
        self._remove_if_empty(busiest)
        if not last.done():
            last.set_exception(
                self._busy("the queue is full, and other clients have fewer requests in it")
            )

    def _forget(self, client: str, waiter: asyncio.Future[None]) -> None:
        if waiter in self._waiting.get(client, ()):
            self._waiting[client].remove(waiter)
            self._remove_if_empty(client)
        elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            # It got its slot at the time of the timeout or cancellation.
            self._free_slot(client)

    def _remove_if_empty(self, client: str) -> None:
        if not self._waiting[client]:
            del self._waiting[client]

    def _busy(self, reason: str) -> Problem:
        wait = math.ceil(self._seconds * (self.waiting + 1) / self._slots)
        retry_s = min(max(1, wait), _MAX_RETRY_S)
        return Problem(
            "busy",
            f"the server runs its maximum of {self._slots} {self.name} at a time, and {reason}; "
            f"try again in {retry_s} s",
            {"Retry-After": str(retry_s)},
        )


BURST_S = 10.0
_CLIENTS = 10_000


class RateLimiter:
    """A token bucket for each client, refilled with `rate` requests a second; 0: unlimited.

    The bucket holds ten seconds' worth of requests, the largest burst. Only the 10,000 most recent
    clients are kept; any other starts with a full bucket.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * BURST_S)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By client: the tokens, and when they were counted."""

    def take(self, client: str) -> float:
        """Count a request; 0 if it is allowed, else after how many seconds the next one is."""
        if not self._rate:
            return 0.0
        now = self._clock()
        tokens, counted_at = self._buckets.pop(client, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - counted_at) * self._rate)
        self._buckets[client] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if tokens >= 1 else (1 - tokens) / self._rate


CLIENT = "streamhouse.client"
"""Key in the ASGI scope of a request: its client, which is a token or else an address."""
READERS = 4
WAIT_S = 10.0
"""How long a request waits for a thread."""
_WAITING = 256
_QUERIES_WAITING = 64
_SCRIPTS_WAITING = 32


class RequestQueues:
    """The queues of one server.

    `small` is for short reads, which run in threads of the server. `heavy` is for queries and large
    responses, which run in worker processes. While all slots of `heavy` are taken, `light` lets one
    more query run for a second, in case it is short. `scripts` is for checking scripts. `views` has
    slots for the computations of views for change streams.
    """

    def __init__(self, settings: ServerSettings) -> None:
        shared = len(settings.tokens) > 1
        self.small = FairQueue("reads", READERS, _WAITING, shared)
        self.light = FairQueue("short queries", 1, _QUERIES_WAITING)
        self.heavy = FairQueue("queries", settings.queries, _QUERIES_WAITING, shared)
        self.scripts = FairQueue("checks of scripts", 1, _SCRIPTS_WAITING)
        streams = settings.streams.max_streams
        self.views = ViewComputations(
            FairQueue("short computations of streamed views", READERS, streams, shared),
            FairQueue("computations of streamed views", settings.queries, streams, shared),
        )

    @property
    def all(self) -> tuple[FairQueue, ...]:
        views = self.views
        return self.small, self.light, self.heavy, self.scripts, views.short, views.long


def client_of(connection: HTTPConnection) -> str:
    """The client by which requests are queued: a known token, else an address."""
    client: str = connection.scope.get(CLIENT, "")
    return client


class ViewComputations:
    """Slots for the computations of views, which run in the threads of pollers.

    `short` is for those that end within `SHORT_S`, `long` for the others (decision 130). The queues
    belong to the event loop `loop`.
    """

    def __init__(self, short: FairQueue, long: FairQueue) -> None:
        self.short, self.long = short, long
        self.loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def slot(
        self, queue: FairQueue, client: str, cancelled: threading.Event, first: bool
    ) -> Iterator[None]:
        """Wait for a slot in a thread; `BusyError` if the `first` rows would wait too long.

        Also soon after another thread has set `cancelled`.
        """
        loop, wait_s = self.loop, FIRST_WAIT_S if first else _FOREVER_S
        if loop is None or loop.is_closed():
            raise BusyError("the server is shutting down; try again later")
        future = asyncio.run_coroutine_threadsafe(queue.acquire(client, wait_s), loop)
        while not concurrent.futures.wait([future], _CANCEL_INTERVAL_S).done:
            if (cancelled.is_set() or loop.is_closed()) and future.cancel():
                raise BusyError("the stream has ended; try again")
        try:
            slot = future.result()
        except Problem as busy:
            raise BusyError(busy.message) from None
        try:
            yield
        finally:
            with suppress(RuntimeError):  # The loop has been closed.
                loop.call_soon_threadsafe(slot.close)


class WarehouseThreads:
    """Threads for blocking reads of the warehouse, which must not run on the event loop.

    Each call first waits for a slot of a queue. `options` are those of the warehouse's catalog.
    """

    def __init__(self, options: Mapping[str, str], queue: FairQueue, threads: int) -> None:
        self._options = dict(options)
        self._queue = queue
        self._executor = ThreadPoolExecutor(threads, "streamhouse-serve")
        self._local = threading.local()

    async def run(self, client: str, function: Callable[[], T]) -> T:
        """Run the function; `Problem` busy if no slot is free in time.

        A cancelled caller returns at once; the thread finishes, and holds the slot until then.
        """
        slot = await self._queue.acquire(client, WAIT_S)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, function)
        except BaseException:
            slot.close()
            raise

        def ended(done: asyncio.Future[T]) -> None:
            slot.close()
            if not done.cancelled():
                done.exception()  # marks it as retrieved if the caller was cancelled

        future.add_done_callback(ended)
        return await asyncio.shield(future)

    async def read(self, client: str, function: Callable[[Warehouse], T]) -> T:
        """As `run`, with the warehouse: each thread has its own `Warehouse` object."""
        return await self.run(client, lambda: function(self._warehouse()))

    def close(self) -> None:
        """Shut down the pool without waiting for running functions."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _warehouse(self) -> Warehouse:
        warehouse: Warehouse | None = getattr(self._local, "warehouse", None)
        if warehouse is None:
            warehouse = self._local.warehouse = Warehouse(self._options)
        return warehouse
