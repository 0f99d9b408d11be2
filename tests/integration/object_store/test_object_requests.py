"""Requests for single objects: any names, ETags and conditions, faults, errors."""

from __future__ import annotations

import pytest
from tests.integration.object_store.faulty_proxy import Fault, FaultyProxy, Request

from streamhouse.demo.s3_server import BUCKET, S3Server
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles


@pytest.fixture
def requests(s3: S3Server, proxy: FaultyProxy) -> ObjectFiles:
    return ObjectFiles(f"s3://{BUCKET}/direct", s3.options(proxy.url))


@pytest.mark.parametrize("name", ["a", "pt=ä b+c%20/x~(1)'!", "k=1:2,é&?#[]/@$*;", "a//b"])
def test_objects_of_any_name(requests: ObjectFiles, name: str) -> None:
    path = f"s3://{BUCKET}/direct/{name}"
    written = requests.put(path, b"one")
    assert requests.get(path) == (b"one", written)
    facts = requests.head(path)
    assert facts is not None and (facts["ETag"], facts["ContentLength"]) == (written, 3)
    assert requests.create(path, "two") is None
    replaced = requests.replace(path, "two", written)
    assert replaced is not None and requests.replace(path, "three", written) is None
    assert not requests.delete_object(path, written)
    assert requests.delete_object(path, replaced)
    assert requests.get(path) is None and requests.head(path) is None


@pytest.mark.parametrize("fault", [one for one in Fault if one is not Fault.SLOW])
def test_a_fault_costs_one_more_request(
    requests: ObjectFiles, proxy: FaultyProxy, fault: Fault
) -> None:
    path = f"s3://{BUCKET}/direct/{fault.name}"

    def first(request: Request) -> Fault | None:
        return fault if len(proxy.injected) < 1 else None

    proxy.choose = first
    etag = requests.put(path, b"content")
    proxy.injected.clear()
    assert requests.get(path) == (b"content", etag)
    assert len(proxy.injected) == 1


def test_errors_are_those_of_boto3(s3: S3Server) -> None:
    options = {**s3.options(), "s3.secret-key": "other"}
    missing = ObjectFiles("s3://no-such-bucket/a", options)
    for call in (missing.get, lambda path: missing.put(path, b"")):
        with pytest.raises(StreamhouseError, match="the bucket 'no-such-bucket' does not exist"):
            call("s3://no-such-bucket/a/b")
