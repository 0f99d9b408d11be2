"""Objects that one process uploads in parts, and another one makes visible."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from streamhouse.paimon.storage.object_store.object_files import MISSING, ObjectFiles
from streamhouse.paimon.storage.object_store.s3_client import bucket_and_key

_PART_BYTES = 16 << 20


class StagedObjects(ObjectFiles):
    """`ObjectFiles` with multipart uploads, which other processes complete or give up.

    An upload is a text: its id, and the ETags of its parts.
    """

    def entries(self, path: str) -> Iterator[tuple[str, int, datetime]]:
        """The object at `path` (under the name ''), else all below it: name, bytes, time."""
        head = self.head(path)
        if head is not None:
            yield "", int(head["ContentLength"]), head["LastModified"]
            return
        _, key = bucket_and_key(path)
        prefix = f"{key.rstrip('/')}/" if key else ""
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
        bucket, key = bucket_and_key(path)
        found = []
        with self.explained():
            pages = self.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=bucket, Prefix=f"{key.rstrip('/')}/"
            )
            for page in pages:
                for upload in page.get("Uploads", ()):
                    found.append((f"s3://{bucket}/{upload['Key']}", upload["UploadId"]))
        return found
