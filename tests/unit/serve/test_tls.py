"""TLS of a server with a certificate, and invalid certificate files."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serving import Serving, certificate
from tests.waiting import DEADLINE_S, until

from streamhouse.errors import OptionError
from streamhouse.serve.http.server import tls_context, url_of
from streamhouse.serve.settings import ConnectionLimits


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def trust(files: tuple[str, str]) -> ssl.SSLContext:
    """What a client knows that trusts the server's certificate."""
    return ssl.create_default_context(cafile=files[0])


def test_rows_and_changes_over_tls(
    serve: Any, shop: Any, files: tuple[str, str], trust: ssl.SSLContext
) -> None:
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5))
    server: Serving = serve(tls=tls_context(*files), trust=trust)
    assert server.url == f"https://127.0.0.1:{server.port}"
    assert server.rows(table) == [{"country": "Chad", "orders": 1, "revenue": 1.5}]
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as plain:
        with trust.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted:
            encrypted.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert encrypted.recv(9) == b"HTTP/1.1 "
            # Session tickets would reach the thread of a client that reads while it sends.
            assert encrypted.session is not None and not encrypted.session.has_ticket
    own = {"Origin": server.url}
    assert server.http.post("/sql", json={"sql": "SELECT 1 AS n"}, headers=own).status_code == 200
    with server.stream(f"/views/{table}/changes") as events:
        assert next(events)["snapshot"] == 1
        with server.socket(f"/views/{table}/changes", origin=server.url) as reader:
            assert json.loads(reader.recv(timeout=DEADLINE_S))["type"] == "snapshot"
            last = shop.write(table, ("Chad", 2, 1.5))
            assert json.loads(reader.recv(timeout=DEADLINE_S))["snapshot"] == last
        assert next(events)["snapshot"] == last


def test_untrusted_certificate_and_plain_http(
    serve: Any, shop: Any, files: tuple[str, str], trust: ssl.SSLContext
) -> None:
    server: Serving = serve(tls=tls_context(*files), trust=trust)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{server.url}/health", timeout=DEADLINE_S, trust_env=False)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{server.port}/health", timeout=DEADLINE_S, trust_env=False)
    assert server.get("/health").status_code == 200


def test_invalid_certificate_files(files: tuple[str, str], tmp_path: Path) -> None:
    cert, key = files
    _, other = certificate(tmp_path, "other")
    missing, text = str(tmp_path / "missing.pem"), tmp_path / "text.pem"
    text.write_text("hidden")
    locked = str(tmp_path / "locked.pem")
    subprocess.run(
        ["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:hidden", "-out", locked],
        check=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    for given, said in (
        ((missing, key), "option '--tls-cert': .*missing.pem cannot be read: No such file"),
        ((cert, missing), "option '--tls-key': .*missing.pem cannot be read: No such file"),
        ((cert, str(tmp_path)), "option '--tls-key': .* cannot be read: Is a directory"),
        ((cert, other), "other.key.pem is not the key of the certificate in .*server.cert.pem"),
        ((cert, str(text)), "are not a certificate and its private key in PEM"),
        ((str(text), key), "are not a certificate and its private key in PEM"),
        ((key, cert), "are not a certificate and its private key in PEM"),
        ((cert, locked), "locked.pem is encrypted; give a key without a password"),
    ):
        with pytest.raises(OptionError, match=said) as refused:
            tls_context(*given)
        assert "hidden" not in str(refused.value)


def test_url() -> None:
    assert url_of("0.0.0.0", 443, tls=True) == "https://127.0.0.1:443"
    assert url_of("::", 8080) == "http://[::1]:8080"


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20)
"""The begin of a TLS handshake, of which the rest does not come."""


@pytest.mark.parametrize("encrypted", [True, False], ids=["tls", "plain"])
@pytest.mark.parametrize("total", [40, 2_000])
def test_silent_connections_lock_nobody_out(
    serve: Any,
    shop: Any,
    files: tuple[str, str],
    trust: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    encrypted: bool,
    total: int,
) -> None:
    monkeypatch.setattr("streamhouse.serve.http.server.HANDSHAKE_S", DEADLINE_S)
    monkeypatch.setattr("streamhouse.serve.http.connections.HEAD_S", DEADLINE_S)
    table = shop.sales()
    shop.write(table, ("Chad", 1, 1.5))
    over_tls = {"tls": tls_context(*files), "trust": trust} if encrypted else {}
    server: Serving = serve(connections=ConnectionLimits(total, silent=20), **over_tls)
    with contextlib.ExitStack() as stack:
        path = f"/views/{table}/changes"
        events = stack.enter_context(server.stream(path))
        assert next(events)["snapshot"] == 1
        connected = []
        for number in range(120):
            source = (f"127.0.0.{2 + number % 5}", 0)
            silent = socket.create_connection(("127.0.0.1", server.port), DEADLINE_S, source)
            connected.append(stack.enter_context(silent))
            with contextlib.suppress(ConnectionError):
                silent.sendall(HELLO[: number % len(HELLO)] if encrypted else b"GET"[: number % 3])
            if number % 20 == 19:
                with server.new_client() as client:
                    assert client.get("/health").status_code == 200
        until(lambda: len(select.select(connected, [], [], 0.01)[0]) >= len(connected) - 20)
        # The stream, which has sent a request, is none of them.
        last = shop.write(table, ("Chad", 2, 1.5))
        assert next(events)["snapshot"] == last


def test_a_handshake_ends(
    serve: Any, files: tuple[str, str], trust: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamhouse.serve.http.server.HANDSHAKE_S", 0.2)
    server: Serving = serve(tls=tls_context(*files), trust=trust)
    for sent in (b"", HELLO):
        with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as silent:
            silent.sendall(sent)
            with contextlib.suppress(ConnectionError):
                assert silent.recv(65_536) == b""
    monkeypatch.setattr("streamhouse.serve.http.server.HANDSHAKE_S", DEADLINE_S)
    with server.new_client() as client:
        assert client.get("/health").status_code == 200
