"""Requests for single objects of an S3-compatible store; its errors as `StreamhouseError`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.paimon.storage.object_store.direct_client import Answer
from streamhouse.paimon.storage.object_store.s3_client import bucket_and_key
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.sql.options.store_options import canonical_options, s3_location

_BODY_TRIES = 3
_NO_BUCKET = b"<Code>NoSuchBucket<"
_MISSING = 404
_MAY_BE_MISSING = (200, _MISSING)
_HEADERS = {"IfMatch": "If-Match", "IfNoneMatch": "If-None-Match"}


class ObjectRequests:
    """Sends requests for objects of one bucket; `options` are the catalog's."""

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.options = canonical_options({**options, "warehouse": location})
        self._location = s3_location(location)

    @property
    def store(self) -> tuple[object, ...]:
        """Identifies the store, and how this process is known there."""
        return s3_client.store_key(self.options)

    @property
    def client(self) -> Any:
        return s3_client.client(self.options)

    def send(
        self,
        method: str,
        path: str,
        expected: tuple[int, ...],
        body: bytes = b"",
        condition: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer to a request for one object, whose status is `expected`.

        `condition` has the name of a header as boto3 writes it, such as `IfMatch`. A missing
        object is a 404, a condition that is not met a 412.
        """
        with self.explained():
            direct, place = s3_client.direct_client(self.options), bucket_and_key(path)
            if direct is not None:
                headers = {_HEADERS[name]: value for name, value in (condition or {}).items()}
                answer = direct.send(method, *place, expected, body, headers)
                if answer is not None and _NO_BUCKET not in answer.content:
                    return answer
            return self._sent_by_boto3(method, place, expected, body, condition or {})

    def _sent_by_boto3(
        self,
        method: str,
        place: tuple[str, str],
        expected: tuple[int, ...],
        body: bytes,
        condition: Mapping[str, str],
    ) -> Answer:
        from botocore.awsrequest import HeadersDict
        from botocore.exceptions import ClientError

        call = getattr(self.client, f"{method.lower()}_object")
        content = {"Body": body} if method == "PUT" else {}
        try:
            response = call(Bucket=place[0], Key=place[1], **content, **condition)
        except ClientError as error:
            status = s3_client.plain_status(error)
            if status in expected:
                return Answer(status, {}, b"")
            raise
        got, facts = response.get("Body"), response["ResponseMetadata"]
        return Answer(
            facts["HTTPStatusCode"],
            HeadersDict(facts["HTTPHeaders"]),
            b"" if got is None else got.read(),
        )

    def explained(self) -> Any:
        """Turns boto3's errors in its block into `StreamhouseError`."""
        return s3_client.explained(self._location, self.options)

    def get(self, path: str) -> tuple[bytes, str] | None:
        """The content of an object, and its ETag; None if there is no such object."""
        # boto3 does not repeat a request whose response's body is cut off.
        answer = retried(lambda: self.send("GET", path, _MAY_BE_MISSING), _BODY_TRIES)
        return None if answer.status == _MISSING else (answer.content, answer.etag)

    def head(self, path: str) -> Mapping[str, Any] | None:
        """What the store knows of an object besides its content; None if there is none."""
        answer = self.send("HEAD", path, _MAY_BE_MISSING)
        if answer.status == _MISSING:
            return None
        return {
            "ETag": answer.etag,
            "LastModified": parsedate_to_datetime(answer.headers["Last-Modified"]),
            "ContentLength": int(answer.headers["Content-Length"]),
        }

    def put(self, path: str, content: bytes) -> str:
        """Create or replace an object; returns its ETag."""
        return self.send("PUT", path, (200,), content).etag

    def pages(self, path: str, **more: str) -> Iterator[Mapping[str, Any]]:
        """The pages of a listing of the folder at `path`; to be read within `explained`."""
        bucket, key = bucket_and_key(path)
        prefix = f"{key.rstrip('/')}/" if key else ""
        paginator = self.client.get_paginator("list_objects_v2")
        yield from paginator.paginate(Bucket=bucket, Prefix=prefix, **more)
