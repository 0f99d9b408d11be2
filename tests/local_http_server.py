"""An HTTP server on a free port of this machine, in threads of the test's process."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from tests.waiting import DEADLINE_S


class LocalHttpServer:
    """Serves requests by a handler while the `with` lasts."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], address: str = "127.0.0.1") -> None:
        # A header and its body are two packets: a client would acknowledge the first after 40 ms.
        handler.disable_nagle_algorithm = True
        self._server = ThreadingHTTPServer((address, 0), handler)
        self._server.daemon_threads = True
        # It looks this often, in seconds, whether it is to end.
        arguments = {"poll_interval": 0.02}
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs=arguments, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://{self._server.server_address[0]!s}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(DEADLINE_S)
