"""Files of an S3-compatible object store, each of which is one object."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.paimon.storage.object_store.conditional_objects import ConditionalObjects
from streamhouse.paimon.storage.object_store.object_requests import ObjectRequests
from streamhouse.paimon.storage.object_store.s3_client import bucket_and_key

_IN_MEMORY = 16 << 20


class ObjectFiles:
    """`Files` of one bucket. An object is replaced as a whole, and is visible once it is complete.

    Errors of the store are `StreamhouseError`; missing objects are as `Files` says. `requests` are
    for what has more than a file: ETags and conditions (`ConditionalObjects`).
    """

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.requests = ObjectRequests(location, options)

    def read_text(self, path: str) -> str | None:
        content = self.read_bytes(path)
        return None if content is None else content.decode()

    def read_bytes(self, path: str) -> bytes | None:
        """The content of an object; None if there is no such object."""
        found = self.requests.get(path)
        return None if found is None else found[0]

    def exists(self, path: str) -> bool:
        return self.requests.head(path) is not None

    def names(self, path: str) -> list[tuple[str, bool]]:
        _, key = bucket_and_key(path)
        prefix = f"{key.rstrip('/')}/" if key else ""
        result = []
        with self.requests.explained():
            for page in self.requests.pages(path, Delimiter="/"):
                for folder in page.get("CommonPrefixes", ()):
                    result.append((folder["Prefix"][len(prefix) : -1], True))
                for item in page.get("Contents", ()):
                    # Some programs make an empty object that stands for the folder.
                    if item["Key"] != prefix:
                        result.append((item["Key"][len(prefix) :], False))
        return result

    def stamp(self, path: str) -> object | None:
        head = self.requests.head(path)
        return None if head is None else (head["ETag"], head["LastModified"])

    def open_output(self, path: str) -> Any:
        return _Upload(self.requests, path)

    def write_text(self, path: str, text: str) -> None:
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, content: bytes) -> None:
        """Create or replace an object."""
        self.requests.put(path, content)

    def modified_s(self, path: str) -> float | None:
        head = self.requests.head(path)
        return None if head is None else float(head["LastModified"].timestamp())

    def open_input(self, path: str) -> Any:
        bucket, key = bucket_and_key(path)
        client, file = self.requests.client, tempfile.SpooledTemporaryFile(_IN_MEMORY)
        with self.requests.explained():
            try:
                client.download_fileobj(bucket, key, file)
            except client.exceptions.ClientError as error:
                if s3_client.is_missing(error):
                    raise FileNotFoundError(path) from None
                raise
        file.seek(0)
        return file

    def delete(self, path: str) -> None:
        bucket, key = bucket_and_key(path)
        client = self.requests.client
        with self.requests.explained():
            client.delete_object(Bucket=bucket, Key=key)
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=f"{key.rstrip('/')}/"
            )
            for page in pages:
                keys = [{"Key": item["Key"]} for item in page.get("Contents", ())]
                if keys:
                    client.delete_objects(Bucket=bucket, Delete={"Objects": keys})

    def delete_file(self, path: str) -> None:
        """Delete one object, if it is there: one request, where `delete` also lists a folder."""
        ConditionalObjects(self.requests).delete(path)


class _Upload(io.BufferedIOBase):
    """Buffers what is written; `close` uploads it, unless the block ended with an error."""

    def __init__(self, requests: ObjectRequests, path: str) -> None:
        self._requests, self._path = requests, path
        self._buffer = tempfile.SpooledTemporaryFile(_IN_MEMORY)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._buffer.write(data)

    def tell(self) -> int:
        return self._buffer.tell()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._buffer.seek(0)
            bucket, key = bucket_and_key(self._path)
            with self._requests.explained():
                self._requests.client.upload_fileobj(self._buffer, bucket, key)
        finally:
            self._discard()

    def _discard(self) -> None:
        self._buffer.close()
        super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._discard()

    def __del__(self) -> None:
        # A garbage-collected upload is one that was never completed.
        if not self.closed:
            self._discard()
