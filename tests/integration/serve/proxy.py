"""A proxy between a browser and a server that blocks WebSockets."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

_REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CHUNK = 65_536


class Proxy(socketserver.ThreadingTCPServer):
    """Forwards connections to a port of this machine.

    While nobody listens there, connections are closed. Requests have to come in one piece, as those
    of browsers do; `refused` counts those for a WebSocket.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.to = ("127.0.0.1", port)
        self.refused = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Connection(socketserver.BaseRequestHandler):
    """One connection of the browser's, until either side ends it."""

    server: Proxy

    def handle(self) -> None:
        client: socket.socket = self.request
        with contextlib.suppress(OSError), socket.create_connection(self.server.to) as server:
            back = threading.Thread(target=_pass_on, args=(server, client))
            back.start()
            try:
                while chunk := client.recv(_CHUNK):
                    if b"upgrade: websocket" in chunk.lower():
                        self.server.refused += 1
                        client.sendall(_REFUSED)
                        return
                    server.sendall(chunk)
            finally:
                _end(server)
                back.join()


def _pass_on(server: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := server.recv(_CHUNK):
            client.sendall(chunk)
    _end(client)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def without_sockets(port: int) -> Iterator[Proxy]:
    """A running proxy before a port."""
    with Proxy(port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
