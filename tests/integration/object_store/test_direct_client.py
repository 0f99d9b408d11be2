"""Requests for single objects that bypass boto3's client have the same effects and results."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from tests.integration.object_store.faulty_proxy import Fault, FaultyProxy, Request
from urllib3.util import connection

from streamhouse.demo.s3_server import BUCKET, S3Server
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.paimon.storage.object_store.conditional_objects import ConditionalObjects
from streamhouse.paimon.storage.object_store.object_requests import ObjectRequests


@pytest.fixture
def requests(s3: S3Server, proxy: FaultyProxy) -> ObjectRequests:
    return ObjectRequests(f"s3://{BUCKET}/direct", s3.options(proxy.url))


@pytest.mark.parametrize("name", ["a", "pt=ä b+c%20/x~(1)'!", "k=1:2,é&?#[]/@$*;", "a//b"])
def test_any_name_is_the_same_object_for_boto3(
    requests: ObjectRequests, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, objects = f"s3://{BUCKET}/direct/{name}", ConditionalObjects(requests)
    assert s3_client.direct_client(requests.options) is not None
    written = requests.put(path, b"one")
    content, facts, created = requests.get(path), requests.head(path), objects.create(path, "two")
    with monkeypatch.context() as patch:
        patch.setattr(s3_client, "direct_client", lambda options: None)
        theirs = requests.head(path)
        assert theirs is not None
        assert facts == {key: theirs[key] for key in ("ETag", "LastModified", "ContentLength")}
        assert requests.get(path) == content == (b"one", written)
        assert objects.create(path, "two") is created is None
    replaced = objects.replace(path, "two", written)
    assert replaced is not None and objects.replace(path, "three", written) is None
    assert not objects.delete(path, written)
    assert objects.delete(path, replaced)
    assert requests.get(path) is None and requests.head(path) is None


@pytest.mark.parametrize("fault", [one for one in Fault if one is not Fault.SLOW])
def test_a_fault_costs_one_more_request(
    requests: ObjectRequests, proxy: FaultyProxy, fault: Fault
) -> None:
    path = f"s3://{BUCKET}/direct/{fault.name}"

    def first(request: Request) -> Fault | None:
        return fault if len(proxy.injected) < 1 else None

    proxy.choose = first
    etag = requests.put(path, b"content")
    proxy.injected.clear()
    assert requests.get(path) == (b"content", etag)
    assert len(proxy.injected) == 1


def test_small_uploads_are_not_held_back(
    requests: ObjectRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `TCP_NODELAY` each would wait 40 ms for an acknowledgement of its headers."""
    connected, sockets = connection.create_connection, list[socket.socket]()

    def create(*arguments: Any, **more: Any) -> socket.socket:
        sockets.append(connected(*arguments, **more))
        return sockets[-1]

    monkeypatch.setattr(connection, "create_connection", create)
    requests.put(f"s3://{BUCKET}/direct/small", b"content")
    assert sockets
    assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets)


def test_errors_are_those_of_boto3(s3: S3Server) -> None:
    options = {**s3.options(), "s3.secret-key": "other"}
    missing = ObjectRequests("s3://no-such-bucket/a", options)
    for call in (missing.get, lambda path: missing.put(path, b"")):
        with pytest.raises(StreamhouseError, match="the bucket 'no-such-bucket' does not exist"):
            call("s3://no-such-bucket/a/b")
