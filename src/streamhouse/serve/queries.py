"""Runs questions: those with a client's SQL in processes of their own, a few at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import shutil
import sys
import tempfile
import time
import uuid
from typing import TYPE_CHECKING, Any

from streamhouse.errors import LimitError, SqlError, StreamhouseError
from streamhouse.serve.answers import UnexpectedError, answer
from streamhouse.serve.limits import Turns
from streamhouse.serve.logs import LOGGER
from streamhouse.serve.pool import WarehousePool
from streamhouse.serve.question import Question, Told

if TYPE_CHECKING:
    from streamhouse.serve.metrics import Metrics
    from streamhouse.serve.settings import ServerSettings

_READERS = 2
_START_S = 60.0
_GRACE_S = 1.0
"""How long after its time a query may take to say itself that it was too long."""
_LENGTH = 8


class Queries:
    """Answers questions for the routes of one server.

    A question without any text of a client's is answered by a thread. Others wait for their turn,
    and go to a process that is killed when it takes too long or too much.
    """

    def __init__(self, settings: ServerSettings, pool: WarehousePool, metrics: Metrics) -> None:
        self._settings = settings
        self._pool = WarehousePool(settings.warehouse, _READERS)
        self._turns = Turns(settings.queries, settings.query_s)
        self._idle: list[_Worker] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._metrics = metrics
        self._folder = ""

    def start(self, folder: str) -> None:
        """Take questions, whose answers lie in the folder until they were sent."""
        self._folder = folder

    def path(self) -> str:
        """The name of a new file for an answer."""
        return os.path.join(self._folder, uuid.uuid4().hex)

    async def run(self, question: Question) -> Told:
        """The answer; errors as `answers.answer` raises them."""
        if question.trusted:
            return await self._pool.run(lambda warehouse: answer(warehouse, question))
        started, outcome = time.perf_counter(), "failed"
        try:
            async with self._turns.turn():
                told = await self._asked(question)
            outcome = "answered"
            return told
        except LimitError:
            outcome = "limited"
            raise
        finally:
            self._metrics.queries.labels(outcome).inc()
            self._metrics.query_seconds.observe(time.perf_counter() - started)

    async def close(self) -> None:
        """End the processes; what they work on is lost."""
        self._pool.close()
        while self._idle:
            self._end(self._idle.pop())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await asyncio.gather(*self._ending)

    def _end(self, worker: _Worker) -> None:
        """End a process at once; what it has left is deleted when it is gone."""
        worker.kill()
        task = asyncio.get_running_loop().create_task(worker.swept())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    @staticmethod
    def _unexpected(error: UnexpectedError) -> SqlError:
        LOGGER.error("a query failed unexpectedly:\n%s", error.trace)
        return SqlError(str(error))

    async def _asked(self, question: Question) -> Told:
        worker = await self._worker()
        try:
            found = await worker.ask(question)
        except BaseException:
            # Cancelled or cut off in the middle: it is of no more use, nor is what it wrote.
            self._end(worker)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(question.target.path)
            raise
        if isinstance(found, LimitError | UnexpectedError):
            # What it took may not all come back; the next query begins with a fresh one.
            self._end(worker)
        else:
            self._idle.append(worker)
        if isinstance(found, UnexpectedError):
            raise self._unexpected(found)
        if isinstance(found, StreamhouseError):
            raise found
        assert isinstance(found, Told)
        return found

    async def _worker(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            # It died while it had nothing to do, which is not for the next query to be told.
            self._end(worker)
        folder = tempfile.mkdtemp(prefix="worker-", dir=self._folder)
        return await _Worker.start(self._settings, folder)


class _Worker:
    """One process of `streamhouse.serve.worker`; what it writes aside is in a folder of its own."""

    def __init__(self, process: asyncio.subprocess.Process, folder: str) -> None:
        self._process = process
        self.folder = folder

    @classmethod
    async def start(cls, settings: ServerSettings, folder: str) -> _Worker:
        """A process that is ready for questions."""
        environment = {k: v for k, v in os.environ.items() if k != "STREAMHOUSE_TOKEN"}
        environment["TMPDIR"] = folder
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "streamhouse.serve.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        worker = cls(process, folder)
        try:
            async with asyncio.timeout(_START_S):
                await worker._exchange((dict(settings.warehouse), settings.query_memory))
        except (TimeoutError, EOFError):
            worker.kill()
            raise StreamhouseError(
                "the process that runs queries does not start; see what it wrote to standard error"
            ) from None
        except BaseException:
            worker.kill()
            raise
        return worker

    async def ask(self, question: Question) -> Any:
        """What the process answers; `LimitError` where it had to be killed, or died of memory."""
        seconds = question.limits.seconds
        try:
            async with asyncio.timeout(None if seconds is None else seconds + _GRACE_S):
                return await self._exchange(question)
        except TimeoutError:
            raise LimitError(
                f"the query took longer than {seconds:g} s; ask for fewer rows or columns, or "
                "filter earlier"
            ) from None
        except EOFError:
            raise LimitError(
                f"the query needs more memory than {question.limits.memory}; ask for fewer rows "
                "or columns, or filter earlier"
            ) from None

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def swept(self) -> None:
        """Wait for its end, and delete what it has left: rows that a query had spilled."""
        await self._process.wait()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def _exchange(self, value: object) -> Any:
        writer, reader = self._process.stdin, self._process.stdout
        assert writer is not None and reader is not None
        text = pickle.dumps(value)
        try:
            writer.write(len(text).to_bytes(_LENGTH, "big") + text)
            await writer.drain()
            size = int.from_bytes(await reader.readexactly(_LENGTH), "big")
            return pickle.loads(await reader.readexactly(size))
        except (ConnectionError, asyncio.IncompleteReadError):
            raise EOFError from None
