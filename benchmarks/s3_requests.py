"""A private S3 server that records its requests.

`python benchmarks/s3_requests.py FILE PORT` is `streamhouse.demo.s3_server` with each request as a
line of JSON in the file (`S3Request`).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from streamhouse.demo.s3_server import Application, S3Server, serve


def recording_server(requests: Path) -> S3Server:
    """A server that records its requests in a file."""
    return S3Server(program=(__file__, str(requests)))


@dataclass(frozen=True)
class S3Request:
    """One request: `began` in epoch seconds, and the seconds until its response was complete.

    `path` has the bucket and the key. `port` is the client's, which identifies a connection.
    """

    began: float
    seconds: float
    method: str
    path: str
    query: str
    status: int
    agent: str
    port: int

    @property
    def ended(self) -> float:
        """When the response was complete, in epoch seconds."""
        return self.began + self.seconds


def recorded(app: Application, file: TextIO) -> Application:
    """A WSGI application that does what `app` does, and writes each request as a line of JSON."""
    lock = threading.Lock()

    def application(environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        began, clock, status = time.time(), time.perf_counter(), [""]

        def started(line: str, *rest: Any) -> Any:
            status[0] = line
            return start(line, *rest)

        body = app(environ, started)
        try:
            parts = list(body)
        finally:
            if hasattr(body, "close"):
                body.close()
        request = S3Request(
            began,
            time.perf_counter() - clock,
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            environ.get("QUERY_STRING", ""),
            int(status[0].split()[0]),
            environ.get("HTTP_USER_AGENT", ""),
            int(environ.get("REMOTE_PORT", 0)),
        )
        with lock:
            file.write(json.dumps(asdict(request)) + "\n")
        return parts

    return application


def read_requests(path: Path) -> Iterator[S3Request]:
    """The requests that a server has recorded in a file, in the order of their responses."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield S3Request(**json.loads(line))


if __name__ == "__main__":
    file = open(sys.argv[1], "w", buffering=1, encoding="utf-8")
    serve(int(sys.argv[2]), lambda app: recorded(app, file))
