"""Files of an S3-compatible object store, each of which is one object."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.paimon.storage.object_store.s3_client import bucket_and_key
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.sql.options.store_options import CONDITIONAL, canonical_options, s3_location

_IN_MEMORY = 16 << 20
_BODY_TRIES = 3


class ObjectFiles:
    """`Files` of one bucket. An object is replaced as a whole, and is visible once it is complete.

    Errors of the store are `StreamhouseError`; missing objects are as `Files` says.
    """

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self._options = canonical_options({**options, "warehouse": location})
        self._location = s3_location(location)

    @property
    def conditional_writes(self) -> bool:
        """Whether writes may depend on conditions; the user may say that the store has none."""
        return self._options.get(CONDITIONAL, "true") == "true"

    @property
    def store(self) -> tuple[object, ...]:
        """Identifies the store, and how this process is known there."""
        return s3_client.store_key(self._options)

    def read_text(self, path: str) -> str | None:
        body = self._get(path)
        return None if body is None else body[0].decode()

    def read_bytes(self, path: str) -> bytes | None:
        """The content of an object; None if there is no such object."""
        body = self._get(path)
        return None if body is None else body[0]

    def read_tagged(self, path: str) -> tuple[str, str] | None:
        """The text of an object, and its ETag; None if there is no such object."""
        body = self._get(path)
        return None if body is None else (body[0].decode(), body[1])

    def _get(self, path: str) -> tuple[bytes, str] | None:
        # boto3 does not repeat a request whose answer's body is torn.
        return retried(lambda: self._got(path), _BODY_TRIES)

    def _got(self, path: str) -> tuple[bytes, str] | None:
        bucket, key = place_of(path)
        with self._explained():
            try:
                answer = self._client.get_object(Bucket=bucket, Key=key)
                return answer["Body"].read(), str(answer["ETag"])
            except self._client.exceptions.ClientError as error:
                if s3_client.is_missing(error):
                    return None
                raise

    def exists(self, path: str) -> bool:
        return self._head(path) is not None

    def _head(self, path: str) -> Mapping[str, Any] | None:
        bucket, key = place_of(path)
        with self._explained():
            try:
                head: Mapping[str, Any] = self._client.head_object(Bucket=bucket, Key=key)
                return head
            except self._client.exceptions.ClientError as error:
                if s3_client.is_missing(error):
                    return None
                raise

    def names(self, path: str) -> list[tuple[str, bool]]:
        bucket, key = place_of(path)
        prefix = f"{key.rstrip('/')}/" if key else ""
        result = []
        with self._explained():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=prefix, Delimiter="/"
            )
            for page in pages:
                for folder in page.get("CommonPrefixes", ()):
                    result.append((folder["Prefix"][len(prefix) : -1], True))
                for one in page.get("Contents", ()):
                    # Some programs make an empty object that stands for the folder.
                    if one["Key"] != prefix:
                        result.append((one["Key"][len(prefix) :], False))
        return result

    def stamp(self, path: str) -> object | None:
        head = self._head(path)
        return None if head is None else (head["ETag"], head["LastModified"])

    def tag(self, path: str) -> str | None:
        """The ETag of an object; None if there is no such object."""
        head = self._head(path)
        return None if head is None else str(head["ETag"])

    def open_output(self, path: str) -> Any:
        return _Upload(self, path)

    def write_text(self, path: str, text: str) -> None:
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, content: bytes) -> str:
        """Create or replace an object; returns its ETag."""
        bucket, key = place_of(path)
        with self._explained():
            answer = self._client.put_object(Bucket=bucket, Key=key, Body=content)
        return str(answer["ETag"])

    def write_new(self, path: str, text: str) -> str | None:
        """Write an object that must not exist; returns its ETag, None if it exists."""
        return self._write_if(path, text, IfNoneMatch="*")

    def write_over(self, path: str, text: str, tag: str) -> str | None:
        """Replace an object if it still has this ETag; returns the new one, None if it has not."""
        return self._write_if(path, text, IfMatch=tag)

    def _write_if(self, path: str, text: str, **condition: str) -> str | None:
        bucket, key = place_of(path)
        with self._explained():
            try:
                answer = self._client.put_object(
                    Bucket=bucket, Key=key, Body=text.encode(), **condition
                )
            except self._client.exceptions.ClientError as error:
                if s3_client.is_refused_condition(error) or s3_client.is_missing(error):
                    return None
                raise
        return str(answer["ETag"])

    def modified_s(self, path: str) -> float | None:
        head = self._head(path)
        return None if head is None else float(head["LastModified"].timestamp())

    def open_input(self, path: str) -> Any:
        bucket, key = place_of(path)
        file = tempfile.SpooledTemporaryFile(_IN_MEMORY)
        with self._explained():
            try:
                self._client.download_fileobj(bucket, key, file)
            except self._client.exceptions.ClientError as error:
                if s3_client.is_missing(error):
                    raise FileNotFoundError(path) from None
                raise
        file.seek(0)
        return file

    def upload(self, path: str, file: Any) -> None:
        """Create or replace an object by the content of an open file."""
        bucket, key = place_of(path)
        with self._explained():
            self._client.upload_fileobj(file, bucket, key)

    def delete(self, path: str) -> None:
        bucket, key = place_of(path)
        with self._explained():
            self._client.delete_object(Bucket=bucket, Key=key)
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=f"{key.rstrip('/')}/"
            )
            for page in pages:
                keys = [{"Key": one["Key"]} for one in page.get("Contents", ())]
                if keys:
                    self._client.delete_objects(Bucket=bucket, Delete={"Objects": keys})

    def delete_file(self, path: str, tag: str | None = None) -> bool:
        """Delete one object, if it is there: one request, where `delete` also lists a folder.

        With `tag` only if it has this ETag, in stores that know this condition. Returns False if
        the object has another one.
        """
        bucket, key = place_of(path)
        condition = {} if tag is None else {"IfMatch": tag}
        with self._explained():
            try:
                self._client.delete_object(Bucket=bucket, Key=key, **condition)
            except self._client.exceptions.ClientError as error:
                if s3_client.is_refused_condition(error):
                    return False
                if not s3_client.is_missing(error):
                    raise
        return True

    @property
    def _client(self) -> Any:
        return s3_client.client(self._options)

    def _explained(self) -> Any:
        return s3_client.explained(self._location, self._options)


class _Upload(io.BufferedIOBase):
    """Buffers what is written; `close` uploads it, unless the block ended with an error."""

    def __init__(self, files: ObjectFiles, path: str) -> None:
        self._files, self._path = files, path
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
            self._files.upload(self._path, self._buffer)
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


def place_of(path: str) -> tuple[str, str]:
    """The bucket and the key of a path."""
    bucket, key = bucket_and_key(s3_location(path))
    return bucket, key
