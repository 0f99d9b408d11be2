"""Clients that do not read their responses: their buffered bytes are bounded and freed."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.integration.serve.server import Server
from tests.unit.conftest import Shop

from streamhouse.sql.plan import Column

WIDE = (Column("id", "BIGINT"), Column("name", "STRING"), Column("v", "DOUBLE"))
MIB = 1 << 20
DEADLINE_S = 90.0
SEND_S = 2.0


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shop = Shop(tmp_path_factory.mktemp("slow") / "warehouse")
    shop.write(shop.sales(), ("Chad", 1, 1.5), ("Peru", 2, 2.5))
    shop.write(shop.create("some", WIDE), *((n, f"name {n}", n / 2) for n in range(15_000)))
    shop.write(shop.create("big", WIDE), *((n, f"name {n}", n / 2) for n in range(200_000)))
    return shop.path


def figure(server: Server, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics", trust_env=False, timeout=DEADLINE_S).text
    found = re.search(rf"^streamhouse_{name} (.*)$", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


@contextlib.contextmanager
def half_read(server: Server, path: str, count: int, head: str = "") -> Iterator[list[bytes]]:
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


def until(what: str, server: Server, name: str, value: float, seconds: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + seconds
    while (found := figure(server, name)) != value:
        assert time.monotonic() < deadline, f"{what}: {name} is {found}"
        time.sleep(0.1)


def test_unread_responses_are_bounded(warehouse: Path, tmp_path: Path) -> None:
    with Server(warehouse, tmp_path, "--answers", "32MB", "--send-timeout", "60s") as server:
        with half_read(server, "/views/shop.big", 12) as heads:
            answers = [head.split(b"\r\n", 1)[0] for head in heads]
            refused = [head for head in heads if head.startswith(b"HTTP/1.1 503")]
            assert b"HTTP/1.1 200 OK" in answers and refused, answers
            assert all(b"retry-after: " in head.lower() for head in refused)
            assert MIB < figure(server, "answer_bytes") <= 32 * MIB
            small = httpx.get(f"{server.url}/views/shop.sales", trust_env=False, timeout=DEADLINE_S)
            assert small.status_code == 200
        until("those that have gone", server, "answer_bytes", 0)


def test_clients_that_read_nothing_are_disconnected(warehouse: Path, tmp_path: Path) -> None:
    """At the same time, since the server closes a connection that is kept after 30 s."""
    paths = ("/views/shop.big", "/views/shop.some")
    cases = list(itertools.product(paths, ("", "Connection: close\r\n")))
    with (
        Server(warehouse, tmp_path, "--send-timeout", f"{SEND_S:g}s") as server,
        contextlib.ExitStack() as opened,
    ):
        for path, head in cases:
            heads = opened.enter_context(half_read(server, path, 3, head))
            assert all(one.startswith(b"HTTP/1.1 200") for one in heads), (path, head)
        until("answers", server, "answers", 0, 20)
        deadline = time.monotonic() + 50
        while established(server) > 0:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_slow_client_is_disconnected_for_others(warehouse: Path, tmp_path: Path) -> None:
    with Server(warehouse, tmp_path, "--answers", "12MB", "--send-timeout", "60s") as server:
        large = f"{server.url}/views/shop.big"
        with half_read(server, "/views/shop.big", 1) as heads:
            assert heads[0].startswith(b"HTTP/1.1 200")
            deadline = time.monotonic() + DEADLINE_S
            while httpx.get(large, trust_env=False, timeout=DEADLINE_S).status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.5)
            assert figure(server, "answers_cut") == 1


def established(server: Server) -> int:
    """How many connections with something left to send the server still has."""
    port = f":{httpx.URL(server.url).port:04X}"
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        waiting = int(fields[4].split(":")[0], 16)
        found += fields[1].endswith(port) and fields[3] == "01" and waiting > 0
    return found
