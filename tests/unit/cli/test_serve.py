"""`streamhouse serve` as a user runs it: from its first line to its end."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.processes import Command
from tests.serving import certificate
from tests.waiting import DEADLINE_S, looks
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect


class Serve:
    """A running `streamhouse serve`."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self._errors = folder / "stderr"
        self._port = folder / "port"
        words = ["serve", "--port", "0", "--port-file", str(self._port), *arguments]
        with self._errors.open("w") as errors:
            said = errors.fileno()
            self.process = Command(words, said, said, environment)

    @property
    def said(self) -> str:
        return self._errors.read_text()

    def port(self) -> int:
        """The port, once it listens."""
        for _ in looks(lambda: self.said):
            if self._port.exists():
                break
            assert self.process.poll() is None, self.said
        return int(self._port.read_text())

    def announces(self, text: str) -> None:
        """Wait until it has said that, which it does once the port is in its file."""
        for _ in looks(lambda: self.said):
            if text in self.said:
                break
            assert self.process.poll() is None, self.said

    def end(self, number: signal.Signals) -> int:
        """The exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def commands() -> Iterator[list[Serve]]:
    started: list[Serve] = []
    yield started
    for one in started:
        one.process.kill()
        one.process.wait(DEADLINE_S)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_server_stops_while_readers_are_connected(
    shop: Any, tmp_path: Path, commands: list[Serve], number: signal.Signals, code: int
) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5))
    commands.append(Serve(tmp_path, "--warehouse", str(shop.path)))
    port = commands[0].port()
    base = f"http://127.0.0.1:{port}"
    commands[0].announces(f"Streamhouse serves {shop.path} at {base} (Ctrl-C ends)")
    rows = httpx.get(f"{base}/views/{table}", timeout=DEADLINE_S, trust_env=False).json()["rows"]
    assert rows == [{"country": "Chad", "orders": 1, "revenue": 1.5}]
    with connect(
        f"ws://127.0.0.1:{port}/views/{table}/changes", open_timeout=DEADLINE_S, proxy=None
    ) as reader:
        reader.recv(timeout=DEADLINE_S)
        assert commands[0].end(number) == code, commands[0].said
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                reader.recv(timeout=DEADLINE_S)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
    assert "Traceback" not in commands[0].said
    assert not (tmp_path / "port").exists()


def test_tokens_come_from_the_environment_and_stay_there(
    shop: Any, tmp_path: Path, commands: list[Serve]
) -> None:
    commands.append(
        Serve(tmp_path, "--warehouse", str(shop.path), STREAMHOUSE_TOKEN="hidden-token")
    )
    base = f"http://127.0.0.1:{commands[0].port()}"
    with httpx.Client(base_url=base, timeout=DEADLINE_S, trust_env=False) as client:
        assert client.get("/views").status_code == 401
        auth = {"Authorization": "Bearer hidden-token"}
        assert client.get("/views", headers=auth).json() == {"views": []}
    assert "hidden-token" not in commands[0].said


def refused(tmp_path: Path, *arguments: str) -> str:
    """What is said by a command that does not start."""
    with (tmp_path / "refusal").open("w+") as errors:
        said = errors.fileno()
        code = Command(["serve", *arguments], said, said, folder=tmp_path).wait(DEADLINE_S)
        errors.seek(0)
        text = errors.read()
    assert code == 1, text
    assert "Traceback" not in text
    return " ".join(text.split())


def test_invalid_options_prevent_the_start(shop: Any, tmp_path: Path) -> None:
    warehouse = ("--warehouse", str(shop.path))
    assert "there is no warehouse at 'none'" in refused(tmp_path, "--warehouse", "none")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = refused(tmp_path, *warehouse, "--port", port)
        assert f"option '--port': {port} on 127.0.0.1 is already in use" in message
    message = refused(tmp_path, *warehouse, "--host", "0.0.0.0", "--port", "0")
    assert "could read the tables; create a token with `openssl rand -hex 32" in message
    (tmp_path / "views.yaml").write_text("views: [{name: shop.x, titel: y}]")
    message = refused(tmp_path, *warehouse, "--views", "views.yaml")
    assert "did you mean 'title'?" in message


def test_neither_the_server_nor_its_queries_load_spark_or_a_jvm() -> None:
    program = (
        "import sys\n"
        "import streamhouse.cli.commands.servers.serve\n"
        "import streamhouse.serve.http.app, streamhouse.serve.http.server\n"
        "import streamhouse.serve.queries.worker, streamhouse.serve.queries.client_select\n"
        "import streamhouse.serve.queries.view_rows\n"
        "import streamhouse.serve.feeds.view_feed, streamhouse.serve.queries.view_details\n"
        "print({'pyspark', 'py4j', 'pypaimon'} & {name.split('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


def test_the_server_supports_tls(shop: Any, tmp_path: Path, commands: list[Serve]) -> None:
    cert, key = certificate(tmp_path)
    warehouse = ("--warehouse", str(shop.path))
    commands.append(Serve(tmp_path, *warehouse, "--tls-cert", cert, "--tls-key", key))
    base = f"https://127.0.0.1:{commands[0].port()}"
    commands[0].announces(f"Streamhouse serves {shop.path} at {base} (Ctrl-C ends)")
    trust = ssl.create_default_context(cafile=cert)
    with httpx.Client(base_url=base, timeout=DEADLINE_S, trust_env=False, verify=trust) as client:
        assert client.get("/views").json() == {"views": []}
        assert commands[0].end(signal.SIGTERM) == 0, commands[0].said
    assert "Traceback" not in commands[0].said
    for given, missing in ((("--tls-cert", cert), "key"), (("--tls-key", key), "cert")):
        message = refused(tmp_path, *warehouse, "--port", "0", *given)
        assert f"option '--tls-{missing}' is missing" in message
