"""An HTTP proxy in front of the S3 server that injects faults."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from tests.local_http_server import LocalHttpServer
from tests.waiting import DEADLINE_S, until

from streamhouse.paimon.storage.object_store.parallel import THREADS, submit


class Fault(Enum):
    """What happens to a request."""

    REFUSED = "answered by 500, not done"
    REFUSED_AFTER = "done, but answered by 500"
    CUT_BEFORE = "the connection ends before it is done"
    CUT_AFTER = "done, but the connection ends without an answer"
    TORN = "the connection ends in the middle of its body or of its answer"
    SLOW = "done after a second, or the `pause` of the proxy"


@dataclass(frozen=True)
class Request:
    """A request as faults are chosen by it; `number` counts all requests."""

    number: int
    method: str
    path: str


Choose = Callable[[Request], Fault | None]


class FaultyProxy(LocalHttpServer):
    """Forwards to a port of this machine, with the faults that `choose` returns.

    `address` is the one on which it listens.
    """

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self.choose: Choose = lambda request: None
        self.pause: Callable[[], object] = partial(time.sleep, 1.0)
        """What a slow request waits for."""
        self.injected: list[tuple[Fault, str]] = []
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            owner, target = proxy, port

        super().__init__(Handler, address)

    def fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            request = Request(len(self.requests), method, path)
            self.requests.append(request)
            fault = self.choose(request)
            if fault is not None:
                self.injected.append((fault, f"{method} {path}"))
        return fault

    def record_kinds(self) -> list[str]:
        """Record the requests from now on, as method and kind of object, into the returned list.

        Without those of schemas, which are compared every two seconds, and of the hint `LATEST`,
        which is written in the background. Waits for the release of earlier locks first.
        """
        self.await_released()
        seen: list[str] = []

        def note(request: Request) -> None:
            name = request.path.partition("?")[0].rpartition("/")[2]
            kinds = (kind for kind in ("manifest", ".compaction") if name.startswith(kind))
            kind = "data" if name.endswith("parquet") else next(kinds, name)
            if not name.startswith(("schema", "LATEST")):
                seen.append(f"{request.method} {kind}")

        self.choose = note
        return seen

    def await_released(self) -> None:
        """Wait for what commits do in the background: releases of locks, and hints of this process.

        Each thread of the pool for requests takes one call, which ends once all threads have one,
        so all earlier calls have ended.
        """
        barrier = threading.Barrier(THREADS)
        wait([submit(barrier.wait) for _ in range(THREADS)], DEADLINE_S)

        def count(method: str) -> int:
            with self._lock:
                locks = [
                    request for request in self.requests if request.path.endswith("/.commit-lock")
                ]
            return sum(lock.method == method for lock in locks)

        until(lambda: count("PUT") <= count("DELETE"))


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FaultyProxy
    target: int

    def _do(self) -> None:
        # The client may have gone away meanwhile.
        with contextlib.suppress(ConnectionError):
            self._respond()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _do

    def _respond(self) -> None:
        fault = self.owner.fault(self.command, self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        cut_upload = fault is Fault.TORN and bool(body)
        if fault is Fault.CUT_BEFORE or cut_upload:
            self._cut()
        elif fault is Fault.REFUSED:
            self._answer(500, [], b"")
        else:
            if fault is Fault.SLOW:
                self.owner.pause()
            status, headers, answer = self._forwarded(body)
            if fault is Fault.CUT_AFTER:
                self._cut()
            elif fault is Fault.REFUSED_AFTER:
                self._answer(500, [], b"")
            else:
                self._answer(status, headers, answer, truncated=fault is Fault.TORN)

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=DEADLINE_S)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, truncated: bool = False
    ) -> None:
        head = self.command == "HEAD"
        self.send_response_only(status)
        for name, value in headers:
            own = name.lower() in ("transfer-encoding", "connection", "content-length")
            if not own or (head and name.lower() == "content-length"):
                self.send_header(name, value)
        if not head and status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if truncated and body:
            self.wfile.write(body[: len(body) // 2])
            self._cut()
        elif not head:
            self.wfile.write(body)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        pass
