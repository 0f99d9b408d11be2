"""Uploads that an S3 store no longer has; moto and Amazon S3 answer differently."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.stub import Stubber

from streamhouse.connectors.base import WrittenBatch
from streamhouse.connectors.filesystem.folders import folder_of
from streamhouse.connectors.filesystem.options import FilesystemOptions
from streamhouse.connectors.filesystem.sink import FilesCommitter
from streamhouse.errors import DataLossError, StoreError
from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles

STORE = {
    "s3.endpoint": "http://127.0.0.1:9", "s3.access-key": "a", "s3.secret-key": "b",
}  # fmt: skip
UPLOAD = json.dumps({"id": "u", "parts": ["t"]})


def answered() -> dict[str, Any]:
    """The answer about an object."""
    return {"ETag": "e", "ResponseMetadata": {"HTTPStatusCode": 200}}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """What the store answers, request by request."""
    objects = ObjectFiles("s3://b/x", STORE)
    monkeypatch.setattr(
        "streamhouse.connectors.filesystem.folders.objects_of", lambda path, store: objects
    )
    client = s3_client.client(objects.options)
    with Stubber(client) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.mark.parametrize("there", [True, False])
def test_an_upload_that_is_missing_was_completed_if_its_object_is_there(
    store: Stubber, there: bool
) -> None:
    store.add_client_error("get_object", "NoSuchKey", http_status_code=404)
    committer = FilesCommitter(FilesystemOptions("s3://b/x", "json", STORE), "q")
    made = WrittenBatch(0, [json.dumps([[UPLOAD, "a.json"]]).encode()])
    store.add_response("put_object", answered())
    store.add_client_error("complete_multipart_upload", "NoSuchUpload", http_status_code=404)
    if there:
        store.add_response("head_object", answered())
        store.add_response("put_object", answered())
        committer.put(made)
    else:
        store.add_client_error("head_object", "404", http_status_code=404)
        with pytest.raises(DataLossError, match=r"s3://b/x/a\.json of batch 0 is missing"):
            committer.put(made)


def test_a_store_that_was_never_reached_is_not_waited_for() -> None:
    store = {**STORE, "s3.region": "nowhere"}
    with pytest.raises(StoreError, match="nothing answers at http://127.0.0.1:9"):
        folder_of("s3://b/x", store).files()
