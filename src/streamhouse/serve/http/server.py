"""Runs the application in uvicorn: the listening socket, startup, and shutdown within 2 seconds."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn

from streamhouse.errors import OptionError
from streamhouse.serve.access_log import LOGGER, logging_to_stderr
from streamhouse.serve.admission.silent_connections import SilentConnections
from streamhouse.serve.http.connections import WebSocketConnection, http_protocol
from streamhouse.serve.http.tls_handshakes import TlsHandshakes

if TYPE_CHECKING:
    from fastapi import FastAPI

    from streamhouse.serve.settings import ServerSettings

_STREAMS_S = 0.4
_GRACE_S = 0.6
"""At shutdown: how long streams, and after them other open responses, have to finish."""
_BACKLOG = 2_048
_SEND_BYTES = 512 << 10
_OTHER_FILES = 512
_MAX_MESSAGE = 4_096
_KEEP_ALIVE_S = 30


def bind(host: str, port: int) -> socket.socket:
    """Open the listening socket; an `OptionError` about the address names the option to change."""
    name = host.removeprefix("[").removesuffix("]")
    try:
        addresses = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror:
        raise OptionError(
            f"option '--host': host '{host}' is unknown; give an address of this machine, such as "
            "127.0.0.1, or 0.0.0.0 for all of them"
        ) from None
    family, _, _, _, address = addresses[0]
    try:
        listening = socket.create_server(address, family=family, backlog=_BACKLOG)
    except OSError as error:
        raise _bind_error(error, host, port) from None
    # Connections inherit the buffer size. By default Linux buffers megabytes for a slow client.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
    return listening


def _bind_error(error: OSError, host: str, port: int) -> OptionError:
    if error.errno == errno.EADDRINUSE:
        return OptionError(
            f"option '--port': {port} on {host} is already in use; choose another port, or "
            "--port 0 for a free one"
        )
    if error.errno == errno.EACCES:
        return OptionError(
            f"option '--port': {port} requires administrator rights; choose a port from 1024 on"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return OptionError(f"option '--host': {host} is not an address of this machine")
    return OptionError(f"option '--port': {port} on {host} cannot be opened: {error.strerror}")


def url_of(host: str, port: int, tls: bool = False) -> str:
    """The URL of a server that listens on a host and a port."""
    address = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "[::]": "[::1]"}.get(host, host)
    if ":" in address and not address.startswith("["):
        address = f"[{address}]"
    return f"{'https' if tls else 'http'}://{address}:{port}"


class HttpServer(uvicorn.Server):
    """Serves until `stop` returns True; calls `ready` once it listens.

    With `handshakes`, the connections are those that these have encrypted.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        stop: Callable[[], bool],
        ready: Callable[[], None],
        handshakes: TlsHandshakes | None,
    ) -> None:
        super().__init__(config)
        self._stop = stop
        self._ready = ready
        self._handshakes = handshakes

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The CLI command handles signals; it knows the exit code of each.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._handshakes is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            self._handshakes.start(sockets or [], self._connection)
        self._ready()

    def _connection(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        state = self.lifespan.state
        return make(config=self.config, server_state=self.server_state, app_state=state)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._stop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        if self._handshakes is not None:
            self._handshakes.close()
        # End the streams first, while their connections are still open.
        end: Callable[[], Any] = self.config.app.state.end  # type: ignore[union-attr]
        try:
            async with asyncio.timeout(_STREAMS_S):
                await end()
                await self._wait_for_streams()
        except TimeoutError:
            LOGGER.warning("some clients were disconnected: they read nothing of their responses")
        await super().shutdown(sockets)

    async def _wait_for_streams(self) -> None:
        """Wait until all streams have ended."""
        while self.config.app.state.streams:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)


def serve(
    app: FastAPI,
    listening: socket.socket,
    settings: ServerSettings,
    stop: Callable[[], bool],
    ready: Callable[[], None],
) -> None:
    """Serve until `stop` returns True; calls `ready` once the server listens."""
    limits = settings.connections
    raise_file_limit(limits.total + limits.silent)
    silent = SilentConnections(limits.silent)
    handshakes = None if settings.tls is None else TlsHandshakes(settings.tls, silent)
    config = uvicorn.Config(
        app,
        http=http_protocol(limits, silent),
        ws=WebSocketConnection,
        ws_max_size=_MAX_MESSAGE,
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    # uvicorn declares an int, but accepts a float.
    config.timeout_graceful_shutdown = _GRACE_S  # type: ignore[assignment]
    with logging_to_stderr(settings.log):
        HttpServer(config, stop, ready, handshakes).run([listening])


def raise_file_limit(connections: int) -> None:
    """Raise the limit of open files for so many connections; print a notice if that fails."""
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        print(
            f"notice: the limit of {allowed} open files is too low for {connections} connections; "
            f"raise it with ulimit -n {needed}",
            file=sys.stderr,
        )
