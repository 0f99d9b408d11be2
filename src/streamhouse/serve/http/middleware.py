"""Outermost ASGI middleware: size and rate limits, default headers, access log and metrics.

Any exception becomes a JSON error response, or closes the connection if a response has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import traceback
from collections.abc import Iterator

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamhouse.errors import NoSpaceError, is_full, is_panic
from streamhouse.options import hide_secrets
from streamhouse.serve.access_log import LOGGER, log_request
from streamhouse.serve.admission.fair_queue import CLIENT, RateLimiter
from streamhouse.serve.admission.response_memory import UnsentResponse, UnsentResponses
from streamhouse.serve.errors import Problem, problem_of
from streamhouse.serve.formats.cells import printable
from streamhouse.serve.http.access_control import check_origin, token_scope
from streamhouse.serve.http.connections import client_network
from streamhouse.serve.http.metrics import Metrics
from streamhouse.serve.http.responses import HEAD
from streamhouse.serve.settings import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    MAX_LINE_BYTES,
    ServerSettings,
)

BODY_S = 30.0
"""Timeout for receiving the body of a request."""
_LOGGED_CHARACTERS = 300
_STREAM = "text/event-stream"
_CHUNK_BYTES = 64 << 10
"""Responses are sent in pieces of this size; at most twice as much is buffered in memory."""


class RequestMiddleware:
    """The outermost ASGI application: limits, default headers, access log and metrics."""

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, metrics: Metrics, unsent: UnsentResponses
    ) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._unsent = unsent
        self._rate = RateLimiter(settings.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send, self._unsent, self._settings.connections.send_s)
        self._metrics.open.inc()
        try:
            try:
                self._check(exchange.scope)
            except Problem as problem:
                await problem.response()(scope, receive, exchange.send)
                return
            with _cancelled_on_disconnect(exchange):
                await self._app(exchange.scope, _bounded(receive, exchange), exchange.send)
        except ClientDisconnect:
            # The client disconnected, so nobody waits for a response.
            return
        except asyncio.CancelledError:
            if exchange.disconnected:
                return
            # The server is shutting down, and has closed the open streams.
            if exchange.status is None:
                ending = Problem("busy", "the server is shutting down; try again later")
                await ending.response()(scope, receive, exchange.send)
            elif not exchange.streams:
                exchange.abort()
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            # Nothing further out could log the error or respond.
            await self._failed(error, scope, receive, exchange)
        finally:
            exchange.close()
            self._metrics.open.dec()
            self._record(exchange)

    def _check(self, scope: Scope) -> None:
        line = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        if line > MAX_LINE_BYTES:
            raise Problem(
                "too_large", f"the path and its parameters are longer than {MAX_LINE_BYTES:,} bytes"
            )
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD_BYTES:
            raise Problem("too_large", f"the headers are longer than {MAX_HEAD_BYTES:,} bytes")
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MAX_BODY_BYTES:
            message = f"the request body is longer than {MAX_BODY_BYTES:,} bytes"
            raise Problem("too_large", message, {"Connection": "close"})
        check_origin(self._settings, _method(scope), headers)
        client = scope[CLIENT] = self._client(scope)
        wait = self._rate.take(client)
        if wait:
            raise Problem(
                "too_many",
                f"more than {self._settings.rate:g} requests a second; wait between requests, or "
                "subscribe to /changes instead of polling",
                {"Retry-After": str(math.ceil(wait))},
            )

    def _client(self, scope: Scope) -> str:
        """The client that rate limits and queues count: a known token, else an address."""
        address = client_network(scope.get("client"))
        if not self._settings.tokens:
            return address
        permissions = token_scope(self._settings, HTTPConnection(scope))
        return address if permissions is None else f"token {permissions.name}"

    async def _failed(
        self, error: BaseException, scope: Scope, receive: Receive, exchange: _Exchange
    ) -> None:
        text = "".join(traceback.format_exception(error))
        LOGGER.error("%s failed:\n%s", printable(scope["path"]), hide_secrets(text.rstrip()))
        if exchange.status is not None:
            exchange.abort()
            return
        problem = Problem("failed", "internal server error; the server's log has the details")
        if is_full(error):
            problem = problem_of(NoSpaceError())
        await problem.response()(scope, receive, exchange.send)

    def _record(self, exchange: _Exchange) -> None:
        scope, status = exchange.scope, exchange.status or 499
        seconds = time.perf_counter() - exchange.began
        # The template, such as `/views/{name}`, which keeps the number of metric labels small.
        route: str = getattr(scope.get("route"), "path", "other")
        method = exchange.method
        self._metrics.requests.labels(route, method, str(status)).inc()
        self._metrics.sent.labels(route).inc(exchange.bytes)
        if not exchange.streams:
            self._metrics.seconds.labels(route).observe(seconds)
        log_request(
            {
                "client": (scope.get("client") or ("-",))[0],
                "token": scope.get("streamhouse.token", ""),
                "method": method,
                "path": printable(scope["path"])[:_LOGGED_CHARACTERS],
                "route": route,
                "status": status,
                "ms": round(seconds * 1000, 1),
                "bytes": exchange.bytes,
            }
        )


class _Exchange:
    """Wraps `send` for one request: counts bytes, adds headers and enforces the send timeout.

    A HEAD is passed to the application as a GET whose body is dropped here.
    """

    def __init__(self, scope: Scope, send: Send, unsent: UnsentResponses, send_s: float) -> None:
        self.method = _method(scope)
        self._head_only = self.method == "HEAD"
        self.scope: Scope = {**scope, "method": "GET", HEAD: True} if self._head_only else scope
        self.status: int | None = None
        self.bytes = 0
        self.streams = scope["type"] == "websocket"
        self.disconnected = False
        """Whether the client has disconnected."""
        self.began = time.perf_counter()
        self._send = send
        self._unsent = unsent
        self._send_s = send_s
        self._response: UnsentResponse | None = None

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            headers = MutableHeaders(scope=message)
            self.streams = self.streams or headers.get("content-type", "").startswith(_STREAM)
            await self._reserve(int(headers.get("content-length", "0")))
            self.status = message["status"]
            headers.setdefault("X-Content-Type-Options", "nosniff")
            headers.setdefault("Cache-Control", "no-store")
            headers.setdefault("Referrer-Policy", "no-referrer")
        elif kind == "websocket.accept":
            self.status = 101
        elif kind == "websocket.close" and self.status is None:
            self.status = 403
        elif kind == "http.response.body":
            await self._send_body({**message, "body": b""} if self._head_only else message)
            return
        self.bytes += len((message.get("text") or "").encode())
        await self._send(message)

    async def _reserve(self, size: int) -> None:
        """Count the response as unsent; if there is no room for it, send an error instead."""
        if self._head_only or self.streams or self.status is not None or not size:
            return
        client = self.scope.get(CLIENT, "")
        try:
            self._response = self._unsent.begin(client, size, self.abort)
        except Problem as problem:
            self._head_only = False
            await problem.response()(self.scope, _disconnected_message, self.send)
            # No handler responds to this class: it only stops the application from sending more.
            raise ClientDisconnect from None

    async def _send_body(self, message: Message) -> None:
        """Send a part of the body in pieces; disconnect a client that stalls on one of them."""
        body = memoryview(message.get("body") or b"")
        if self.streams:
            self.bytes += len(body)
            await self._send(message)
            return
        for start in range(0, max(1, len(body)), _CHUNK_BYTES):
            piece = bytes(body[start : start + _CHUNK_BYTES])
            more = message.get("more_body", False) or start + _CHUNK_BYTES < len(body)
            try:
                async with asyncio.timeout(self._send_s):
                    await self._send({**message, "body": piece, "more_body": more})
            except TimeoutError:
                if self._response is None:
                    self.abort()
                else:
                    self._unsent.abort_stalled(self._response)
                raise ClientDisconnect from None
            self.bytes += len(piece)
            if self._response is not None:
                self._response.sent += len(piece)

    def close(self) -> None:
        """Do not count the response as unsent any more."""
        if self._response is not None:
            self._unsent.finish(self._response)

    def abort(self) -> None:
        """Abort the connection, so that a client cannot take a partial response for a whole one."""
        abort = self.scope.get("streamhouse.abort")
        if abort is not None:
            abort()


async def _disconnected_message() -> Message:
    return {"type": "http.disconnect"}


@contextlib.contextmanager
def _cancelled_on_disconnect(exchange: _Exchange) -> Iterator[None]:
    """Cancel the request's task when its client disconnects."""
    watch = exchange.scope.get("streamhouse.watch")
    task = asyncio.current_task()
    if watch is None or task is None:
        yield
        return

    def disconnected() -> None:
        exchange.disconnected = True
        task.cancel()

    watch(disconnected)
    try:
        yield
    finally:
        watch(None)


def _bounded(receive: Receive, exchange: _Exchange) -> Receive:
    """Wrap `receive`: a body that is too slow, or longer than allowed, ends the request.

    Counts the bytes received, whatever Content-Length says.
    """
    received, complete = 0, False
    deadline = asyncio.get_running_loop().time() + BODY_S

    async def bounded() -> Message:
        nonlocal received, complete
        if complete:
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            if exchange.status is not None:
                return {"type": "http.disconnect"}
            # FastAPI passes this class on unchanged while it reads a body, here and below.
            text = f"the body did not arrive within {BODY_S:g} s"
            raise HTTPException(408, text, {"Connection": "close"}) from None
        complete = not message.get("more_body", False)
        received += len(message.get("body") or b"")
        if received > MAX_BODY_BYTES:
            raise HTTPException(413, headers={"Connection": "close"})
        return message

    return bounded


def _method(scope: Scope) -> str:
    return str(scope.get("method", "WEBSOCKET"))
