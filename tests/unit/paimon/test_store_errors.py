"""What is wrong with an object store is one line within ten seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from tests.local_http_server import LocalHttpServer

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles

KEYS = {"s3.access-key": "key", "s3.secret-key": "secret"}


class Store(BaseHTTPRequestHandler):
    """Answers each request in the same way, without a body, as stores answer HEAD."""

    status, region, pause_s = 200, "", 0.0

    def _answer(self) -> None:
        time.sleep(self.pause_s)
        self.send_response(self.status)
        if self.region:
            self.send_header("x-amz-bucket-region", self.region)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = _answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHttpServer]:
    monkeypatch.setattr(s3_client, "_checked", set())
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("status", "region", "pause_s"):
        monkeypatch.setattr(Store, name, getattr(Store, name))
    with LocalHttpServer(Store) as server:
        yield server


def error_of(store: LocalHttpServer, location: str = "s3://lake/w") -> str:
    with pytest.raises(StreamhouseError) as raised:
        Warehouse({"warehouse": location, "s3.endpoint": store.url, **KEYS}).databases()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_store_that_accepts_connections_and_does_not_answer(
    store: LocalHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "pause_s", 3600.0)
    assert "nothing answers at" in error_of(store)


@pytest.mark.parametrize("status", [301, 400, 403])
def test_a_bucket_of_another_region(
    store: LocalHttpServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(Store, "status", status)
    monkeypatch.setattr(Store, "region", "eu-west-1")
    found = error_of(store)
    assert "the bucket 'lake' is in the region eu-west-1, and not in us-east-1" in found


@pytest.mark.parametrize("status", [301, 302, 308])
def test_a_server_that_redirects(
    store: LocalHttpServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(Store, "status", status)
    assert f"{store.url} redirects all requests" in error_of(store)


@pytest.mark.parametrize("status", [400, 403])
def test_a_refusal_without_a_reason(
    store: LocalHttpServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(Store, "status", status)
    assert f"refuses access to the bucket 'lake' ({status}); check the" in error_of(store)


def test_a_server_that_is_no_store(store: LocalHttpServer) -> None:
    requests = ObjectFiles("s3://lake/w", {"s3.endpoint": store.url, **KEYS})
    with pytest.raises(StreamhouseError, match="the address of a store with S3's interface"):
        requests.get("s3://lake/w/object")


@pytest.mark.parametrize("location", ["s3://", "s3:///w"])
def test_a_location_without_a_bucket(store: LocalHttpServer, location: str) -> None:
    assert "names no bucket; write s3://bucket/path" in error_of(store, location)
