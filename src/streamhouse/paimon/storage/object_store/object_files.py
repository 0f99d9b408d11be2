"""Files of an S3-compatible object store, each of which is one object.

An ETag identifies the content that a writer has seen. Writes on condition that an object is missing
or unchanged are what locks, snapshots and registrations of checkpoints are made of.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.paimon.storage.object_store.s3_client import bucket_and_key
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.sql.options.store_options import CONDITIONAL, canonical_options, s3_location

_IN_MEMORY = 16 << 20
_PART_BYTES = 16 << 20
_BODY_TRIES = 3
MISSING, _REFUSED = 404, 412
"""The statuses of a missing object, and of a request whose condition is not met."""


@dataclass(frozen=True)
class Answer:
    """A response of boto3, with the content of its body; of a refused request, the status alone."""

    status: int
    facts: Mapping[str, Any]
    content: bytes

    @property
    def etag(self) -> str:
        """The ETag of the object."""
        found = self.facts.get("ETag")
        if found is None:
            raise StreamhouseError(
                "an answer of the object store has no ETag; check that the option 's3.endpoint' "
                "(AWS_ENDPOINT_URL_S3) is the address of a store with S3's interface"
            )
        return str(found)


class ObjectFiles:
    """`Files` of one bucket, and requests with ETags and conditions; `options` are the catalog's.

    An object is replaced as a whole, and is visible once it is complete. Errors of the store are
    `StreamhouseError`; missing objects are as `Files` says. boto3 repeats a request whose answer is
    lost, so who relies on conditions of writes expects that an earlier attempt has succeeded.
    Multipart uploads can be completed, or given up, by another process: an upload is a text, its
    id and the ETags of its parts.
    """

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

    @property
    def has_conditions(self) -> bool:
        """Whether the store has conditional writes, as far as the user's options say."""
        return self.options.get(CONDITIONAL, "true") == "true"

    def send(self, operation: str, path: str, **given: Any) -> Answer:
        """The answer to a request for one object, such as `get_object`.

        `given` are parameters of boto3, such as `Body` or `IfMatch`. A missing object or upload is
        a 404, a condition that is not met a 412.
        """
        from botocore.exceptions import ClientError

        bucket, key = bucket_and_key(path)
        with self.explained():
            try:
                facts = getattr(self.client, operation)(Bucket=bucket, Key=key, **given)
                content = facts["Body"].read() if "Body" in facts else b""
            except ClientError as error:
                status = s3_client.plain_status(error)
                conditional = not given.keys().isdisjoint(("IfMatch", "IfNoneMatch"))
                if not status or (status == _REFUSED and not conditional):
                    raise
                return Answer(status, {}, b"")
        return Answer(facts["ResponseMetadata"]["HTTPStatusCode"], facts, content)

    def explained(self) -> Any:
        """Turns boto3's errors in its block into `StreamhouseError`."""
        return s3_client.explained(self._location, self.options)

    def get(self, path: str) -> tuple[bytes, str] | None:
        """The content of an object, and its ETag; None if there is no such object."""
        # boto3 does not repeat a request whose response's body is cut off.
        answer = retried(lambda: self.send("get_object", path), _BODY_TRIES)
        return None if answer.status == MISSING else (answer.content, answer.etag)

    def read(self, path: str) -> tuple[str, str] | None:
        """As `get`, the content as text."""
        found = self.get(path)
        return None if found is None else (found[0].decode(), found[1])

    def head(self, path: str) -> Mapping[str, Any] | None:
        """What the store knows of an object besides its content; None if there is none."""
        answer = self.send("head_object", path)
        return None if answer.status == MISSING else {**answer.facts, "ETag": answer.etag}

    def etag(self, path: str) -> str | None:
        """The ETag of an object; None if there is no such object."""
        head = self.head(path)
        return None if head is None else str(head["ETag"])

    def put(self, path: str, content: bytes) -> str:
        """Create or replace an object, whatever is there; returns its ETag."""
        return self.send("put_object", path, Body=content).etag

    def create(self, path: str, text: str) -> str | None:
        """Write an object that must not exist; returns its ETag, None if it exists."""
        return self._put_if(path, text, IfNoneMatch="*")

    def replace(self, path: str, text: str, etag: str) -> str | None:
        """Replace an object if it still has this ETag; returns the new one, None if it has not."""
        return self._put_if(path, text, IfMatch=etag)

    def _put_if(self, path: str, text: str, **condition: str) -> str | None:
        answer = self.send("put_object", path, Body=text.encode(), **condition)
        return answer.etag if answer.status == 200 else None

    def delete_object(self, path: str, etag: str | None = None) -> bool:
        """Delete one object, if it is there.

        With `etag` only if it has this ETag, in stores that know this condition. Returns False if
        the object has another one.
        """
        condition = {} if etag is None else {"IfMatch": etag}
        return self.send("delete_object", path, **condition).status != _REFUSED

    def pages(self, path: str, **more: str) -> Iterator[Mapping[str, Any]]:
        """The pages of a listing of the folder at `path`; to be read within `explained`."""
        bucket, _ = bucket_and_key(path)
        paginator = self.client.get_paginator("list_objects_v2")
        yield from paginator.paginate(Bucket=bucket, Prefix=_below(path), **more)

    def read_text(self, path: str) -> str | None:
        found = self.read(path)
        return None if found is None else found[0]

    def exists(self, path: str) -> bool:
        return self.head(path) is not None

    def names(self, path: str) -> list[tuple[str, bool]]:
        prefix, result = _below(path), []
        with self.explained():
            for page in self.pages(path, Delimiter="/"):
                for folder in page.get("CommonPrefixes", ()):
                    result.append((folder["Prefix"][len(prefix) : -1], True))
                for item in page.get("Contents", ()):
                    # Some programs make an empty object that stands for the folder.
                    if item["Key"] != prefix:
                        result.append((item["Key"][len(prefix) :], False))
        return result

    def stamp(self, path: str) -> object | None:
        head = self.head(path)
        return None if head is None else (head["ETag"], head["LastModified"])

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        bucket, key = bucket_and_key(path)
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as buffer:
            yield buffer
            buffer.seek(0)
            with self.explained():
                self.client.upload_fileobj(buffer, bucket, key)

    def write_text(self, path: str, text: str) -> None:
        self.put(path, text.encode())

    def modified_s(self, path: str) -> float | None:
        head = self.head(path)
        return None if head is None else float(head["LastModified"].timestamp())

    def open_input(self, path: str) -> Any:
        bucket, key = bucket_and_key(path)
        file = tempfile.SpooledTemporaryFile(_IN_MEMORY)
        with self._present(path):
            self.client.download_fileobj(bucket, key, file)
        file.seek(0)
        return file

    def copy(self, source: str, target: str) -> None:
        (bucket, key), to = bucket_and_key(source), bucket_and_key(target)
        with self._present(source):
            self.client.copy({"Bucket": bucket, "Key": key}, *to)

    @contextmanager
    def _present(self, path: str) -> Iterator[None]:
        """As `explained`; `FileNotFoundError` if the object is missing."""
        with self.explained():
            try:
                yield
            except self.client.exceptions.ClientError as error:
                if s3_client.plain_status(error) == MISSING:
                    raise FileNotFoundError(path) from None
                raise

    def delete(self, path: str) -> None:
        bucket, key = bucket_and_key(path)
        client = self.client
        with self.explained():
            client.delete_object(Bucket=bucket, Key=key)
            for page in self.pages(path) if key else ():
                keys = [{"Key": item["Key"]} for item in page.get("Contents", ())]
                if keys:
                    client.delete_objects(Bucket=bucket, Delete={"Objects": keys})

    def entries(self, path: str) -> Iterator[tuple[str, int, datetime]]:
        """The object at `path` (under the name ''), else all below it: name, bytes, time."""
        head = self.head(path)
        if head is not None:
            yield "", int(head["ContentLength"]), head["LastModified"]
            return
        prefix = _below(path)
        with self.explained():
            for page in self.pages(path):
                for item in page.get("Contents", ()):
                    # Some programs make empty objects that stand for folders.
                    if not item["Key"].endswith("/"):
                        yield item["Key"][len(prefix) :], int(item["Size"]), item["LastModified"]

    def size(self, path: str) -> int | None:
        """The bytes of an object; None if there is none."""
        head = self.head(path)
        return None if head is None else int(head["ContentLength"])

    def upload_parts(self, path: str, local: Path) -> str:
        """Upload a local file without making it visible; returns the upload."""
        upload = self.send("create_multipart_upload", path).facts["UploadId"]
        etags: list[str] = []
        with local.open("rb") as file:
            while (part := file.read(_PART_BYTES)) or not etags:
                number = len(etags) + 1
                sent = self.send("upload_part", path, UploadId=upload, PartNumber=number, Body=part)
                etags.append(sent.etag)
        return json.dumps({"id": upload, "parts": etags})

    def complete_upload(self, path: str, upload: str) -> bool:
        """Make an upload visible; False if neither it nor its object is there."""
        known = json.loads(upload)
        parts = [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(known["parts"], 1)]
        answer = self.send(
            "complete_multipart_upload", path, UploadId=known["id"],
            MultipartUpload={"Parts": parts},
        )  # fmt: skip
        # It may have been completed before, perhaps by this request, whose answer was lost.
        return answer.status != MISSING or self.head(path) is not None

    def abort_upload(self, path: str, upload: str) -> None:
        """Give an upload up, if it is still there."""
        self.send("abort_multipart_upload", path, UploadId=json.loads(upload)["id"])

    def uploads(self, path: str) -> list[tuple[str, str]]:
        """The paths and ids of all uploads below a path that are neither completed nor given up."""
        bucket, _ = bucket_and_key(path)
        found = []
        with self.explained():
            pages = self.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=bucket, Prefix=_below(path)
            )
            for page in pages:
                for upload in page.get("Uploads", ()):
                    found.append((f"s3://{bucket}/{upload['Key']}", upload["UploadId"]))
        return found


def _below(path: str) -> str:
    """How the keys of the objects of a folder begin."""
    _, key = bucket_and_key(path)
    return f"{key}/" if key else ""
