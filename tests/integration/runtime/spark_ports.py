"""Ports of a running pipeline: on the loopback interface only, and for none but its own user."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack, suppress

from tests.integration.runtime.conftest import Run
from tests.processes import listening, reachable
from tests.waiting import DEADLINE_S, until

RPC_REQUEST = 3


def check_ports(run: Run) -> None:
    """Fail if other machines can reach a port, or a client without the secret can connect."""
    ports = listening(run.tree())
    assert ports and reachable(run.tree()) == set()
    with ExitStack() as opened:
        connections = [opened.enter_context(_asked(address)) for address in sorted(ports)]
        answers = dict.fromkeys(connections, b"")

        def refused() -> bool:
            for connection in connections:
                with suppress(TimeoutError, ConnectionError):
                    answers[connection] += connection.recv(65_536)
            # The driver's RPC and the block manager ask who it is; py4j's ports do not speak this
            # protocol.
            asking = [
                one for one in answers.values() if b"SaslMessage" in one or b"challenge" in one
            ]
            return len(asking) == 2

        until(refused, lambda: list(answers.values()))


def _asked(address: tuple[str, int]) -> socket.socket:
    """A connection to a port that got a request in the protocol of Spark's RPC, which has no
    authentication."""
    body = b"a stranger"
    message = struct.pack(">bqi", RPC_REQUEST, 1, len(body)) + body
    connection = socket.create_connection(address, DEADLINE_S)
    connection.sendall(struct.pack(">q", 8 + len(message)) + message)
    connection.settimeout(0.01)
    return connection
