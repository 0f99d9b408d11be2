"""Accepts connections over TLS; a handshake counts as a silent connection, and has a deadline.

docs/decisions/249-shares-of-connections-and-streams.md says why.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence

from streamhouse.serve.admission.silent_connections import SilentConnections

HANDSHAKE_S = 10.0
"""Timeout for a handshake."""
_PAUSE_S = 0.2
"""How long to wait before the next connection if the system has no more open files."""


class TlsHandshakes:
    """The TLS handshakes of a server: each connection is given to its protocol after its own."""

    def __init__(self, context: ssl.SSLContext, silent: SilentConnections) -> None:
        self._context = context
        self._silent = silent
        self._tasks: set[asyncio.Task[None]] = set()

    def start(
        self, listening: Sequence[socket.socket], connection: Callable[[], asyncio.Protocol]
    ) -> None:
        """Accept connections of these sockets; `connection` makes the protocol of one."""
        for each in listening:
            each.setblocking(False)
            self._start(self._accept(each, connection))

    def close(self) -> None:
        """Accept no more connections, and end the handshakes."""
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(
        self, listening: socket.socket, connection: Callable[[], asyncio.Protocol]
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                opened, client = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            handshake = self._start(self._shake_hands(opened, connection))
            self._silent.add(handshake, client, handshake.cancel)
            handshake.add_done_callback(self._silent.remove)

    async def _shake_hands(
        self, opened: socket.socket, connection: Callable[[], asyncio.Protocol]
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                connection, opened, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S
            )
        except BaseException as error:
            opened.close()
            if not isinstance(error, OSError):
                raise
