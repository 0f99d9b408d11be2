"""Requests for single objects in a third of the processor time that boto3's client takes.

A query sends dozens of requests a second, several at the same time, and boto3 works on each for
more than a millisecond: endpoint rules, validation, parsers, retries. Here a request is signed and
sent, by botocore's own code, and its status is looked at. Whatever is not a plain answer, such as
an error, a redirect or a lost connection, is left to boto3's client, which sends the request again.
So it repeats a request, as the client itself does, and whoever relies on conditions of writes
expects that the answer to an earlier attempt was lost.
"""

from __future__ import annotations

import io
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from streamhouse.errors import StreamhouseError

MOST_BYTES = 4 << 20
_PLAIN_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ADDRESS = "x-streamhouse-address-of-bucket"
_REDIRECTS = (301, 302, 307, 308)
_OTHER_SIGNATURE = "--x-s3"
"""The end of names of directory buckets, whose requests are signed in another way."""


@dataclass(frozen=True)
class Answer:
    """A response; `status` is one of those that its request expected."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def etag(self) -> str:
        """The ETag of the object."""
        found = self.headers.get("ETag")
        if found is None:
            raise StreamhouseError(
                "an answer of the object store has no ETag; check that the option 's3.endpoint' "
                "(AWS_ENDPOINT_URL_S3) is the address of a store with S3's interface"
            )
        return found


class DirectClient:
    """Sends requests to one store; thread-safe.

    `client` is its boto3 client; `verify`: certificates, as botocore has them.
    """

    def __init__(self, client: Any, credentials: Any, verify: object, timeout: object) -> None:
        from botocore.httpsession import URLLib3Session
        from botocore.utils import get_environ_proxies

        self._client, self._credentials = client, credentials
        self._session = URLLib3Session(
            verify=verify,
            proxies=get_environ_proxies(client.meta.endpoint_url),
            timeout=timeout,
            # Headers and body are sent one after the other.
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            max_pool_connections=client.meta.config.max_pool_connections,
        )
        self._places: dict[str, str | None] = {}

    def send(
        self,
        method: str,
        bucket: str,
        key: str,
        expected: tuple[int, ...],
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer | None:
        """The response, if its status is `expected`; None if boto3 must send the request."""
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        place = self._place(bucket)
        if place is None or len(body) > MOST_BYTES:
            return None
        try:
            given = {"User-Agent": self._client.meta.config.user_agent, **(headers or {})}
            request = AWSRequest(method, f"{place}/{quote(key, safe='/~')}", given, body)
            region = self._client.meta.region_name
            S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", region).add_auth(request)
            response = self._session.send(request.prepare())
        except (BotoCoreError, OSError):
            return None
        if response.status_code in _REDIRECTS:
            # boto3 follows them, and remembers where the bucket is.
            self._places[bucket] = None
        if response.status_code not in expected or not _is_whole(method, response):
            return None
        return Answer(response.status_code, response.headers, response.content)

    def _place(self, bucket: str) -> str | None:
        """The URL of a bucket, as boto3 addresses it.

        None for buckets that it signs in another way, or finds in another region.
        """
        if bucket not in self._places:
            plain = _PLAIN_BUCKET.fullmatch(bucket) and not bucket.endswith(_OTHER_SIGNATURE)
            if not plain:
                return None
            self._places[bucket] = _addressed(self._client, bucket)
        return self._places[bucket]


def answer_address(request: Any, **_: Any) -> Any:
    """Answer a request for the address of a bucket, instead of sending it; a hook of boto3.

    boto3 has no call that returns where it would send a request; presigned URLs differ.
    """
    from botocore.awsrequest import AWSResponse
    from urllib3 import HTTPResponse

    if not request.url.endswith(f"/{_ADDRESS}"):
        return None
    place = request.url.removesuffix(f"/{_ADDRESS}")
    empty = HTTPResponse(io.BytesIO(), preload_content=False)
    return AWSResponse(request.url, 404, {_ADDRESS: place}, empty)


def _addressed(client: Any, bucket: str) -> str | None:
    try:
        client.head_object(Bucket=bucket, Key=_ADDRESS)
    except client.exceptions.ClientError as error:
        place = error.response["ResponseMetadata"]["HTTPHeaders"].get(_ADDRESS)
        return None if place is None else str(place)
    return None


def _is_whole(method: str, response: Any) -> bool:
    length = response.headers.get("Content-Length")
    return method == "HEAD" or length is None or int(length) == len(response.content)
