"""Files of an S3-compatible object store, each of which is one object."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.paimon.storage.object_store.object_requests import ObjectRequests
from streamhouse.paimon.storage.object_store.s3_client import bucket_and_key

_IN_MEMORY = 16 << 20


class ObjectFiles:
    """`Files` of one bucket. An object is replaced as a whole, and is visible once it is complete.

    Errors of the store are `StreamhouseError`; missing objects are as `Files` says. `requests` are
    for what has more than a file: ETags and conditions.
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
        self.requests.delete(path)


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


_PART_BYTES = 16 << 20


class StagedObjects(ObjectFiles):
    """`ObjectFiles` with multipart uploads, which other processes complete or give up.

    An upload is a text: its id, and the ETags of its parts.
    """

    def entries(self, path: str) -> Iterator[tuple[str, int, datetime]]:
        """The object at `path` (under the name ''), else all below it: name, bytes, time."""
        head = self.requests.head(path)
        if head is not None:
            yield "", int(head["ContentLength"]), head["LastModified"]
            return
        _, key = bucket_and_key(path)
        prefix = f"{key.rstrip('/')}/" if key else ""
        with self.requests.explained():
            for page in self.requests.pages(path):
                for item in page.get("Contents", ()):
                    # Some programs make empty objects that stand for folders.
                    if not item["Key"].endswith("/"):
                        yield item["Key"][len(prefix) :], int(item["Size"]), item["LastModified"]

    def size(self, path: str) -> int | None:
        """The bytes of an object; None if there is none."""
        head = self.requests.head(path)
        return None if head is None else int(head["ContentLength"])

    def upload_parts(self, path: str, local: Path) -> str:
        """Upload a local file without making it visible; returns the upload."""
        bucket, key = bucket_and_key(path)
        with self.requests.explained(), local.open("rb") as file:
            made = self.requests.client.create_multipart_upload(Bucket=bucket, Key=key)
            etags: list[str] = []
            while (part := file.read(_PART_BYTES)) or not etags:
                answer = self.requests.client.upload_part(
                    Bucket=bucket, Key=key, UploadId=made["UploadId"],
                    PartNumber=len(etags) + 1, Body=part,
                )  # fmt: skip
                etags.append(answer["ETag"])
        return json.dumps({"id": made["UploadId"], "parts": etags})

    def complete_upload(self, path: str, upload: str) -> bool:
        """Make an upload visible; False if neither it nor its object is there."""
        bucket, key = bucket_and_key(path)
        known = json.loads(upload)
        parts = [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(known["parts"], 1)]
        with self.requests.explained():
            try:
                self.requests.client.complete_multipart_upload(
                    Bucket=bucket, Key=key, UploadId=known["id"], MultipartUpload={"Parts": parts}
                )
            except self.requests.client.exceptions.ClientError as error:
                if not s3_client.is_missing_upload(error):
                    raise
                # It was completed before, perhaps by this request, whose answer was lost.
                return self.requests.head(path) is not None
        return True

    def abort_upload(self, path: str, upload: str) -> None:
        """Give an upload up, if it is still there."""
        bucket, key = bucket_and_key(path)
        with self.requests.explained():
            try:
                self.requests.client.abort_multipart_upload(
                    Bucket=bucket, Key=key, UploadId=json.loads(upload)["id"]
                )
            except self.requests.client.exceptions.ClientError as error:
                if not s3_client.is_missing_upload(error):
                    raise

    def uploads(self, path: str) -> list[tuple[str, str]]:
        """The paths and ids of all uploads below a path that are neither completed nor given up."""
        bucket, key = bucket_and_key(path)
        found = []
        with self.requests.explained():
            pages = self.requests.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=bucket, Prefix=f"{key.rstrip('/')}/"
            )
            for page in pages:
                for upload in page.get("Uploads", ()):
                    found.append((f"s3://{bucket}/{upload['Key']}", upload["UploadId"]))
        return found
