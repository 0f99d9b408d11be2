"""The `kinesis` source against a Kinesis service: batches, replays, resharding, lost records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.kinesis.conftest import StreamUnderTest
from tests.integration.runtime.conftest import Shop
from tests.kinesis_records import AggregatedRecord
from tests.waiting import looks

from streamhouse.connectors.kinesis.connector import CONNECTOR
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import ConnectError, DataLossError, RecordError
from streamhouse.runtime.replay_requests import request_replay
from streamhouse.source import Offset, Source
from streamhouse.sql.plan import Column

pytestmark = pytest.mark.usefixtures("in_threads")

COLUMNS = (Column("n", "BIGINT"), Column("shard", "STRING", metadata="shard-id"))


@contextmanager
def opened(stream: StreamUnderTest, **options: str) -> Iterator[Any]:
    given = {**stream.options, "format": "json", **options}
    source = CONNECTOR.source(SourceSpec("kinesis", given, COLUMNS), None)
    try:
        yield source
    finally:
        source.close()


def rows(source: Source, start: Offset, end: Offset) -> list[tuple[int, str]]:
    """The rows of a batch."""
    return [
        (row["n"], row["shard"])
        for partition in source.partitions(start, end)
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]


def batches(source: Any, start: Offset, count: int) -> tuple[list[tuple[int, str]], Offset]:
    """Read batches until there are `count` rows and nothing more; the rows and the offset."""
    found: list[tuple[int, str]] = []
    for _ in looks():
        end = source.latest_offset(start)
        found += rows(source, start, end)
        start = end
        if len(found) >= count and source.caught_up(start):
            break
    return found, start


def test_each_record_once_in_the_order_of_its_shard(stream: StreamUnderTest) -> None:
    with opened(stream) as source:
        stream.put(range(30), 0)
        first, offset = batches(source, {}, 30)
        stream.put(range(100, 120), 1)
        stream.put(range(30, 40), 0)
        second, offset = batches(source, offset, 30)
        assert source.latest_offset(offset) == offset
    assert [n for n, _ in first] == list(range(30))
    assert [n for n, _ in second if n < 100] == list(range(30, 40))
    assert [n for n, _ in second if n >= 100] == list(range(100, 120))
    assert len({shard for _, shard in first + second}) == 2


def test_an_aggregated_record_loses_the_rows_that_belong_to_another_shard(
    stream: StreamUnderTest,
) -> None:
    messages = AggregatedRecord()
    for n, shard in ((1, 0), (2, 1), (3, 0)):
        messages.add(b'{"n": %d}' % n, stream.hash_key(shard))
    stream.put_data(messages.packed(), 0)
    stream.put([4], 1)
    with opened(stream) as source:
        found, _ = batches(source, {}, 3)
    assert sorted(n for n, _ in found) == [1, 3, 4]


def test_a_replayed_batch_has_the_same_rows(stream: StreamUnderTest) -> None:
    stream.put(range(20), 0)
    stream.put(range(20, 30), 1)
    with opened(stream) as source:
        start = source.latest_offset({})
        end = start
        while end == start:
            end = source.latest_offset(start, 8)
        before = rows(source, start, end)
        assert 1 <= len(before) <= 8
    stream.put(range(50, 60), 0)
    with opened(stream) as source:
        source.check(end)
        assert rows(source, start, end) == before
        rest, _ = batches(source, end, 40 - len(before))
    assert Counter(n for n, _ in before + rest) == Counter([*range(30), *range(50, 60)])


def test_new_shards_are_read_after_their_parents(stream: StreamUnderTest) -> None:
    stream.put(range(10), 1)
    with opened(stream) as source:
        found, offset = batches(source, {}, 10)
        stream.put(range(10, 20), 1)
        stream.client.split_shard(
            StreamName=stream.name,
            ShardToSplit=stream.shard_ids()[1],
            NewStartingHashKey=str(7 * 2**128 // 8),
        )
        stream.put(range(20, 30), 1)
        more, offset = batches(source, offset, 20)
        assert [n for n, _ in found + more] == list(range(30))
        assert {shard for _, shard in more} == set(stream.shard_ids()[1:3])
        assert offset["shards"][stream.shard_ids()[1]] == {"after": "20", "done": True}
    left, right = stream.shard_ids()[2:]
    stream.put(range(30, 35), 1)
    stream.client.merge_shards(
        StreamName=stream.name, ShardToMerge=left, AdjacentShardToMerge=right
    )
    stream.put(range(35, 40), 1)
    with opened(stream) as source:
        source.check(offset)
        last, _ = batches(source, offset, 10)
    assert [n for n, _ in last] == list(range(30, 40))


def test_latest_begins_with_records_that_arrive_later(stream: StreamUnderTest) -> None:
    stream.put(range(10), 0)
    time.sleep(0.05)
    with opened(stream, **{"source.init.position": "LATEST"}) as source:
        offset = source.latest_offset({})
        stream.put(range(10, 15), 0)
        found, _ = batches(source, offset, 5)
    assert [n for n, _ in found] == list(range(10, 15))


def test_a_stream_that_was_created_again_is_another_one(stream: StreamUnderTest) -> None:
    stream.put([1], 0)
    with opened(stream) as source:
        _, offset = batches(source, {}, 1)
    stream.recreate()
    with opened(stream) as source, pytest.raises(DataLossError, match="created again"):
        source.check(offset)


def test_records_that_expired_before_they_were_read(stream: StreamUnderTest) -> None:
    stream.put([1, 2, 3], 0)
    with opened(stream) as source:
        _, offset = batches(source, {}, 3)
        old = {**offset, "at": offset["at"] - 25 * 3_600_000}
        source.check(old)
        expired = {**old, "shards": {stream.shard_ids()[0]: {"after": "0"}}}
        with pytest.raises(DataLossError, match="retention period of 24 hours"):
            source.check(expired)
        lost = {**offset, "shards": {stream.shard_ids()[0]: {"after": "9"}}}
        source._read = {}
        with pytest.raises(DataLossError, match="are gone"):
            rows(source, offset, lost)


def test_a_record_that_is_no_json_names_its_position(stream: StreamUnderTest) -> None:
    stream.put_data(b"nonsense", 0)
    with (
        opened(stream) as source,
        pytest.raises(RecordError, match="0, record 1: not a JSON object"),
    ):
        batches(source, {}, 1)


def test_a_stream_that_does_not_exist(stream: StreamUnderTest) -> None:
    missing = {**stream.options, "stream": "nothing", "format": "json"}
    source = CONNECTOR.source(SourceSpec("kinesis", missing, COLUMNS), None)
    with pytest.raises(ConnectError, match="there is no Kinesis stream nothing in the region us-e"):
        source.latest_offset({})


def copying(stream: StreamUnderTest, kind: str = "BIGINT", **more: str) -> str:
    """A script that copies a stream into the table `copies`."""
    given = {**stream.options, **more}
    options = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    return f"""
        CREATE TEMPORARY TABLE numbers (
          n {kind}, shard STRING METADATA FROM 'shard-id' VIRTUAL,
          arrived TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL
        ) WITH ('connector' = 'kinesis', 'format' = 'json', {options});
        CREATE TABLE IF NOT EXISTS copies (n BIGINT, shard STRING, arrived TIMESTAMP_LTZ(3));
        INSERT INTO copies SELECT TRY_CAST(n AS BIGINT), shard, arrived FROM numbers"""


def test_a_script_over_a_stream_survives_a_crash(shop: Shop, stream: StreamUnderTest) -> None:
    script = copying(stream)
    stream.put(range(50), 0)
    with shop.failing_here(script, "target-committed:0") as until:
        until(lambda: True)
    stream.put(range(50, 70), 1)
    shop.settle_here(script)
    found = shop.rows("copies")
    assert Counter(row["n"] for row in found) == Counter(range(70))
    assert {row["shard"] for row in found} == set(stream.shard_ids())
    assert all(abs(row["arrived"].timestamp() - time.time()) < 600 for row in found)


def test_bad_records_are_kept_once_and_replayed_after_a_crash(
    shop: Shop, stream: StreamUnderTest
) -> None:
    keep = {"bad-records": "table", "bad-records.table": "late.bad"}
    stream.put(range(10), 0)
    stream.put_data(b'{"n": "ten"}', 0)
    stream.put_data(b"no json", 1)
    with shop.failing_here(copying(stream, **keep), "target-committed:1"):
        pass
    stream.put(range(11, 20), 1)
    shop.settle_here(copying(stream, **keep))
    assert sorted(row["n"] for row in shop.rows("copies")) == [*range(10), *range(11, 20)]
    table = shop.warehouse.table("late.bad")
    kept = [row for batch in table.read() for row in batch.to_pylist()]
    assert Counter(row["value"] for row in kept) == {b'{"n": "ten"}': 1, b"no json": 1}
    assert {row["source"] for row in kept} == {"default.numbers"}
    request_replay(shop.warehouse.options, "late.bad")
    mended = copying(stream, "STRING", **keep)
    shop.settle_here(mended)
    shop.settle_here(mended)
    found = shop.rows("copies")
    assert [row["n"] for row in found].count(None) == 1 and len(found) == 20
    (ten,) = [row for row in found if row["n"] is None]
    assert ten["shard"] == stream.shard_ids()[0]
