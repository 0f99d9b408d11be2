"""Clients that do not read their responses: their buffered bytes are bounded and freed."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tests.serving import Serving, servers
from tests.unit.conftest import Shop
from tests.waiting import DEADLINE_S, until

from streamhouse.serve.http import server as server_module
from streamhouse.serve.settings import ConnectionLimits
from streamhouse.sql.plan import Column

WIDE = (Column("id", "BIGINT"), Column("name", "STRING"), Column("v", "DOUBLE"))
MIB = 1 << 20
Serve = Callable[..., Serving]
SEND_S = 2.0


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shop = Shop(tmp_path_factory.mktemp("slow") / "warehouse")
    shop.write(shop.sales(), ("Chad", 1, 1.5), ("Peru", 2, 2.5))
    shop.write(shop.create("some", WIDE), *((n, f"name {n}", n / 2) for n in range(15_000)))
    shop.write(shop.create("big", WIDE), *((n, f"name {n}", n / 2) for n in range(200_000)))
    return shop.path


@pytest.fixture
def serve(warehouse: Path) -> Iterator[Serve]:
    with servers(warehouse) as start:
        yield start


def figure(server: Serving, name: str) -> float:
    text = server.get("/metrics").text
    found = re.search(rf"^streamhouse_{name} (.*)$", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


@contextlib.contextmanager
def half_read(server: Serving, path: str, count: int, head: str = "") -> Iterator[list[bytes]]:
    """The heads of answers that nobody reads on."""
    address = httpx.URL(server.url)
    with contextlib.ExitStack() as opened:
        connections = []
        for _ in range(count):
            connection = opened.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.settimeout(DEADLINE_S)
            connection.connect((address.host, address.port))
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
            connections.append(connection)
        yield [connection.recv(600) for connection in connections]


def test_unread_responses_are_bounded(serve: Serve) -> None:
    server = serve(unsent_bytes=32 * MIB, connections=ConnectionLimits(send_s=DEADLINE_S))
    with half_read(server, "/views/shop.big", 12) as heads:
        answers = [head.split(b"\r\n", 1)[0] for head in heads]
        refused = [head for head in heads if head.startswith(b"HTTP/1.1 503")]
        assert b"HTTP/1.1 200 OK" in answers and refused, answers
        assert all(b"retry-after: " in head.lower() for head in refused)
        assert MIB < figure(server, "answer_bytes") <= 32 * MIB
        assert server.get("/views/shop.sales").status_code == 200
    until(lambda: figure(server, "answer_bytes") == 0)


def test_clients_that_read_nothing_are_disconnected(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_KEEP_ALIVE_S", 2)
    paths = ("/views/shop.big", "/views/shop.some")
    cases = list(itertools.product(paths, ("", "Connection: close\r\n")))
    server = serve(connections=ConnectionLimits(send_s=SEND_S))
    with contextlib.ExitStack() as opened:
        for path, head in cases:
            heads = opened.enter_context(half_read(server, path, 1, head))
            assert all(one.startswith(b"HTTP/1.1 200") for one in heads), (path, head)
        until(lambda: figure(server, "answers") == 0)
        until(lambda: established(server) == 0)


def test_slow_client_is_disconnected_for_others(serve: Serve) -> None:
    server = serve(unsent_bytes=12 * MIB, connections=ConnectionLimits(send_s=DEADLINE_S))
    with half_read(server, "/views/shop.big", 1) as heads:
        assert heads[0].startswith(b"HTTP/1.1 200")
        until(lambda: server.get("/views/shop.big").status_code == 200)
        assert figure(server, "answers_cut") == 1


def established(server: Serving) -> int:
    """How many connections with something left to send the server still has."""
    port = f":{httpx.URL(server.url).port:04X}"
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        waiting = int(fields[4].split(":")[0], 16)
        found += fields[1].endswith(port) and fields[3] == "01" and waiting > 0
    return found
