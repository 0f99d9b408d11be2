"""Ports of a running pipeline: on the loopback interface only, and for none but its own user."""

from __future__ import annotations

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.integration.runtime.conftest import Run
from tests.processes import listening, reachable

RPC_REQUEST = 3


def check_ports(run: Run) -> None:
    """Fail if other machines can reach a port, or a client without the secret can connect."""
    ports = listening(run.tree())
    assert ports and reachable(run.tree()) == set()
    with ThreadPoolExecutor(len(ports)) as clients:
        answers = list(clients.map(_answer, sorted(ports)))
    # The driver's RPC and the block manager ask who it is; py4j's ports do not speak this protocol.
    assert sum("SaslMessage" in answer or "challenge" in answer for answer in answers) == 2, answers


def _answer(address: tuple[str, int]) -> str:
    """What a port answers to a request in the protocol of Spark's RPC without authentication."""
    body = b"a stranger"
    message = struct.pack(">bqi", RPC_REQUEST, 1, len(body)) + body
    found = b""
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(struct.pack(">q", 8 + len(message)) + message)
        connection.settimeout(2)
        with suppress(TimeoutError, ConnectionError):
            while more := connection.recv(65_536):
                found += more
    return found.decode(errors="replace")
