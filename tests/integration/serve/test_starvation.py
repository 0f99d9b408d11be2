"""Clients with large requests do not starve those with small ones."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.integration.serve.server import Server
from tests.unit.conftest import Shop
from tests.waiting import DEADLINE_S, until

from streamhouse.sql.plan import Column

ABANDONED = 30
ROWS = 300_000
PROMPT_S = 30.0
"""For what takes a tenth of a second where nobody else is; the machine of the tests is busy."""
QUERY_S = 12
WIDE = (Column("id", "BIGINT"), Column("name", "STRING"), Column("v", "DOUBLE"))
ENDLESS = "SELECT COUNT(*) AS n FROM shop.big a, shop.big b WHERE CHAR_LENGTH(a.name) > b.v + a.v"
TOKENS = """
tokens:
  - {name: greedy, token: greedy}
  - {name: modest, token: modest}
"""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shop = Shop(tmp_path_factory.mktemp("starvation") / "warehouse")
    shop.write(shop.sales(), ("Chad", 1, 1.5), ("Peru", 2, 2.5))
    shop.write(shop.create("big", WIDE), *((n, f"name {n}", n / 2) for n in range(ROWS)))
    return shop.path


@pytest.fixture(scope="module")
def server(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(warehouse, tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture
def guarded(warehouse: Path, tmp_path: Path) -> Iterator[Server]:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS)
    options = ("--token-file", str(tokens), "--query-timeout", f"{QUERY_S}s")
    with Server(warehouse, tmp_path, *options) as started:
        yield started


def opened(server: Server) -> socket.socket:
    address = httpx.URL(server.url)
    return socket.create_connection((address.host, address.port or 80), DEADLINE_S)


def asked(path: str, body: str = "") -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def figure(server: Server, name: str, kind: str) -> float:
    text = httpx.get(f"{server.url}/metrics", timeout=DEADLINE_S, trust_env=False).text
    found = re.search(rf'^streamhouse_{name}{{kind="{kind}"}} (.*)$', text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


def idle(server: Server) -> bool:
    names = ("reads", "queries", "short_queries")
    return not any(figure(server, what, kind) for what in ("running", "waiting") for kind in names)


def seconds_of(url: str, **arguments: str) -> float:
    began = time.monotonic()
    answer = httpx.get(url, timeout=DEADLINE_S, trust_env=False, **arguments)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began


LARGE = "/views/shop.big"


@pytest.mark.parametrize(
    "request_bytes",
    [
        asked(LARGE),
        # What follows an answer keeps the server from reading that the client has closed.
        asked(LARGE) * 2,
        asked(LARGE, "x" * 200_000),
        asked(f"{LARGE}?format=parquet&filter=v%20%3E%201"),
    ],
    ids=["alone", "two on a connection", "with a body", "with a filter"],
)
def test_abandoned_large_reads_block_no_other_client(server: Server, request_bytes: bytes) -> None:
    small = f"{server.url}/views/shop.sales"
    seconds_of(small)
    for _ in range(ABANDONED):
        with opened(server) as connection:
            connection.sendall(request_bytes)
            time.sleep(0.01)
    assert seconds_of(small) < PROMPT_S
    until(lambda: idle(server), server.log.read_text)


def test_large_reads_do_not_delay_small_ones(server: Server) -> None:
    # A read that takes more than a second, as on a busy machine, waits with the large ones.
    until(lambda: overtakes(server), server.log.read_text, 2 * DEADLINE_S)


def overtakes(server: Server) -> bool:
    """Whether small requests are answered while large reads, which were sent before, wait."""
    with contextlib.ExitStack() as connections:
        for _ in range(ABANDONED):
            connections.enter_context(opened(server)).sendall(asked(LARGE))
        paths = ("/views/shop.sales", "/views", "/health")
        answers = [
            httpx.get(f"{server.url}{path}", timeout=DEADLINE_S, trust_env=False) for path in paths
        ]
        overtook = figure(server, "waiting", "queries") > 0
    until(lambda: idle(server), server.log.read_text)
    return overtook and all(answer.status_code == 200 for answer in answers)


def test_full_queue_error(server: Server) -> None:
    connections = [opened(server) for _ in range(100)]
    try:
        for connection in connections:
            connection.sendall(asked(LARGE))
        refused = b""
        while not refused.startswith(b"HTTP/1.1 503"):
            connections[-1].settimeout(DEADLINE_S)
            refused = connections[-1].recv(4_096)
        assert b"retry-after: " in refused.lower()
    finally:
        for connection in connections:
            connection.close()
    until(lambda: idle(server), server.log.read_text)


def sql(server: Server, token: str, text: str) -> tuple[int, float]:
    began = time.monotonic()
    answer = httpx.post(
        f"{server.url}/sql",
        json={"sql": text},
        headers={"Authorization": f"Bearer {token}"},
        timeout=DEADLINE_S,
        trust_env=False,
    )
    return answer.status_code, time.monotonic() - began


def test_tokens_share_the_query_slots(guarded: Server) -> None:
    small = "SELECT COUNT(*) AS n FROM shop.sales"
    assert sql(guarded, "modest", small)[0] == 200
    answers: list[tuple[int, float]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(sql(guarded, "greedy", ENDLESS)))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            time.sleep(0.5)
            # Else no slot is free within the time for a query.
            assert sql(guarded, "modest", small)[0] == 200
    finally:
        for thread in threads:
            thread.join(DEADLINE_S)
    assert {status for status, _ in answers} <= {413, 503} and len(answers) == 20
    # The time of a query counts from its request on, not from when a slot is free: one after the
    # other, two at a time, they would take ten times as long.
    assert max(seconds for _, seconds in answers) < 5 * QUERY_S


def test_queries_of_disconnected_clients_are_cancelled(guarded: Server) -> None:
    small = "SELECT COUNT(*) AS n FROM shop.sales"
    assert sql(guarded, "greedy", small)[0] == 200
    body = f'{{"sql": "{ENDLESS}"}}'
    head = (
        "POST /sql HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer greedy\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    for _ in range(10):
        with opened(guarded) as connection:
            connection.sendall((head + body).encode())
            time.sleep(0.05)
    got = sql(guarded, "greedy", small)
    assert got[0] == 200, got
