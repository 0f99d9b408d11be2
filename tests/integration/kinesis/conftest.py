"""A Kinesis service (moto's server) and streams in it."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from moto.kinesis.models import Shard, Stream
from moto.server import ThreadedMotoServer
from tests.integration.runtime.conftest import shop as shop

REGION = "us-east-1"
KEYS = {"aws_access_key_id": "streamhouse", "aws_secret_access_key": "secret"}


@dataclass
class StreamUnderTest:
    """One stream; `hash_keys` has a value in the range of each shard of a new stream."""

    client: Any
    name: str
    url: str
    shards: int

    @property
    def options(self) -> dict[str, str]:
        """Options of a table over the stream, without its format."""
        return {
            "stream": self.name,
            "aws.region": REGION,
            "aws.endpoint": self.url,
            "aws.credentials.provider": "BASIC",
            "aws.credentials.basic.accesskeyid": KEYS["aws_access_key_id"],
            "aws.credentials.basic.secretkey": KEYS["aws_secret_access_key"],
            "source.init.position": "TRIM_HORIZON",
            "source.shard.discovery.interval": "200 ms",
        }

    def hash_key(self, shard: int) -> str:
        """A hash key in the range of a shard of the new stream."""
        return str((2 * shard + 1) * 2**128 // (2 * self.shards))

    def put(self, numbers: Sequence[int], shard: int) -> None:
        """Put `{"n": …}` for each number into a shard of the new stream, or its children."""
        for number in numbers:
            self.put_data(json.dumps({"n": number}).encode(), shard)

    def put_data(self, data: bytes, shard: int) -> None:
        self.client.put_record(
            StreamName=self.name,
            Data=data,
            PartitionKey="k",
            ExplicitHashKey=self.hash_key(shard),
        )

    def create(self) -> None:
        self.client.create_stream(StreamName=self.name, ShardCount=self.shards)
        self.client.get_waiter("stream_exists").wait(
            StreamName=self.name, WaiterConfig={"Delay": 1, "MaxAttempts": 20}
        )

    def recreate(self) -> None:
        """Delete the stream, and create one of the same name shortly later."""
        self.client.delete_stream(StreamName=self.name)
        time.sleep(1.1)
        self.create()

    def shard_ids(self) -> list[str]:
        return [
            shard["ShardId"] for shard in self.client.list_shards(StreamName=self.name)["Shards"]
        ]


def _open_shard(stream: Stream, partition_key: str, explicit_hash_key: str) -> Shard:
    """The open shard of a record: moto also puts records into closed ones, AWS does not."""
    hash_key = int(explicit_hash_key)
    return next(
        shard
        for shard in stream.shards.values()
        if shard.is_open and shard.starting_hash <= hash_key <= shard.ending_hash
    )


def _keeping_records(reshard: Callable[..., None]) -> Callable[..., None]:
    """Split or merge shards as AWS does: the closed ones keep their records, moto moves them."""

    def resharded(stream: Stream, *arguments: str) -> None:
        kept = {shard: shard.records for shard in stream.shards.values()}
        for shard in kept:
            shard.records = OrderedDict()
        reshard(stream, *arguments)
        for shard, records in kept.items():
            shard.records = records

    return resharded


@pytest.fixture(scope="package")
def kinesis() -> Iterator[str]:
    """The URL of the service."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "get_shard_for_key", _open_shard)
        patch.setattr(Stream, "split_shard", _keeping_records(Stream.split_shard))
        patch.setattr(Stream, "merge_shards", _keeping_records(Stream.merge_shards))
        yield from _serving()


def _serving() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def stream(kinesis: str) -> Iterator[StreamUnderTest]:
    """A new stream of two shards."""
    client = boto3.client("kinesis", region_name=REGION, endpoint_url=kinesis, **KEYS)
    stream = StreamUnderTest(client, f"orders-{uuid.uuid4().hex[:8]}", kinesis, 2)
    stream.create()
    yield stream
    client.close()
