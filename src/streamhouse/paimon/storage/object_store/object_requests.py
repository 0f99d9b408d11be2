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

    def direct(
        self,
        method: str,
        path: str,
        expected: tuple[int, ...],
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer | None:
        """The answer to a request for one object; None if `client` must send it."""
        with self.explained():
            direct = s3_client.direct_client(self.options)
            if direct is None:
                return None
            return direct.send(method, *bucket_and_key(path), expected, body, headers)

    def explained(self) -> Any:
        """Turns boto3's errors in its block into `StreamhouseError`."""
        return s3_client.explained(self._location, self.options)

    def get(self, path: str) -> tuple[bytes, str] | None:
        """The content of an object, and its ETag; None if there is no such object."""
        # boto3 does not repeat a request whose response's body is cut off.
        return retried(lambda: self._got(path), _BODY_TRIES)

    def _got(self, path: str) -> tuple[bytes, str] | None:
        answer = self.direct("GET", path, (200, 404))
        if answer is not None and answer.status == 200:
            return answer.content, answer.etag
        if answer is not None and _NO_BUCKET not in answer.content:
            return None
        bucket, key = bucket_and_key(path)
        with self.explained():
            try:
                response = self.client.get_object(Bucket=bucket, Key=key)
                return response["Body"].read(), str(response["ETag"])
            except self.client.exceptions.ClientError as error:
                if s3_client.is_missing(error):
                    return None
                raise

    def head(self, path: str) -> Mapping[str, Any] | None:
        """What the store knows of an object besides its content; None if there is none."""
        answer = self.direct("HEAD", path, (200, 404))
        if answer is not None:
            return _facts(answer) if answer.status == 200 else None
        bucket, key = bucket_and_key(path)
        with self.explained():
            try:
                head: Mapping[str, Any] = self.client.head_object(Bucket=bucket, Key=key)
                return head
            except self.client.exceptions.ClientError as error:
                if s3_client.is_missing(error):
                    return None
                raise

    def put(self, path: str, content: bytes) -> str:
        """Create or replace an object; returns its ETag."""
        answer = self.direct("PUT", path, (200,), content)
        if answer is not None:
            return answer.etag
        bucket, key = bucket_and_key(path)
        with self.explained():
            response = self.client.put_object(Bucket=bucket, Key=key, Body=content)
        return str(response["ETag"])

    def pages(self, path: str, **more: str) -> Iterator[Mapping[str, Any]]:
        """The pages of a listing of the folder at `path`; to be read within `explained`."""
        bucket, key = bucket_and_key(path)
        prefix = f"{key.rstrip('/')}/" if key else ""
        paginator = self.client.get_paginator("list_objects_v2")
        yield from paginator.paginate(Bucket=bucket, Prefix=prefix, **more)


def _facts(answer: Answer) -> Mapping[str, Any]:
    """What boto3 returns for a HEAD request, as far as it is used here."""
    return {
        "ETag": answer.etag,
        "LastModified": parsedate_to_datetime(answer.headers["Last-Modified"]),
        "ContentLength": int(answer.headers["Content-Length"]),
    }
