"""Ports of a running pipeline: on the loopback interface only, and for none but its own user."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

from tests.integration.runtime.conftest import Shop
from tests.processes import listening, reachable

TABLE = "CREATE TABLE numbers (id BIGINT) WITH ('bucket' = '-1')"
SCRIPT = """
CREATE TEMPORARY TABLE made (id BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '100', 'fields.id.kind' = 'sequence',
  'fields.id.start' = '1', 'fields.id.end' = '100000000'
);
INSERT INTO numbers SELECT id FROM made;
"""
RPC_REQUEST = 3


def test_clients_without_the_secret_cannot_connect(shop: Shop) -> None:
    shop.do(TABLE)
    run = shop.start(SCRIPT)
    run.until(lambda: shop.rows("numbers"))
    ports = listening(run.tree())
    assert ports and reachable(run.tree()) == set()
    answers = [_answer(host, port) for host, port in sorted(ports)]
    # The driver's RPC and the block manager ask who it is; py4j's ports do not speak this protocol.
    assert sum("SaslMessage" in answer or "challenge" in answer for answer in answers) == 2, answers
    run.kill()


def _answer(host: str, port: int) -> str:
    """What a port answers to a request in the protocol of Spark's RPC without authentication."""
    body = b"a stranger"
    message = struct.pack(">bqi", RPC_REQUEST, 1, len(body)) + body
    found = b""
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(struct.pack(">q", 8 + len(message)) + message)
        connection.settimeout(2)
        with suppress(TimeoutError, ConnectionError):
            while more := connection.recv(65_536):
                found += more
    return found.decode(errors="replace")
