"""Forks worker processes for clients' queries from a server that has all modules loaded.

Starting a fresh process takes more than a second of CPU time, and each query that is killed costs
a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
from typing import Protocol

from streamhouse.errors import StreamhouseError

_START_S = 60.0
_END_S = 0.5


class ServerProcess(Protocol):
    """The parent process, as `asyncio` gives it."""

    async def wait(self) -> int: ...
    def kill(self) -> None: ...


async def start_fork_server(control: socket.socket) -> ServerProcess:
    """Start a parent process, which reads commands from `control`."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "streamhouse.serve.queries.worker",
        stdin=control.fileno(),
        env={k: v for k, v in os.environ.items() if k != "STREAMHOUSE_TOKEN"},
        start_new_session=True,
    )


class ForkServer:
    """Forks and kills worker processes through their parent process; on the event loop.

    The parent starts on first use, and again after it died. It exits when this process ends, also
    if this is killed, and then kills its forks.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._control: socket.socket | None = None
        self._parent: ServerProcess | None = None

    async def fork(self) -> tuple[int, socket.socket]:
        """Fork a process; returns its pid and the socket on which it waits for requests."""
        own_end, child_end = socket.socketpair()
        try:
            with child_end:
                pid = await self._request(FORK, 0, [child_end.fileno()])
        except BaseException:
            own_end.close()
            raise
        return pid, own_end

    async def end(self, process: int) -> None:
        """Kill a process and wait until it has ended."""
        try:
            await self._request(END, process)
        except (OSError, StreamhouseError):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    async def close(self) -> None:
        """End the parent and all of its forks."""
        self._close_control()
        if self._parent is not None:
            try:
                async with asyncio.timeout(_END_S):
                    await self._parent.wait()
            except TimeoutError:
                self._parent.kill()
                await self._parent.wait()

    def _close_control(self) -> None:
        """Close the control socket, which makes the parent kill its forks and exit."""
        if self._control is not None:
            self._control.close()
            self._control = None

    async def _request(self, kind: bytes, process: int, files: list[int] | None = None) -> int:
        """Send a command to the parent and return its reply; `OSError` if the parent has died."""
        async with self._lock:
            if self._control is None:
                if kind == END:
                    raise ConnectionError
                await self._start()
            assert self._control is not None
            loop = asyncio.get_running_loop()
            message = MESSAGE.pack(kind, process)
            try:
                socket.send_fds(self._control, [message], files or [])
                async with asyncio.timeout(_START_S):
                    reply = await loop.sock_recv(self._control, NUMBER.size)
                if len(reply) < NUMBER.size:
                    raise ConnectionError
            except BaseException:
                # Otherwise the late reply would be read as the reply to the next command.
                self._close_control()
                raise
            pid: int = NUMBER.unpack(reply)[0]
            return pid

    async def _start(self) -> None:
        own_end, child_end = socket.socketpair()
        own_end.setblocking(False)
        with child_end:
            self._parent = await start_fork_server(child_end)
        self._control = own_end


LENGTH = struct.Struct("!Q")
"""Length prefix of the messages between the server and a worker."""
MESSAGE = struct.Struct("!cq")
FORK, END = b"F", b"E"
"""Commands of the server to the parent: fork a worker for the socket sent along; kill a pid."""
NUMBER = struct.Struct("!q")
"""The parent's reply: the pid."""
LONG_S = 1.0
"""A query that runs longer gets a lower priority, and its process is not reused."""
