"""Which shards a batch of a Kinesis stream reads, and what its offset records."""

from __future__ import annotations

import json

import pytest

from streamhouse.connectors.json_records import from_json, to_json
from streamhouse.connectors.kinesis.options import DECLARED, parse
from streamhouse.connectors.kinesis.source import ShardOffset, StreamOffset
from streamhouse.connectors.kinesis.stream import Shard, Start
from streamhouse.errors import OptionError

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
LISTED = {
    one.id: one
    for one in (
        Shard("s0", (), closed=True),
        Shard("s1", (), closed=True),
        Shard("s2", ("s0",), closed=True),
        Shard("s3", ("s2", "s1")),
        Shard("s4", ("expired",)),
    )
}


def offset(**shards: ShardOffset) -> StreamOffset:
    return StreamOffset("orders created 1", 1000, 0, shards, init=500)


def test_a_shard_is_read_once_all_its_parents_are_done() -> None:
    assert offset().readable(LISTED) == ["s0", "s1", "s4"]
    done = ShardOffset(7, done=True)
    assert offset(s0=done).readable(LISTED) == ["s1", "s2", "s4"]
    assert offset(s0=done, s1=done).readable(LISTED) == ["s2", "s4"]
    assert offset(s0=done, s1=done, s2=ShardOffset(9)).readable(LISTED) == ["s2", "s4"]
    assert offset(s0=done, s1=done, s2=done).readable(LISTED) == ["s3", "s4"]


def test_an_offset_is_the_same_after_its_record_in_spark() -> None:
    large = 49590338271490256608559692538361571095921575989136588898
    before = offset(s1=ShardOffset(large), s0=ShardOffset(None, done=True))
    recorded = json.dumps(to_json(before))
    assert json.loads(recorded) == {
        "stream": "orders created 1", "at": 1000, "behind": 0, "init": 500,
        "shards": {"s0": {"done": True}, "s1": {"after": str(large)}},
    }  # fmt: skip
    assert from_json(StreamOffset, json.loads(recorded)) == before


def test_done_shards_are_forgotten_once_their_records_have_expired() -> None:
    done = ShardOffset(7, done=True)
    after = offset(old=done, s0=done).advanced({"s1": ShardOffset(3)}, 2000, 2500, LISTED)
    assert after.shards == {"s0": done, "s1": ShardOffset(3)}
    assert (after.at, after.behind) == (2000, 500)


def test_where_a_shard_is_read_from() -> None:
    assert offset(s0=ShardOffset(7)).start("s0") == Start(after=7)
    assert offset().start("s0") == Start(time_ms=500)
    assert StreamOffset("orders created 1", 1000, 0, {}).start("s0") == Start()


def test_options_of_release_4() -> None:
    options = parse(
        DECLARED.current(
            {
                "format": "json",
                "stream": "orders",
                "aws.region": "eu-west-1",
                "scan.stream.initpos": "AT_TIMESTAMP",
                "scan.stream.initpos-timestamp": "1459799926.480",
                "scan.shard.discovery.intervalmillis": "2000",
                "scan.stream.recordpublisher": "EFO",
            }
        )
    )
    assert (options.name, options.region, options.init) == ("orders", "eu-west-1", "AT_TIMESTAMP")
    assert (options.init_ms, options.discovery_ms) == (1459799926480, 2000)


def test_the_region_and_the_name_are_those_of_the_arn() -> None:
    options = parse({"format": "json", "stream.arn": ARN})
    assert (options.name, options.region, options.init) == ("orders", "us-east-1", "LATEST")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of the options 'stream.arn' and 'stream'"),
        ({"stream": "a", "stream.arn": ARN}, "one of the options 'stream.arn' and 'stream'"),
        ({"stream.arn": "orders"}, "'orders' is not the ARN of a stream"),
        ({"stream": "a", "source.init.position": "EARLIEST"}, "TRIM_HORIZON"),
        ({"stream": "a", "source.init.position": "AT_TIMESTAMP"}, "needs 'source.init.timestamp'"),
        (
            {
                "stream": "a",
                "source.init.position": "AT_TIMESTAMP",
                "source.init.timestamp": "2024-05-06",
            },
            "not a timestamp with a zone",
        ),
        ({"stream": "a", "aws.credentials.provider": "BASIC"}, "basic.accesskeyid"),
        (
            {"stream": "a", "aws.credentials.profile.name": "x"},
            "needs 'aws.credentials.provider' = 'PROFILE'",
        ),
        ({"stream": "a", "source.shard.get-records.interval": "50 ms"}, "the least is '200ms'"),
        ({"stream": "a", "source.shard.get-records.max-record-count": "10001"}, "10000"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse({"format": "json", **options})
