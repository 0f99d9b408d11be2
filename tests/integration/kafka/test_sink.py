"""A topic of a real broker as a sink: consumers see each row once after any crash."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.integration.kafka.conftest import Topic
from tests.processes import suspend
from tests.waiting import DEADLINE_S, until

from streamhouse.connectors.base import Message, Sink, SinkCommitter, WrittenBatch
from streamhouse.connectors.kafka import producing
from streamhouse.connectors.kafka import sink as sink_module
from streamhouse.connectors.kafka.client import is_outage
from streamhouse.connectors.kafka.sink import KafkaSinkCommitter
from streamhouse.connectors.specs import SinkSpec
from streamhouse.demo.kafka.broker import KafkaBroker
from streamhouse.errors import CommitConflictError, ConnectError, DataLossError
from streamhouse.sql.plan import Column

COLUMNS = (
    Column("id", "BIGINT"),
    Column("name", "STRING"),
    Column("at", "TIMESTAMP_LTZ(3)", metadata="timestamp"),
)
NOW_MS = time.time_ns() // 1_000_000
"""The broker deletes records whose time is older than a week, sometimes within a second."""
ONCE = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "test"}


def sink(topic: Topic, more: Mapping[str, str], connector: str = "kafka") -> Sink:
    options = {
        "topic": topic.name,
        "properties.bootstrap.servers": topic.broker.servers,
        **({"format": "json"} if connector == "kafka" else {}),
        **more,
    }
    return SinkSpec(connector, options, COLUMNS, primary_key=("id",), name="t").open()


def written(to: Sink, number: int, *ids: int, kinds: str = "") -> Callable[[], WrittenBatch]:
    def write() -> WrittenBatch:
        messages: list[Message] = []
        columns: dict[str, Any] = {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"n{one}" for one in ids]),
            "at": pa.array([NOW_MS] * len(ids), pa.timestamp("ms", "UTC")),
        }
        if kinds:
            columns["rowkind"] = pa.array(kinds.split())
        writer = to.writer("q", number, "a")
        writer.write(pa.record_batch(columns))
        messages += writer.prepare()
        writer.close()
        return WrittenBatch(number, messages)

    return write


def nothing() -> None:
    pass


def values(topic: Topic, isolation: str = "read_committed") -> list[tuple[Any, ...]]:
    """All records of the topic as (partition, key, value), by partition."""
    if isolation == "read_committed":
        wait_for_decisions(topic)
    reader = Consumer(
        {
            "bootstrap.servers": topic.broker.servers, "group.id": uuid.uuid4().hex,
            "isolation.level": isolation, "enable.partition.eof": True,
            # A broker that has just restarted may refuse the offset: the end would hide rows.
            "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    reader.assign([TopicPartition(topic.name, number, 0) for number in (0, 1)])
    found, ended = [], 0
    while ended < 2:
        message = reader.poll(DEADLINE_S)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append((message.partition(), message.key(), message.value()))
    reader.close()
    return sorted(found, key=lambda item: item[0])


def wait_for_decisions(topic: Topic) -> None:
    """Wait until no transaction is open.

    The brokers acknowledge a commit before they write its markers into the partitions. Until then
    the last stable offset is that of the transaction's first record.
    """
    admin = AdminClient({"bootstrap.servers": topic.broker.servers})
    request = {TopicPartition(topic.name, number): OffsetSpec.latest() for number in (0, 1)}

    def ends(level: IsolationLevel) -> list[int]:
        found = admin.list_offsets(request, isolation_level=level, request_timeout=DEADLINE_S)
        return [found[partition].result().offset for partition in request]

    def decided() -> bool:
        try:
            return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)
        except KafkaException as error:
            # A broker may not know yet that it leads a new partition.
            if not is_outage(error):
                raise
            return False

    until(decided, lambda: "a transaction is still open")


def json_of(*ids: int) -> list[bytes]:
    return [f'{{"id":{one},"name":"n{one}"}}'.encode() for one in ids]


def test_exactly_once_skips_a_batch_that_kafka_already_has(topic: Topic) -> None:
    to, query = sink(topic, ONCE), uuid.uuid4().hex
    first = to.committer(query)
    assert first.commit(written(to, 0, 1, 2), nothing)
    assert first.commit(written(to, 1, 3), nothing)
    # The driver dies after Kafka's commit, and before Spark notes the batch.
    second = to.committer(query)
    assert not second.commit(written(to, 1, 3), nothing)
    assert second.commit(written(to, 2, 4), nothing)
    assert sorted(row[2] for row in values(topic)) == json_of(1, 2, 3, 4)


def test_exactly_once_ends_the_transaction_of_a_driver_that_died(topic: Topic) -> None:
    to, query = sink(topic, ONCE), uuid.uuid4().hex
    dead = to.committer(query)
    assert isinstance(dead, KafkaSinkCommitter)
    assert dead.commit(written(to, 0, 1), nothing)
    # It dies with its transaction open: rows are in the topic, but not committed.
    producer = dead._opened()
    producer.begin_transaction()
    dead._produce(producer, written(to, 1, 2)().messages)
    producer.flush(DEADLINE_S)
    alive = to.committer(query)
    assert alive.commit(written(to, 1, 2), nothing)
    assert sorted(row[2] for row in values(topic)) == json_of(1, 2)
    dirty = sorted(row[2] for row in values(topic, "read_uncommitted"))
    assert dirty == json_of(1, 2, 2)
    # The dead driver turns out to be alive: it must not commit any more.
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_S)
    assert sorted(row[2] for row in values(topic)) == json_of(1, 2)


def locked_out(topic: Topic) -> tuple[Sink, SinkCommitter]:
    """A sink, and the committer of a run of a query that another run has locked out."""
    to, query = sink(topic, ONCE), uuid.uuid4().hex
    first = to.committer(query)
    assert first.commit(written(to, 0, 1), nothing)
    assert to.committer(query).commit(written(to, 1, 2), nothing)
    return to, first


def test_exactly_once_locks_out_another_run_of_the_query(topic: Topic) -> None:
    to, first = locked_out(topic)
    with pytest.raises(CommitConflictError, match="sink.transactional-id-prefix"):
        first.commit(written(to, 2, 3), nothing)
    assert sorted(row[2] for row in values(topic)) == json_of(1, 2)


def test_a_locked_out_run_is_told_so_if_the_client_loses_its_error(topic: Topic) -> None:
    to, first = locked_out(topic)
    flush = KafkaSinkCommitter._flush

    def lose(committer: KafkaSinkCommitter, producer: Producer) -> None:
        with suppress(KafkaException, SystemError):
            flush(committer, producer)
        raise SystemError("flush returned NULL without setting an exception")

    with (
        patch.object(KafkaSinkCommitter, "_flush", lose),
        pytest.raises(CommitConflictError, match="sink.transactional-id-prefix"),
    ):
        first.commit(written(to, 2, 3), nothing)
    assert sorted(row[2] for row in values(topic)) == json_of(1, 2)


@contextmanager
def killed_before(committer: SinkCommitter, step: str, broker: KafkaBroker) -> Iterator[None]:
    """The broker is killed before a step of the first commit, and started again a second later."""
    original, starting = getattr(committer, step), list[threading.Timer]()

    def kill(*arguments: Any) -> Any:
        if not starting:
            broker.kill()
            starting.append(threading.Timer(1.0, broker.start))
            starting[0].start()
        return original(*arguments)

    setattr(committer, step, kill)
    yield
    starting[0].join()


@pytest.mark.parametrize(
    ("step", "more"),
    [
        ("_produce", {}),
        pytest.param("_is_new", {}, marks=pytest.mark.soak),
        # The client waits for ever for the coordinator that it knew before.
        pytest.param(
            "_produce",
            {"properties.metadata.recovery.strategy": "rebootstrap"},
            marks=pytest.mark.soak,
        ),
        ("_record_number", {}),
    ],
)
def test_exactly_once_outlives_a_restart_of_the_broker(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, step: str, more: Mapping[str, str]
) -> None:
    monkeypatch.setattr(sink_module, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(sink_module, "_OUTAGE_S", DEADLINE_S)
    to = sink(topic, {**ONCE, **more})
    committer = to.committer(uuid.uuid4().hex)
    assert committer.commit(written(to, 0, 1), nothing)
    with killed_before(committer, step, topic.broker):
        assert committer.commit(written(to, 1, 2), nothing)
    assert committer.commit(written(to, 2, 3), nothing)
    assert sorted(row[2] for row in values(topic)) == json_of(1, 2, 3)


def test_exactly_once_commits_no_batch_twice_whose_commit_was_not_answered(topic: Topic) -> None:
    to = sink(topic, ONCE)
    committer = to.committer(uuid.uuid4().hex)
    assert isinstance(committer, KafkaSinkCommitter)
    assert committer.commit(written(to, 0, 1), nothing)
    producer, unanswered = committer._opened(), KafkaError(KafkaError._TIMED_OUT)

    class Unanswered:
        def commit_transaction(self, seconds: float) -> None:
            producer.commit_transaction(seconds)
            raise KafkaException(unanswered)

        def __getattr__(self, name: str) -> Any:
            return getattr(producer, name)

    committer._producer = Unanswered()
    assert committer.commit(written(to, 1, 2), nothing)
    assert committer._producer is not None and not isinstance(committer._producer, Unanswered)
    assert committer.commit(written(to, 2, 3), nothing)
    assert sorted(row[2] for row in values(topic)) == json_of(1, 2, 3)


def test_exactly_once_ends_if_the_brokers_stay_away(topic: Topic) -> None:
    to, query = sink(topic, ONCE), uuid.uuid4().hex
    committer = to.committer(query)
    assert committer.commit(written(to, 0, 1), nothing)
    topic.broker.kill()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for module in (sink_module, producing):
                patch.setattr(module, "TIMEOUT_S", 1.0)
            patch.setattr(sink_module, "_OUTAGE_S", 2.0)
            patch.setattr(sink_module, "_FLUSH_S", 2.0)
            patch.setattr(sink_module, "_FLUSH_STEP_S", 0.5)
            with pytest.raises(ConnectError, match="batch 1 could not .* run the script again"):
                committer.commit(written(to, 1, 2), nothing)
    finally:
        topic.broker.start()
    assert to.committer(query).commit(written(to, 1, 2), nothing)
    assert sorted(row[2] for row in values(topic)) == json_of(1, 2)


@pytest.mark.parametrize("options", [ONCE, pytest.param({}, marks=pytest.mark.soak)])
def test_a_query_may_start_while_the_brokers_are_away(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, options: Mapping[str, str]
) -> None:
    monkeypatch.setattr(sink_module, "FIRST_CONTACT_S", 1.0)
    monkeypatch.setattr(sink_module, "_OUTAGE_S", DEADLINE_S)
    to = sink(topic, options)
    topic.broker.kill()
    try:
        committer = to.committer(uuid.uuid4().hex)
        assert isinstance(committer, KafkaSinkCommitter)
        assert committer._opening is not None
        assert isinstance(committer._opening.exception(DEADLINE_S), KafkaException)
    finally:
        topic.broker.start()
    assert committer.commit(written(to, 0, 1), nothing)
    assert committer.commit(written(to, 1, 2), nothing)
    assert sorted(row[2] for row in values(topic)) == json_of(1, 2)


def test_exactly_once_writes_again_if_the_broker_takes_no_records(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sink_module, producing):
        monkeypatch.setattr(module, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(sink_module, "_FLUSH_S", 2.0)
    monkeypatch.setattr(sink_module, "_FLUSH_STEP_S", 0.2)
    to = sink(topic, ONCE)
    committer = to.committer(uuid.uuid4().hex)
    assert isinstance(committer, KafkaSinkCommitter)
    assert committer.commit(written(to, 0, 1), nothing)
    broker, flush = topic.broker.pid, committer._flush
    assert broker is not None
    waking = threading.Timer(4.0, os.kill, (broker, signal.SIGCONT))

    def stopped(producer: Any) -> None:
        if not waking.is_alive():
            suspend(broker)
            waking.start()
            monkeypatch.setattr(committer, "_flush", flush)
        flush(producer)

    monkeypatch.setattr(committer, "_flush", stopped)
    assert committer.commit(written(to, 1, 2), nothing)
    waking.join()
    assert committer.commit(written(to, 2, 3), nothing)
    assert sorted(one[2] for one in values(topic)) == json_of(1, 2, 3)


def test_at_least_once_ends_if_the_broker_takes_no_records(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "_FLUSH_S", 1.0)
    monkeypatch.setattr(sink_module, "_FLUSH_STEP_S", 0.2)
    to = sink(topic, {})
    committer, broker = to.committer("q"), topic.broker.pid
    assert committer.commit(written(to, 0, 1), nothing)
    assert broker is not None
    suspend(broker)
    try:
        with pytest.raises(ConnectError, match="1 records were not taken within 1 s"):
            committer.commit(written(to, 1, 2), nothing)
    finally:
        os.kill(broker, signal.SIGCONT)


def test_exactly_once_fails_if_its_batch_number_is_lost(topic: Topic) -> None:
    to = sink(topic, ONCE)
    with pytest.raises(DataLossError, match="whether batch 5 is in it: commit offset 5 "):
        to.committer(uuid.uuid4().hex).commit(written(to, 5, 1), nothing)


def test_at_least_once_writes_again(topic: Topic) -> None:
    to = sink(topic, {})
    for _ in range(2):
        assert to.committer("q").commit(written(to, 0, 1), nothing)
    assert [row[2] for row in values(topic)] == json_of(1, 1)


def test_keys_choose_partitions_as_javas_producers_do(topic: Topic) -> None:
    keyed = {"format": "", "value.format": "json", "key.format": "raw", "key.fields": "name"}
    options = {key: value for key, value in keyed.items() if value}
    to = SinkSpec(
        "kafka",
        {
            "topic": topic.name, "properties.bootstrap.servers": topic.broker.servers, **options
        },
        COLUMNS, name="t",
    ).open()  # fmt: skip
    to.committer("q").commit(written(to, 0, *range(6)), nothing)
    # Of Java's murmur2: (toPositive(murmur2(key)) % 2).
    partitions = {key: partition for partition, key, _ in values(topic)}
    assert partitions == {f"n{one}".encode(): murmur2(f"n{one}".encode()) % 2 for one in range(6)}


def murmur2(data: bytes) -> int:
    """Kafka's hash of keys, by its specification."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_partitioners(topic: Topic) -> None:
    to = sink(topic, {"sink.partitioner": "round-robin"})
    to.committer("q").commit(written(to, 0, 0, 1, 2, 3), nothing)
    assert [row[0] for row in values(topic)] == [0, 0, 1, 1]
    to = sink(topic, {"sink.partitioner": "fixed"})
    to.committer("q").commit(written(to, 1, 4, 5), nothing)
    assert [row[0] for row in values(topic)] == [0, 0, 0, 0, 1, 1]


