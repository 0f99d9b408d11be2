"""TLS of a server with a certificate of its own: its context, and handshakes with a deadline."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import NoReturn

from streamhouse.errors import OptionError
from streamhouse.serve.admission.silent_connections import SilentConnections


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
