"""Topics of a real Kafka broker as a source: offsets, replays, and what must not be overlooked."""

from __future__ import annotations

import json
import pickle
import re
import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions
from tests.integration.kafka.conftest import Open, Topic
from tests.waiting import DEADLINE_S, until

from streamhouse.connectors.kafka import reader
from streamhouse.connectors.kafka.client import consumer
from streamhouse.connectors.kafka.options import parse
from streamhouse.connectors.kafka.reader import PartitionReader, Range
from streamhouse.demo.kafka.broker import KafkaBroker
from streamhouse.errors import ConnectError, DataLossError, OptionError, TableError
from streamhouse.formats.base import RecordError
from streamhouse.sql.plan import Column

NOW = int(time.time()) * 1000
"""Retention would delete records that are older."""


def row(number: int) -> str:
    return json.dumps({"id": number, "name": f"n{number}"})


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [one["id"] for one in rows]


def test_batches_read_what_is_new_and_repeat_it(topic: Topic, opened: Open) -> None:
    topic.send(row(1), row(2))
    topic.send(row(3), partition=1)
    stream = opened(topic.name)
    first = stream.batch()
    assert sorted(ids(first)) == [1, 2, 3]
    assert first[0] == {"id": 1, "name": "n1"}
    middle = stream.offset
    assert stream.batch() == []
    assert stream.offset == middle
    topic.send(row(4))
    assert ids(stream.until(1)) == [4]
    # Another process repeats any batch by its offsets, also the first.
    other = opened(topic.name)
    other.offset = middle
    assert other.again({}) == first
    copy = pickle.loads(pickle.dumps(stream.source))
    assert [batch.num_rows for batch in copy.read(copy.partitions(middle, stream.offset)[0])] == [1]
    copy.close()


def test_read_limits_and_parallel_pieces(topic: Topic, opened: Open) -> None:
    topic.send(*(row(number) for number in range(60)))
    topic.send(*(row(number) for number in range(60, 80)), partition=1)
    stream = opened(topic.name)
    sizes = []
    found: list[int] = []
    while len(found) < 80:
        rows = stream.batch(max_rows=16, parallelism=2)
        sizes.append(len(rows))
        found += ids(rows)
        time.sleep(0.04)
    assert sorted(found) == list(range(80))
    assert max(sizes) <= 18