def test_upserts_write_the_last_row_of_a_key_and_tombstones(topic: Topic) -> None:
    formats = {"key.format": "json", "value.format": "json"}
    to = sink(topic, {**formats, **ONCE}, "upsert-kafka")
    kinds = "+I +I -U +U -D"
    to.committer(uuid.uuid4().hex).commit(written(to, 0, 1, 2, 1, 1, 2, kinds=kinds), nothing)
    found = {key: value for _, key, value in values(topic)}
    assert found == {b'{"id":1}': json_of(1)[0], b'{"id":2}': None}
    assert len(values(topic)) == 2


def test_timestamps_are_written(topic: Topic) -> None:
    to = sink(topic, {})
    to.committer("q").commit(written(to, 0, 1), nothing)
    reader = Consumer({"bootstrap.servers": topic.broker.servers, "group.id": "x"})
    reader.assign([TopicPartition(topic.name, number, 0) for number in (0, 1)])
    message = reader.poll(DEADLINE_S)
    assert message is not None and message.timestamp() == (1, NOW_MS)
    reader.close()


def test_a_batch_without_rows_is_recorded_too(topic: Topic) -> None:
    to, query = sink(topic, ONCE), uuid.uuid4().hex
    assert to.committer(query).commit(lambda: WrittenBatch(0, []), nothing)
    assert to.committer(query).commit(written(to, 1, 1), nothing)
    assert to.committer(query).commit(lambda: None, nothing) is False
