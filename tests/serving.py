"""A real server for tests: `streamhouse.serve` in a thread, on a free port of this machine."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from tests.waiting import DEADLINE_S
from websockets.sync.client import ClientConnection, connect

from streamhouse.serve.http.app import create_app
from streamhouse.serve.http.server import bind, serve, url_of
from streamhouse.serve.settings import ServerSettings


@contextlib.contextmanager
def servers(warehouse: Path) -> Iterator[Callable[..., Serving]]:
    """What starts servers over a warehouse, with other settings if they are given; they end with
    the `with`."""
    started: list[Serving] = []

    def start(**settings: Any) -> Serving:
        started.append(Serving(warehouse, **settings))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.close()


class Serving:
    """A server, until `close`; `settings` are those of `ServerSettings` besides the warehouse.

    With `trust`, which knows its certificate, it is asked over TLS; `tls` must be set then.
    """

    def __init__(
        self, warehouse: Any, trust: ssl.SSLContext | None = None, **settings: Any
    ) -> None:
        given = {"log": "off", "rate": 0.0, "port": 0, "query_s": DEADLINE_S, **settings}
        self._trust = trust
        self.settings = ServerSettings({"warehouse": str(warehouse)}, **given)
        listening = bind("127.0.0.1", self.settings.port)
        self.port: int = listening.getsockname()[1]
        self.app = create_app(self.settings)
        self._ending = threading.Event()
        ready = threading.Event()
        self._thread = threading.Thread(
            target=serve,
            args=(self.app, listening, self.settings, self._ending.is_set, ready.set),
        )
        self._thread.start()
        assert ready.wait(DEADLINE_S)
        self.http = self.new_client()

    def new_client(self) -> httpx.Client:
        """A client with connections of its own."""
        verify = self._trust or True
        return httpx.Client(base_url=self.url, timeout=DEADLINE_S, trust_env=False, verify=verify)

    @property
    def url(self) -> str:
        return url_of("127.0.0.1", self.port, self.settings.tls is not None)

    def end(self) -> None:
        """Ask for the end, without waiting for it."""
        self._ending.set()

    def close(self) -> None:
        self.http.close()
        self._ending.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        return self.http.get(path, params=parameters)

    def rows(self, view: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of a view, as JSON objects."""
        answer = self.get(f"/views/{view}", **parameters)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["rows"]
        return found

    def sql(self, text: str) -> httpx.Response:
        # Escaped by hand: a client may send what its own library would not.
        body, kind = json.dumps({"sql": text}), {"Content-Type": "application/json"}
        return self.http.post("/sql", content=body, headers=kind)

    @contextlib.contextmanager
    def stream(self, path: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
        """Server-sent events: the objects, with `id` and `event` in them."""
        with self.http.stream("GET", path, headers=headers) as answer:
            if answer.status_code != 200:
                answer.read()
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield events(answer.iter_lines())

    def socket(self, path: str, **arguments: Any) -> ClientConnection:
        """A WebSocket on a path of the server."""
        url = f"ws{self.url.removeprefix('http')}{path}"
        given: dict[str, Any] = {"open_timeout": DEADLINE_S, "proxy": None, "ssl": self._trust}
        opened: ClientConnection = connect(url, **{**given, **arguments})
        return opened


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The events of a stream's lines, heartbeats left out."""
    found: dict[str, Any] = {}
    for line in lines:
        if line:
            key, _, value = line.partition(": ")
            found |= json.loads(value) if key == "data" else {key: value}
        elif found:
            if found["event"] != "heartbeat":
                yield found
            found = {}


def problem(answer: httpx.Response, status: int, code: str) -> str:
    """The message of an answer that must be this error."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["code"] == code
    assert "Traceback" not in answer.text
    message: str = error["message"]
    return message


def certificate(folder: Path, name: str = "server") -> tuple[str, str]:
    """The files of a new certificate of this machine that vouches for itself, and of its key."""
    cert, key = folder / f"{name}.cert.pem", folder / f"{name}.key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        [*command.split(), *subject, "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    return str(cert), str(key)
