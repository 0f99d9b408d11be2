"""Runs read requests of clients: small ones in threads, the others in worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import pickle
import shutil
import tempfile
import threading
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamhouse.errors import LimitError, SqlError, StreamhouseError, TimeLimitError
from streamhouse.serve.access_log import LOGGER
from streamhouse.serve.admission.thread_pool import WarehousePool
from streamhouse.serve.errors import Problem
from streamhouse.serve.queries.answers import UnexpectedError, discard, small_answer
from streamhouse.serve.queries.fork_messages import LENGTH, LONG_S
from streamhouse.serve.queries.forks import Forks
from streamhouse.serve.queries.read_request import ReadRequest, ReadResult, RowsRequest

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.serve.admission.lanes import Admission
    from streamhouse.serve.admission.response_memory import Outgoing
    from streamhouse.serve.http.metrics import Metrics
    from streamhouse.serve.settings import ServerSettings

_START_S = 60.0
_GRACE_S = 0.5
"""How long after its time limit a query may take to report the timeout itself."""


class Queries:
    """Runs read requests for the routes of one server; each waits for a slot in a lane.

    A request for few rows, without a client's SQL text, runs in a thread. Any other runs in a
    worker process, which is killed if it exceeds a limit, or if the client disconnects.
    """

    def __init__(
        self,
        settings: ServerSettings,
        pool: WarehousePool,
        admission: Admission,
        outgoing: Outgoing,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._admission = admission
        self._outgoing = outgoing
        self._idle: list[_Worker] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._metrics = metrics
        self._folder = ""
        self._forks = Forks()

    def start(self, folder: str) -> None:
        """Set the folder for the files of responses, which are kept until they have been sent."""
        self._folder = folder

    def path(self) -> str:
        """The path for a new file with the rows of a response."""
        return os.path.join(self._folder, uuid.uuid4().hex)

    async def run(self, client: str, question: ReadRequest) -> ReadResult:
        """Run a request of a client; raises as `answers.answer`, and `Problem` busy."""
        if isinstance(question, RowsRequest) and question.trusted:
            small = await self._small(client, question)
            if small is not None:
                return small
        started, outcome = time.perf_counter(), "failed"
        try:
            told = await self._queried(client, question)
            outcome = "answered"
            return told
        except LimitError:
            outcome = "limited"
            raise
        except Problem:
            outcome = "refused"
            raise
        finally:
            self._metrics.queries.labels(outcome).inc()
            self._metrics.query_seconds.observe(time.perf_counter() - started)

    async def _small(self, client: str, asked: RowsRequest) -> ReadResult | None:
        """Run a request in a thread; None if it is too large for that."""
        left = threading.Event()

        def answered(warehouse: Warehouse) -> ReadResult | None:
            found = small_answer(warehouse, asked)
            if left.is_set():
                discard(asked)
            return found

        try:
            return await self._pool.run(client, answered)
        except asyncio.CancelledError:
            # The thread keeps running; nobody needs the file that it writes.
            left.set()
            discard(asked)
            raise

    async def _queried(self, client: str, question: ReadRequest) -> ReadResult:
        """Run a request in a process, within its time limit including the wait for a slot.

        At most half of the time is spent waiting. While all slots of the `heavy` lane are taken, a
        query with a client's SQL text first gets `LONG_S` in the `light` lane. If that is too
        short, it starts again when it gets a `heavy` slot.
        """
        began, seconds = time.monotonic(), question.limits.seconds
        assert seconds is not None
        # Before the query runs, since a response that may not be sent would be wasted.
        self._outgoing.make_room(client)
        heavy = self._admission.heavy
        if not question.trusted and not heavy.admits(client) and seconds > 2 * LONG_S:
            told = await self._tried(client, question, seconds / 4)
            if told is not None:
                return told
        left = max(seconds / 2 - (time.monotonic() - began), LONG_S)
        with await heavy.take(client, left):
            waited = time.monotonic() - began
            try:
                return await self._asked(question, began)
            except TimeLimitError as error:
                if waited < seconds / 10:
                    raise
                raise Problem(
                    "busy",
                    f"{error}; it waited {waited:.1f} s of that time for a slot, so try again",
                    {"Retry-After": str(math.ceil(seconds))},
                ) from None

    async def _tried(self, client: str, question: ReadRequest, wait_s: float) -> ReadResult | None:
        """Run a query in the `light` lane; None if it takes too long, or gets no slot in time."""
        try:
            turn = await self._admission.light.take(client, wait_s)
        except Problem:
            return None
        with turn, contextlib.suppress(TimeLimitError):
            return await self._asked(_within(question, LONG_S), time.monotonic())
        return None

    async def close(self) -> None:
        """Kill all processes; running queries are lost."""
        while self._idle:
            self._end(self._idle.pop())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await asyncio.gather(*self._ending)
        await self._forks.close()

    def _end(self, worker: _Worker) -> None:
        """Kill a process in a background task, which then deletes its folder."""
        task = asyncio.get_running_loop().create_task(worker.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    @staticmethod
    def _unexpected(question: ReadRequest, error: UnexpectedError) -> StreamhouseError:
        LOGGER.error("a query failed unexpectedly:\n%s", error.trace)
        return StreamhouseError(str(error)) if question.trusted else SqlError(str(error))

    async def _asked(self, question: ReadRequest, began: float) -> ReadResult:
        """Run a request in a process, within the time left since `began`, at least a second."""
        seconds = question.limits.seconds
        assert seconds is not None
        worker = await self._worker()
        asked = time.monotonic()
        left = max(seconds - (asked - began), min(seconds, LONG_S))
        try:
            found = await worker.ask(_within(question, left), seconds)
        except BaseException:
            # Cancelled or timed out: neither the process nor its file is of any use.
            self._end(worker)
            discard(question)
            raise
        if time.monotonic() - asked > LONG_S or isinstance(found, LimitError | UnexpectedError):
            # It may not have freed all memory, and it cannot raise its priority again.
            self._end(worker)
        else:
            self._idle.append(worker)
        if isinstance(found, UnexpectedError):
            raise self._unexpected(question, found)
        if isinstance(found, TimeLimitError):
            raise TimeLimitError.after(seconds)
        if isinstance(found, StreamhouseError):
            raise found
        assert isinstance(found, ReadResult)
        return found

    async def _worker(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            # It died while idle, which must not fail the next query.
            self._end(worker)
        folder = tempfile.mkdtemp(prefix="worker-", dir=self._folder)
        return await _Worker.start(self._forks, self._settings, folder)


def _within(question: ReadRequest, seconds: float) -> ReadRequest:
    return replace(question, limits=replace(question.limits, seconds=seconds))


class _Worker:
    """One worker process (`serve.queries.worker`); its temporary files are in `folder`."""

    def __init__(
        self,
        forks: Forks,
        pid: int,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        folder: str,
    ) -> None:
        self._forks = forks
        self._reader, self._writer = streams
        self.pid = pid
        self.folder = folder

    @classmethod
    async def start(cls, forks: Forks, settings: ServerSettings, folder: str) -> _Worker:
        """Fork a process and wait until it is ready for requests."""
        try:
            pid, ours = await forks.fork()
        except (OSError, TimeoutError):
            raise _unstarted() from None
        worker = cls(forks, pid, await asyncio.open_unix_connection(sock=ours), folder)
        try:
            async with asyncio.timeout(_START_S):
                given = (dict(settings.warehouse), settings.query_memory, folder)
                await worker._exchange(given)
        except BaseException as error:
            await worker.end()
            if isinstance(error, TimeoutError | EOFError):
                raise _unstarted() from None
            raise
        return worker

    async def ask(self, question: ReadRequest, seconds: float) -> Any:
        """Send a request and return the process's answer, which is a result or an exception.

        Raises `TimeLimitError` if it does not answer in time, so it has to be killed, and
        `LimitError` if it died, presumably of its memory limit. `seconds` is the time limit in
        messages.
        """
        own = question.limits.seconds
        try:
            async with asyncio.timeout(None if own is None else own + _GRACE_S):
                return await self._exchange(question)
        except TimeoutError:
            raise TimeLimitError.after(seconds) from None
        except EOFError:
            raise LimitError.of_memory(question.limits.memory) from None

    @property
    def alive(self) -> bool:
        return not self._reader.at_eof()

    async def end(self) -> None:
        """Kill the process and delete its folder, which may hold spilled rows."""
        self._writer.close()
        await self._forks.end(self.pid)
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def _exchange(self, value: object) -> Any:
        text = pickle.dumps(value)
        try:
            self._writer.write(LENGTH.pack(len(text)) + text)
            await self._writer.drain()
            (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return pickle.loads(await self._reader.readexactly(size))
        except (ConnectionError, asyncio.IncompleteReadError):
            raise EOFError from None


def _unstarted() -> StreamhouseError:
    return StreamhouseError(
        "the process that runs queries does not start; see the server's standard error"
    )