def test_a_batch_at_the_end_of_a_topic_does_not_wait_for_more_records(
    topic: Topic, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_POLL_S", 3600.0)
    topic.send(row(0))
    stream = opened(topic.name)
    stream.batch()
    for number in range(1, 6):
        topic.send(row(number))
        assert ids(stream.until(1)) == [number]


def test_startup_modes(topic: Topic, opened: Open) -> None:
    topic.send(row(1), timestamp=NOW - 2_000)
    topic.send(row(2), timestamp=NOW - 1_000)
    latest = opened(topic.name, {"scan.startup.mode": "latest-offset"})
    assert latest.batch() == []
    topic.send(row(3), timestamp=NOW)
    assert ids(latest.until(1)) == [3]
    timed = {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": str(NOW - 1_000)}
    assert ids(opened(topic.name, timed).batch()) == [2, 3]
    specific = {
        "scan.startup.mode": "specific-offsets",
        "scan.startup.specific-offsets": "partition:0,offset:2",
    }
    assert ids(opened(topic.name, specific).batch()) == [3]


def test_group_offsets_are_reported_and_can_be_the_start(topic: Topic, opened: Open) -> None:
    group = uuid.uuid4().hex
    topic.send(row(1), row(2))
    stream = opened(topic.name, {"properties.group.id": group})
    stream.batch()
    stream.source.committed(stream.offset)
    watcher = Consumer({"bootstrap.servers": topic.broker.servers, "group.id": group})
    partition = TopicPartition(topic.name, 0)
    until(lambda: watcher.committed([partition], DEADLINE_S)[0].offset == 2)
    watcher.close()
    topic.send(row(3))
    again = {"properties.group.id": group, "scan.startup.mode": "group-offsets"}
    with pytest.raises(OptionError, match="has no offset of topic .*auto.offset.reset"):
        opened(topic.name, {**again, "properties.group.id": uuid.uuid4().hex}).batch()
    assert ids(opened(topic.name, again).batch()) == [3]
    with pytest.raises(OptionError, match="needs 'properties.group.id'"):
        opened(topic.name, {"scan.startup.mode": ""}).batch()


def test_bounded_modes_end(topic: Topic, opened: Open) -> None:
    topic.send(row(1), row(2), row(3), timestamp=NOW - 2_000)
    stream = opened(topic.name, {"scan.bounded.mode": "latest-offset"})
    rows = stream.batch(max_rows=2)
    topic.send(row(4), timestamp=NOW - 1_000)
    assert not stream.source.finished(stream.offset)
    time.sleep(0.04)
    rows += stream.batch()
    assert ids(rows) == [1, 2, 3]
    assert stream.source.finished(stream.offset)
    assert stream.batch() == []
    specific = {
        "scan.bounded.mode": "specific-offsets",
        "scan.bounded.specific-offsets": "partition:0,offset:1",
    }
    assert ids(opened(topic.name, specific).batch()) == [1]
    timed = {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": str(NOW - 1_000)}
    assert ids(opened(topic.name, timed).batch()) == [1, 2, 3]


def test_new_partitions_and_topics_are_found(broker: KafkaBroker, opened: Open) -> None:
    name = uuid.uuid4().hex
    broker.create_topic(f"{name}-a", 1)
    options = {
        "topic-pattern": f"{name}-.*",
        "scan.startup.mode": "latest-offset",
        "scan.topic-partition-discovery.interval": "1 ms",
    }
    stream = opened(None, options)
    assert stream.batch() == []
    admin = broker.admin()
    for future in admin.create_partitions([NewPartitions(f"{name}-a", 2)]).values():
        future.result(DEADLINE_S)
    broker.create_topic(f"{name}-b", 1)
    Topic(broker, f"{name}-a").send(row(1), partition=1)
    Topic(broker, f"{name}-b").send(row(2))
    before = stream.offset
    assert sorted(ids(stream.until(2))) == [1, 2]
    # What is read of a new partition does not depend on when it is planned again.
    assert stream.offset != before


def test_records_of_aborted_transactions_are_left_out(topic: Topic, opened: Open) -> None:
    topic.send_in_transaction(row(1), row(2), commit=True)
    topic.send_in_transaction(row(3), commit=False)
    stream = opened(topic.name)
    assert ids(stream.batch()) == [1, 2]
    topic.send_in_transaction(row(4), commit=False)
    topic.send_in_transaction(row(5), commit=True)
    assert ids(stream.until(1)) == [5]
    dirty = opened(topic.name, {"properties.isolation.level": "read_uncommitted"})
    assert ids(dirty.batch()) == [1, 2, 3, 4, 5]


def test_what_retention_has_deleted_unread_is_data_loss(topic: Topic, opened: Open) -> None:
    topic.send(row(1), row(2), row(3))
    stream = opened(topic.name)
    stream.batch(max_rows=1)
    topic.send(row(4))
    admin = topic.broker.admin()
    for future in admin.delete_records([TopicPartition(topic.name, 0, 3)]).values():
        future.result(DEADLINE_S)
    time.sleep(0.04)
    with pytest.raises(DataLossError, match="retention has deleted them .the oldest left is 3.; "):
        stream.batch()
    with pytest.raises(DataLossError, match="--from-scratch"):
        stream.source.check(stream.offset)
    # A range that was planned before the deletion fails when it is read.
    planned = opened(topic.name)
    planned.offset = planned.source.latest_offset({})
    partition = planned.source.partitions({}, planned.offset)[0]
    for future in admin.delete_records([TopicPartition(topic.name, 0, 4)]).values():
        future.result(DEADLINE_S)
    with pytest.raises(DataLossError, match="from offset 3 have not been read"):
        list(planned.source.read(partition))


def test_an_offset_that_a_broker_refuses_although_it_has_it_is_no_data_loss(topic: Topic) -> None:
    topic.send(row(1), row(2))
    given = {
        "topic": topic.name,
        "properties.bootstrap.servers": topic.broker.servers,
        "format": "json",
    }
    options = parse(given, "table t")
    reader = PartitionReader(options)
    refused = consumer(options, {"enable.partition.eof": "true"})
    # The broker answers as one does that has just restarted: "offset out of range".
    refused.assign([TopicPartition(topic.name, 0, 10**6)])
    reader._consumer, reader._position = refused, (topic.name, 0, 0)
    found = [
        message.offset()
        for messages in reader.read(Range(topic.name, 0, 0, 2))
        for message in messages
    ]
    reader.close()
    assert found == [0, 1]


def test_a_topic_that_was_recreated_is_data_loss(topic: Topic, opened: Open) -> None:
    topic.send(row(1))
    stream = opened(topic.name)
    stream.batch()
    topic.broker.delete_topic(topic.name)
    time.sleep(0.04)
    with pytest.raises((DataLossError, TableError), match=topic.name):
        stream.source.check(stream.offset)
    topic.broker.create_topic(topic.name, 2)
    topic.send(row(1), row(2), row(3))
    time.sleep(0.04)
    with pytest.raises(DataLossError, match="was deleted and created anew"):
        stream.until(1)
    other = opened(topic.name)
    other.offset = stream.offset
    with pytest.raises(DataLossError, match="was deleted and created anew"):
        other.source.check(stream.offset)


def test_keys_metadata_and_headers(topic: Topic, opened: Open) -> None:
    topic.send(
        '{"name": "x"}', partition=1, key=b'{"id": 7}', timestamp=NOW + 123,
        headers=[("a", b"1"), ("a", b"2")],
    )  # fmt: skip
    columns = (
        Column("k_id", "BIGINT"), Column("name", "STRING"),
        Column("topic", "STRING", metadata="topic"), Column("p", "INT", metadata="partition"),
        Column("o", "BIGINT", metadata="offset"),
        Column("at", "TIMESTAMP_LTZ(3)", metadata="timestamp"),
        Column("how", "STRING", metadata="timestamp-type"),
        Column("headers", "MAP<STRING, BYTES>", metadata="headers"),
        Column("epoch", "INT", metadata="leader-epoch"),
    )  # fmt: skip
    options = {
        "format": "", "value.format": "json", "key.format": "json", "key.fields": "k_id",
        "key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY",
    }  # fmt: skip
    (found,) = opened(topic.name, options, columns).batch()
    at = found.pop("at")
    assert at.timestamp() * 1000 == pytest.approx(NOW + 123)
    assert found == {
        "k_id": 7, "name": "x", "topic": topic.name, "p": 1, "o": 0, "how": "CreateTime",
        "headers": [("a", b"2")], "epoch": 0,
    }  # fmt: skip


def test_a_bad_record_is_an_error_that_names_its_place(topic: Topic, opened: Open) -> None:
    topic.send(row(1), '{"id": "x"}')
    where = re.escape(
        f"topic {topic.name}, partition 0, offset 1: column 'id': \"x\" is not of type BIGINT"
    )
    with pytest.raises(RecordError, match=where):
        opened(topic.name).batch()


def test_a_record_without_value_has_no_row(topic: Topic, opened: Open) -> None:
    topic.send(row(1), None, row(2))
    assert ids(opened(topic.name).batch()) == [1, 2]


KEYED = {
    "format": "", "value.format": "json", "key.format": "json", "key.fields": "k",
    "value.fields-include": "EXCEPT_KEY",
}  # fmt: skip


def test_a_record_without_key_has_a_row(topic: Topic, opened: Open) -> None:
    topic.send('{"name": "a"}', key=b'{"k": 1}')
    topic.send('{"name": "b"}', '[{"name": "c"}, {"name": "d"}]')
    topic.send('{"name": "e"}', key=b'{"k": 5}')
    found = opened(topic.name, KEYED, (Column("k", "INT"), Column("name", "STRING"))).batch()
    assert [(row["k"], row["name"]) for row in found] == [
        (1, "a"), (None, "b"), (None, "c"), (None, "d"), (5, "e"),
    ]  # fmt: skip


def test_a_record_without_key_is_bad_if_its_column_needs_it(topic: Topic, opened: Open) -> None:
    # Without a value, it has no row that needs it.
    topic.send(None, '{"name": "b"}')
    columns = (Column("k", "INT", nullable=False), Column("name", "STRING"))
    with pytest.raises(RecordError, match="offset 1: column 'k' is NOT NULL, but the record has n"):
        opened(topic.name, KEYED, columns).batch()
    both = {**KEYED, "value.fields-include": "ALL"}
    topic.send('{"k": 3, "name": "b"}', partition=1)
    kept = opened(
        topic.name,
        {
            **both,
            "scan.startup.mode": "specific-offsets",
            "scan.startup.specific-offsets": "partition:0,offset:2",
        },
        columns,
    )
    assert kept.batch() == [{"k": 3, "name": "b"}]


@pytest.mark.parametrize("connector", ["kafka", "upsert-kafka"])
def test_a_key_of_several_objects_is_bad(topic: Topic, opened: Open, connector: str) -> None:
    topic.send('{"name": "a"}', key=b'[{"k": 1}, {"k": 2}]')
    columns = (Column("k", "INT", nullable=False), Column("name", "STRING"))
    options = {key: text for key, text in KEYED.items() if key != "key.fields"}
    with pytest.raises(RecordError, match="offset 0: key: 2 objects, but a record has one key"):
        opened(
            topic.name, KEYED if connector == "kafka" else options, columns, connector, ("k",)
        ).batch()


def test_the_last_row_of_a_value_is_that_of_its_key(topic: Topic, opened: Open) -> None:
    topic.send('[{"name": "a"}, {"name": "b"}]', key=b'{"k": 1}')
    topic.send('{"name": "c"}', key=b'{"k": 2}')
    topic.send('[{"name": "d"}, {"name": "e"}]', None, key=b'{"k": 3}')
    columns = (Column("k", "INT", nullable=False), Column("name", "STRING"))
    options = {key: text for key, text in KEYED.items() if key not in ("key.fields", "format")}
    found = opened(topic.name, options, columns, "upsert-kafka", ("k",)).batch()
    assert [(row["k"], row["name"], row["rowkind"]) for row in found] == [
        (1, "b", "+U"), (2, "c", "+U"), (3, "e", "+U"), (3, None, "-D"),
    ]  # fmt: skip


def test_patterns_match_no_topic_of_the_brokers_themselves(topic: Topic, opened: Open) -> None:
    topic.send(row(1))
    topic.send_in_transaction(row(2), commit=True)
    assert "__transaction_state" in topic.broker.admin().list_topics(timeout=DEADLINE_S).topics
    pattern = f"{topic.name}|__.*"
    assert ids(opened(None, {"topic-pattern": pattern}).until(2)) == [1, 2]
    with pytest.raises(TableError, match="has no topic that matches '__"):
        opened(None, {"topic-pattern": "__.*"}).batch()


def test_a_start_after_the_end_is_an_error(topic: Topic, opened: Open) -> None:
    topic.send(row(1), row(2))
    start = {
        "scan.startup.mode": "specific-offsets",
        "scan.startup.specific-offsets": "partition:0,offset:3",
    }
    with pytest.raises(OptionError, match="partition 0 ends at offset 2, but .* start at offset 3"):
        opened(topic.name, start).batch()
    start["scan.startup.specific-offsets"] = "partition:0,offset:2"
    stream = opened(topic.name, start)
    assert stream.batch() == []
    topic.send(row(3))
    assert ids(stream.until(1)) == [3]


def test_lag_counts_unread_records(topic: Topic, opened: Open) -> None:
    topic.send(row(1), row(2), row(3))
    stream = opened(topic.name)
    stream.batch(max_rows=1)
    lag = stream.source.lag(stream.offset)
    assert lag is not None and lag.rows == 2 and (lag.seconds or 0) >= 0


def test_errors_say_what_is_wrong(topic: Topic, opened: Open) -> None:
    wrong = topic.name[:-1] + "_"
    with pytest.raises(TableError, match=f"has no topic '{wrong}'; did you mean '{topic.name}'"):
        opened(wrong).batch()
    with pytest.raises(TableError, match="has no topic that matches 'zz.*'"):
        opened(None, {"topic-pattern": "zz.*"}).batch()
    with pytest.raises(OptionError, match="unknown option 'scan.startup.mod'; did you mean"):
        opened(topic.name, {"scan.startup.mod": "x"})
    with pytest.raises(OptionError, match="No such configuration property"):
        opened(topic.name, {"properties.acsk": "1"}).batch()
    with pytest.raises(ConnectError, match="check 'properties.bootstrap.servers'"):
        opened(topic.name, {"properties.bootstrap.servers": "127.0.0.1:9"}).batch()


def test_the_broker_may_be_killed_and_restarted(topic: Topic, opened: Open) -> None:
    topic.send(*(row(number) for number in range(100)))
    stream = opened(topic.name)
    assert len(stream.batch(max_rows=50)) == 50
    topic.broker.kill()
    topic.broker.start()
    assert ids(stream.until(50)) == list(range(50, 100))
    topic.send(row(100))
    assert ids(stream.until(1)) == [100]
