"""Runs the application in uvicorn: the sockets, TLS, startup, and shutdown within 2 seconds."""

import asyncio
import contextlib
import errno
import resource
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import NoReturn, cast

import uvicorn
from fastapi import FastAPI

from streamhouse.errors import OptionError
from streamhouse.serve.access_log import LOGGER, logging_to_stderr
from streamhouse.serve.http.connections import (
    HttpConnection,
    SilentConnections,
    WebSocketConnection,
)
from streamhouse.serve.settings import ServerSettings

HANDSHAKE_S = 10.0
"""Timeout for a handshake."""
_PAUSE_S = 0.2
"""How long to wait before the next connection if the system has no more open files."""
_STREAMS_S = 0.4
_GRACE_S = 0.6
"""At shutdown: how long streams, and after them other open responses, have to finish."""
_BACKLOG = 2_048
_SEND_BYTES = 512 << 10
_OTHER_FILES = 512
_MAX_MESSAGE = 4_096
_KEEP_ALIVE_S = 30


def tls_context(cert: str, key: str) -> ssl.SSLContext:
    """The server's TLS context, from the PEM files of its certificate and its private key.

    The certificate's file may hold the intermediate certificates after it. The minimum is TLS 1.2.
    Raises `OptionError` for files that are not in PEM, do not match, or need a password.
    """
    for option, path in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            open(path, "rb").close()
        except OSError as error:
            raise OptionError(
                f"option '{option}': {path} cannot be read: {error.strerror}"
            ) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A client that reads in a thread of its own, as Python's websockets does, reads the session
    # tickets of TLS 1.3 while it sends its request. OpenSSL does not allow both at once: one of
    # 1,600 connections ended before its first response. A full handshake takes a millisecond.
    context.num_tickets = 0

    def reject_password() -> NoReturn:
        raise OptionError(
            f"option '--tls-key': {key} is encrypted; give a key without a password, such as "
            f"`openssl pkey -in {key}` writes"
        )

    try:
        context.load_cert_chain(cert, key, reject_password)
    except ssl.SSLError as error:
        raise _tls_error(error, cert, key) from None
    return context


def _tls_error(error: ssl.SSLError, cert: str, key: str) -> OptionError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return OptionError(f"option '--tls-key': {key} is not the key of the certificate in {cert}")
    return OptionError(
        f"options '--tls-cert' and '--tls-key': {cert} and {key} are not a certificate and its "
        "private key in PEM, which begin with -----BEGIN"
    )


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
        parts = self.config.app.state  # type: ignore[union-attr]
        try:
            async with asyncio.timeout(_STREAMS_S):
                await parts.hub.close()
                while parts.streams:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            LOGGER.warning("some clients were disconnected: they read nothing of their responses")
        await super().shutdown(sockets)


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
        http=cast("type[HttpConnection]", partial(HttpConnection, limits, silent)),
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
