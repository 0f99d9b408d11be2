"""uvicorn protocols with limits: number of connections, size and duration of request headers.

docs/decisions/130-requests-and-responses-are-bounded.md says why.
"""

import asyncio
import ipaddress
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from streamhouse.serve.settings import MAX_HEAD_BYTES, MAX_LINE_BYTES, ConnectionLimits

_ADDRESSES = 4_096


HEAD_S = 10.0
"""Timeout for the head of a request, from its first byte or from the connection's start."""
_MAX_HEAD = 2 * (MAX_HEAD_BYTES + MAX_LINE_BYTES)
_REASONS = {400: "Bad Request", 408: "Request Timeout", 413: "Content Too Large",
            429: "Too Many Requests", 503: "Service Unavailable"}  # fmt: skip


class SilentConnections:
    """The connections without a request: in their TLS handshake, or before their first head.

    There are at most `most`. For one more, the oldest of the client with the most is aborted, so
    that a client with few always has the time that a handshake takes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._clients: dict[object, str] = {}
        self._by_client: dict[str, dict[object, Callable[[], object]]] = {}

    def add(
        self, connection: object, client: tuple[str, int] | None, abort: Callable[[], object]
    ) -> None:
        """Add a connection; aborts another if there are too many."""
        name = self._clients[connection] = client_network(client)
        self._by_client.setdefault(name, {})[connection] = abort
        if len(self._clients) > self._most:
            busiest = max(self._by_client.values(), key=len)
            oldest, abort = next(iter(busiest.items()))
            self.remove(oldest)
            abort()

    def remove(self, connection: object) -> None:
        """Remove a connection that has sent a request, or is closed; a second call does nothing."""
        name = self._clients.pop(connection, None)
        if name is not None:
            del self._by_client[name][connection]
            if not self._by_client[name]:
                del self._by_client[name]


def client_network(client: tuple[str, int] | None) -> str:
    """The address by which clients are counted: an IPv4 address, or the /64 network of an IPv6 one.

    An IPv4-mapped IPv6 address counts as its IPv4 address. Empty if the address is unknown.
    """
    return "" if client is None else _client_network(client[0])


@lru_cache(_ADDRESSES)
def _client_network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address.packed, 64), strict=False))


class HttpConnection(HttpToolsProtocol):
    """One HTTP connection, within `limits`.

    The path and headers of a request must arrive within `HEAD_S`. Beyond 96 KiB of them the
    connection is closed; the middleware applies the smaller limits. The ASGI scope gets
    `streamhouse.abort`, which closes the connection at once, and `streamhouse.watch`, which
    registers a function to call when the client disconnects.
    """

    _timer: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0
    _messages = 0
    _watcher: Callable[[], None] | None = None

    def __init__(
        self, limits: ConnectionLimits, silent: SilentConnections, **uvicorns: Any
    ) -> None:
        super().__init__(**uvicorns)
        self.limits = limits
        self.silent = silent

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.total:
            self._refuse(503, "busy", "the server has too many connections; try again later")
        elif self._exceeds_address_limit():
            self._refuse(
                429,
                "too_many",
                f"your address has more than {self.limits.per_address:,} connections open; close "
                "some, or start the server with a higher --max-per-address",
            )
        else:
            self._start_timer()
            self.silent.add(self.transport, self.client, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.silent.remove(self.transport)
        super().connection_lost(exc)
        watcher = self._watcher
        self.watch(None)
        if watcher is not None:
            watcher()

    def watch(self, watcher: Callable[[], None] | None) -> None:
        """Call the function once when the client disconnects; None unregisters it."""
        self._watcher = watcher

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head and self._timer is None:
            self._start_timer()
        messages = self._messages
        super().data_received(data)
        if self._in_head and self._messages == messages:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD:
                self._refuse(413, "too_large", "the path and headers are too long")

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()
        self.scope["streamhouse.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        self.scope["streamhouse.watch"] = self.watch  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        self.silent.remove(self.transport)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._messages += 1
        self._in_head = True
        self._head_bytes = 0

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Nothing else enforces a send timeout for what is left in the transport's buffer.
        self.loop.call_later(self.limits.send_s, self._cut_unread, self._unsent())

    def _cut_unread(self, before: int) -> None:
        """Abort the connection if the client has read nothing since the last check."""
        unsent = self._unsent()
        if not unsent or not self.cycle.response_complete:
            return
        if unsent >= before:
            self.transport.abort()
        else:
            self.loop.call_later(self.limits.send_s, self._cut_unread, unsent)

    def _unsent(self) -> int:
        return int(self.transport.get_write_buffer_size())

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "bad_request", "this is not an HTTP request")

    def _exceeds_address_limit(self) -> bool:
        """Whether this connection's address has more connections than one address may have."""
        most = self.limits.per_address
        if not most or len(self.connections) <= most:
            return False
        own_network = client_network(self.client)
        clients = (getattr(connection, "client", None) for connection in self.connections)
        return sum(client_network(client) == own_network for client in clients) > most

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEAD_S, self._head_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_timeout(self) -> None:
        self._timer = None
        if not self._head_bytes:
            self.transport.close()
        elif not self.transport.is_closing():
            self._refuse(408, "bad_request", f"the request did not arrive within {HEAD_S:g} s")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Send an error response without calling the application, and close the connection."""
        self._stop_timer()
        if self.cycle is None or self.cycle.response_complete:
            body = json.dumps({"error": {"code": code, "message": message}}).encode()
            head = (
                f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket connection, with `streamhouse.abort` in its ASGI scope."""

    async def run_asgi(self) -> None:
        self.scope["streamhouse.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        await super().run_asgi()
