"""Runs requests of clients: small reads in threads, the others in worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Self

from streamhouse.duckdb_engine import Limits
from streamhouse.errors import LimitError, SqlError, StreamhouseError, TimeLimitError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.serve.access_log import LOGGER
from streamhouse.serve.admission.fair_queue import RequestQueues, WarehouseThreads
from streamhouse.serve.admission.response_memory import UnsentResponses
from streamhouse.serve.errors import Problem
from streamhouse.serve.queries.output import ReadRequest, ReadResult, RowsRequest, ScriptRequest
from streamhouse.serve.queries.view_rows import read_if_small
from streamhouse.serve.queries.worker import LONG_S, UnexpectedError, fork, serve
from streamhouse.serve.settings import ServerSettings

if TYPE_CHECKING:
    from streamhouse.serve.http.metrics import Metrics

_START_S = 60.0
_MAX_STATES = 4_096
_SCRIPT_WAIT_S = 20.0
"""How long a script may wait for the scripts before it."""
_GRACE_S = 0.5
"""How long after its time limit a query may take to report the timeout itself."""


@dataclass(eq=False)
class QueryExecutor:
    """Runs read requests for the routes of one server; each waits for a slot of a queue.

    A request for few rows, without a client's SQL text, runs in a thread. Any other runs in a
    worker process, which is killed if it exceeds a limit, or if the client disconnects.
    """

    _settings: ServerSettings
    _threads: WarehouseThreads
    _queues: RequestQueues
    _unsent: UnsentResponses
    _metrics: Metrics
    _idle: list[_Worker] = field(default_factory=list)
    _ending: set[asyncio.Task[None]] = field(default_factory=set)
    folder: str = ""
    """For the files of responses, which are kept until they have been sent."""
    _states: dict[str, str] = field(default_factory=dict)

    def path(self) -> str:
        """The path for a new file with the rows of a response."""
        return os.path.join(self.folder, uuid.uuid4().hex)

    async def run(self, client: str, request: ReadRequest) -> ReadResult:
        """Run a request of a client; raises as `worker.run_request`, and `Problem` busy."""
        result = None
        if isinstance(request, RowsRequest):
            known = {self._states[tag]: tag for tag in request.known_etags if tag in self._states}
            request = replace(request, etags_of_states=known)
            if request.trusted:
                result = await self._small(client, request)
        if result is None:
            result = await self._large(client, request)
        if result.etag is not None and result.state is not None:
            # The state of the tables at which the rows had this ETag.
            self._states.pop(result.etag, None)
            self._states[result.etag] = result.state
            if len(self._states) > _MAX_STATES:
                del self._states[next(iter(self._states))]
        return result

    async def _large(self, client: str, request: ReadRequest) -> ReadResult:
        """Run a request in a process, and count it."""
        started, outcome = time.perf_counter(), "failed"
        try:
            result = await self._run_in_process(client, request)
            outcome = "answered"
            return result
        except LimitError:
            outcome = "limited"
            raise
        except Problem:
            outcome = "refused"
            raise
        finally:
            self._metrics.queries.labels(outcome).inc()
            self._metrics.query_seconds.observe(time.perf_counter() - started)

    async def _small(self, client: str, request: RowsRequest) -> ReadResult | None:
        """Run a request in a thread; None if it is too large for that."""
        disconnected = threading.Event()

        def read(warehouse: Warehouse) -> ReadResult | None:
            result = read_if_small(warehouse, request)
            if disconnected.is_set():
                request.target.delete()
            return result

        try:
            return await self._threads.read(client, read)
        except asyncio.CancelledError:
            # The thread keeps running; nobody needs the file that it writes.
            disconnected.set()
            request.target.delete()
            raise

    async def _run_in_process(self, client: str, request: ReadRequest) -> ReadResult:
        """Run a request in a process, within its time limit including the wait for a slot.

        At most half of the time is spent waiting. While all slots of the `heavy` queue are taken, a
        query with a client's SQL text first gets `LONG_S` in the `light` queue. If that is too
        short, it starts again when it gets a `heavy` slot.
        """
        started_at, seconds = time.monotonic(), request.limits.seconds
        assert seconds is not None
        # Before the query runs, since a response that may not be sent would be wasted.
        self._unsent.make_room(client)
        heavy = self._queues.heavy
        if not request.trusted and not heavy.has_free_slot(client) and seconds > 2 * LONG_S:
            result = await self._try_light_queue(client, request, seconds / 4)
            if result is not None:
                return result
        remaining = max(seconds / 2 - (time.monotonic() - started_at), LONG_S)
        with await heavy.acquire(client, remaining):
            waited = time.monotonic() - started_at
            try:
                return await self._run_in_worker(request, started_at)
            except TimeLimitError as error:
                if waited < seconds / 10:
                    raise
                raise Problem(
                    "busy",
                    f"{error}; it waited {waited:.1f} s of that time for a slot, so try again",
                    {"Retry-After": str(math.ceil(seconds))},
                ) from None

    async def _try_light_queue(
        self, client: str, request: ReadRequest, wait_s: float
    ) -> ReadResult | None:
        """Run a query in the `light` queue; None if it takes too long, or gets no slot in time."""
        try:
            slot = await self._queues.light.acquire(client, wait_s)
        except Problem:
            return None
        with slot, contextlib.suppress(TimeLimitError):
            return await self._run_in_worker(_with_time_limit(request, LONG_S), time.monotonic())
        return None

    async def check(self, client: str, script: ScriptRequest, seconds: float) -> dict[str, Any]:
        """Plan a script in a process of its own; returns as `graph.script_check.check_script`.

        Raises `LimitError` for a script that exceeds a limit, and `Problem` busy.
        """
        with await self._queues.scripts.acquire(client, _SCRIPT_WAIT_S):
            worker = await _Worker.start(self._settings, self.folder)
            try:
                reply: dict[str, Any] = await worker.request(script, seconds, Limits(seconds))
                return reply
            finally:
                self._end(worker)

    async def close(self) -> None:
        """Kill all processes; running queries are lost."""
        while self._idle:
            self._end(self._idle.pop())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await asyncio.gather(*self._ending)

    def _end(self, worker: _Worker) -> None:
        """Kill a process in a background task, which then deletes its folder."""
        task = asyncio.get_running_loop().create_task(worker.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _run_in_worker(self, request: ReadRequest, started_at: float) -> ReadResult:
        """Run a request in a process, within the time left since `started_at`.

        It gets at least a second.
        """
        seconds = request.limits.seconds
        assert seconds is not None
        worker = await self._worker()
        sent_at = time.monotonic()
        remaining = max(seconds - (sent_at - started_at), min(seconds, LONG_S))
        try:
            limited = _with_time_limit(request, remaining)
            reply = await worker.request(limited, remaining + _GRACE_S, request.limits)
        except BaseException:
            # Cancelled or timed out: discard the process and its file.
            self._end(worker)
            request.target.delete()
            raise
        if time.monotonic() - sent_at > LONG_S or isinstance(reply, LimitError | UnexpectedError):
            # It may not have freed all memory, and it cannot raise its priority again.
            self._end(worker)
        else:
            self._idle.append(worker)
        if isinstance(reply, UnexpectedError):
            LOGGER.error("a query failed unexpectedly:\n%s", reply.trace)
            raise StreamhouseError(str(reply)) if request.trusted else SqlError(str(reply))
        if isinstance(reply, TimeLimitError):
            raise TimeLimitError.after(seconds)
        if isinstance(reply, StreamhouseError):
            raise reply
        assert isinstance(reply, ReadResult)
        return reply

    async def _worker(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            # It died while idle, which must not fail the next query.
            self._end(worker)
        return await _Worker.start(self._settings, self.folder)


def _with_time_limit(request: ReadRequest, seconds: float) -> ReadRequest:
    return replace(request, limits=replace(request.limits, seconds=seconds))


class _Worker:
    """One worker process (`serve.queries.worker`); its temporary files are in `folder`."""

    def __init__(self, process: BaseProcess, connection: Connection, folder: str) -> None:
        self._process = process
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, "streamhouse-query")
        """Waits for the responses."""
        self.folder = folder

    @classmethod
    async def start(cls, settings: ServerSettings, parent: str) -> Self:
        """Fork a process and wait until it is ready for requests; makes its folder in `parent`."""
        folder = tempfile.mkdtemp(prefix="worker-", dir=parent)
        own_end, child_end = multiprocessing.Pipe()
        setup = (dict(settings.warehouse), settings.query_memory, folder)

        def forked() -> BaseProcess:
            # Here, as this thread goes on if the request is cancelled: the number of a closed
            # pipe may be that of another request's by the time it is passed on.
            with child_end:
                return fork(serve, child_end, *setup)

        worker = None
        try:
            worker = cls(await asyncio.to_thread(forked), own_end, folder)
            async with asyncio.timeout(_START_S):
                await worker._in_thread(own_end.recv)
        except BaseException as error:
            if worker is None:
                own_end.close()
                shutil.rmtree(folder, ignore_errors=True)
            else:
                await worker.end()
            if isinstance(error, OSError | EOFError):
                raise StreamhouseError(
                    "the process that runs queries does not start; see the server's standard error"
                ) from None
            raise
        return worker

    async def request(self, request: object, within_s: float, limits: Limits) -> Any:
        """Send a request and return the process's response, which is a result or an exception.

        Raises `TimeLimitError` if it does not respond in time, so it has to be killed, and
        `LimitError` if it died, presumably of its memory limit. The messages name `limits`.
        """

        def exchange() -> Any:
            self._connection.send(request)
            return self._connection.recv()

        try:
            async with asyncio.timeout(within_s):
                return await self._in_thread(exchange)
        except TimeoutError:
            raise TimeLimitError.after(limits.seconds or within_s) from None
        except (EOFError, ConnectionError):
            raise LimitError.of_memory(limits.memory) from None

    @property
    def alive(self) -> bool:
        # The pipe of an idle process has nothing to read but its end.
        return not self._connection.poll()

    async def end(self) -> None:
        """Kill the process and delete its folder, which may hold spilled rows."""
        if self._process.is_alive():
            self._process.kill()
        await asyncio.to_thread(self._process.join)
        await asyncio.to_thread(self._thread.shutdown)
        self._connection.close()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)
