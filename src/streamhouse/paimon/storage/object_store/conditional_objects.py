"""Objects with their ETags, and writes on condition that an object is missing or unchanged.

An ETag identifies the content that a writer has seen. Such writes are what locks, snapshots and
registrations of checkpoints are made of.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.paimon.storage.object_store.object_requests import ObjectRequests
from streamhouse.paimon.storage.object_store.s3_client import bucket_and_key
from streamhouse.sql.options.store_options import CONDITIONAL

_REFUSED = 412
"""The status of a request whose condition is not met."""
_HEADERS = {"IfMatch": "If-Match", "IfNoneMatch": "If-None-Match"}


def _headers(condition: Mapping[str, str]) -> dict[str, str]:
    return {_HEADERS[name]: value for name, value in condition.items()}


class ConditionalObjects:
    """Reads objects with their ETags, and writes them under conditions."""

    def __init__(self, requests: ObjectRequests) -> None:
        self._requests = requests

    @property
    def supported(self) -> bool:
        """Whether the store has conditional writes, as far as the user's options say."""
        return self._requests.options.get(CONDITIONAL, "true") == "true"

    def read(self, path: str) -> tuple[str, str] | None:
        """The text of an object, and its ETag; None if there is no such object."""
        found = self._requests.get(path)
        return None if found is None else (found[0].decode(), found[1])

    def etag(self, path: str) -> str | None:
        """The ETag of an object; None if there is no such object."""
        head = self._requests.head(path)
        return None if head is None else str(head["ETag"])

    def write(self, path: str, text: str) -> str:
        """Create or replace an object whatever is there; returns its ETag."""
        return self._requests.put(path, text.encode())

    def create(self, path: str, text: str) -> str | None:
        """Write an object that must not exist; returns its ETag, None if it exists."""
        return self._write_if(path, text, IfNoneMatch="*")

    def replace(self, path: str, text: str, etag: str) -> str | None:
        """Replace an object if it still has this ETag; returns the new one, None if it has not."""
        return self._write_if(path, text, IfMatch=etag)

    def _write_if(self, path: str, text: str, **condition: str) -> str | None:
        answer = self._requests.direct(
            "PUT", path, (200, _REFUSED), text.encode(), _headers(condition)
        )
        if answer is not None:
            return answer.etag if answer.status == 200 else None
        bucket, key = bucket_and_key(path)
        client = self._requests.client
        with self._requests.explained():
            try:
                response = client.put_object(
                    Bucket=bucket, Key=key, Body=text.encode(), **condition
                )
            except client.exceptions.ClientError as error:
                if s3_client.is_refused_condition(error) or s3_client.is_missing(error):
                    return None
                raise
        return str(response["ETag"])

    def delete(self, path: str, etag: str | None = None) -> bool:
        """Delete one object, if it is there.

        With `etag` only if it has this ETag, in stores that know this condition. Returns False if
        the object has another one.
        """
        condition = {} if etag is None else {"IfMatch": etag}
        expected = (200, 204, _REFUSED)
        answer = self._requests.direct("DELETE", path, expected, headers=_headers(condition))
        if answer is not None:
            return answer.status != _REFUSED
        bucket, key = bucket_and_key(path)
        client = self._requests.client
        with self._requests.explained():
            try:
                client.delete_object(Bucket=bucket, Key=key, **condition)
            except client.exceptions.ClientError as error:
                if s3_client.is_refused_condition(error):
                    return False
                if not s3_client.is_missing(error):
                    raise
        return True
