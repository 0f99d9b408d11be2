"""Which requests for single objects are left to boto3's client."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import EndpointConnectionError

from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.paimon.storage.object_store.direct_client import MOST_BYTES, DirectClient


class Response:
    """What a session returns."""

    def __init__(self, status: int, content: bytes = b"", length: int | None = None) -> None:
        self.status_code, self.content = status, content
        self.headers = {"Content-Length": str(len(content) if length is None else length)}


def made(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> DirectClient:
    """A client of a store by the options of a catalog."""
    monkeypatch.setattr(s3_client, "_clients", {})
    monkeypatch.setattr(s3_client, "_direct", {})
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    keys = {"s3.access-key": "key", "s3.secret-key": "secret", "s3.session.token": "token"}
    client = s3_client.direct_client({**keys, **options})
    assert client is not None
    return client


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> DirectClient:
    return made(monkeypatch, {"s3.region": "eu-west-1"})


def answering(client: DirectClient, *responses: Any) -> list[AWSPreparedRequest]:
    """Let the client get these responses; returns the list of the requests."""
    sent, left = [], list(responses)

    def send(request: AWSPreparedRequest) -> Any:
        sent.append(request)
        response = left.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    client._session.send = send
    return sent


def test_a_request_is_signed_and_sent_to_the_bucket(client: DirectClient) -> None:
    sent = answering(client, Response(200, b"content"))
    answer = client.send("PUT", "lake", "a b/ü", (200,), b"body", {"If-None-Match": "*"})
    assert answer is not None and answer.content == b"content"
    (request,) = sent
    assert request.url == "https://lake.s3.eu-west-1.amazonaws.com/a%20b/%C3%BC"
    assert request.headers["X-Amz-Security-Token"] == "token"
    authorization = request.headers["Authorization"]
    assert "/eu-west-1/s3/aws4_request" in authorization
    assert "if-none-match;" in authorization


@pytest.mark.parametrize(
    ("bucket", "options", "url"),
    [
        ("lake", {"s3.endpoint": "http://127.0.0.1:9"}, "http://127.0.0.1:9/lake/key"),
        ("lake", {"s3.endpoint": "http://minio:9"}, "http://minio:9/lake/key"),
        ("lake", {"s3.endpoint": "http://minio:9", "s3.path.style.access": "true"},
         "http://minio:9/lake/key"),
        ("my.lake", {}, "https://s3.amazonaws.com/my.lake/key"),
    ],
)  # fmt: skip
def test_a_bucket_is_addressed_as_boto3_does(
    monkeypatch: pytest.MonkeyPatch, bucket: str, options: dict[str, str], url: str
) -> None:
    client = made(monkeypatch, {"s3.region": "us-east-1", **options})
    sent = answering(client, Response(404))
    assert client.send("GET", bucket, "key", (404,)) is not None
    assert [request.url for request in sent] == [url]


@pytest.mark.parametrize(
    "response",
    [
        Response(500),
        Response(403),
        Response(200, b"half", length=8),
        EndpointConnectionError(endpoint_url="https://lake"),
        ConnectionResetError(),
    ],
)
def test_what_is_no_plain_answer_is_left_to_boto3(client: DirectClient, response: Any) -> None:
    sent = answering(client, response, Response(200))
    assert client.send("GET", "lake", "key", (200, 404)) is None
    assert client.send("GET", "lake", "key", (200, 404)) is not None
    assert len(sent) == 2


def test_a_bucket_of_another_region_is_left_to_boto3_from_then_on(client: DirectClient) -> None:
    sent = answering(client, Response(301), Response(200))
    assert client.send("GET", "elsewhere", "key", (200, 404)) is None
    assert client.send("GET", "elsewhere", "key", (200, 404)) is None
    assert client.send("GET", "lake", "key", (200, 404)) is not None
    assert len(sent) == 2


def test_large_objects_and_unusual_buckets_are_left_to_boto3(client: DirectClient) -> None:
    sent = answering(client)
    assert client.send("PUT", "lake", "key", (200,), bytes(MOST_BYTES + 1)) is None
    for bucket in ("data--use1-az4--x-s3", "arn:aws:s3:us-east-1:1:accesspoint/a", "Upper_Case"):
        assert client.send("GET", bucket, "key", (200, 404)) is None
    assert sent == []
