"""Driver and broker are killed again and again: consumers see each row once, in order per key."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from tests.integration.kafka.test_sql import ONCE
from tests.integration.runtime.conftest import Run, Shop, shop

from streamhouse.demo.kafka.broker import KafkaBroker

__all__ = ["shop"]

PARTITIONS, KEYS = 3, 50
TABLES = """
CREATE TEMPORARY TABLE made (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '{rows}');
CREATE TABLE IF NOT EXISTS latest (k BIGINT PRIMARY KEY NOT ENFORCED, id BIGINT)
  WITH ('bucket' = '1');
CREATE TEMPORARY TABLE appended (k STRING, id BIGINT) WITH ('connector' = 'kafka',
  'topic' = 'appended', 'value.format' = 'json', 'key.format' = 'raw',
  'key.fields' = 'k', {common});
CREATE TEMPORARY TABLE upserted (k BIGINT PRIMARY KEY NOT ENFORCED, id BIGINT) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'upserted', 'value.format' = 'json',
  'key.format' = 'json', {common});
INSERT INTO appended SELECT CAST(MOD(id, 50) AS STRING), id FROM made;
INSERT INTO latest SELECT MOD(id, 50), id FROM made;
INSERT INTO upserted SELECT k, id FROM latest;
"""


class Reader:
    """A consumer of committed records only, which reads on through the broker's restarts.

    `ids` has, by topic and key, the ids in the order of the partition.
    """

    def __init__(self, broker: KafkaBroker) -> None:
        self.ids: dict[str, dict[int, list[int]]] = {"appended": {}, "upserted": {}}
        self._partitions: dict[tuple[str, int], set[int]] = {}
        self._offsets: dict[tuple[str | None, int | None], int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.servers, "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed", "enable.auto.commit": False,
                "auto.offset.reset": "error", "log_level": 0,
            }
        )  # fmt: skip
        self._consumer.assign(
            [TopicPartition(name, number, 0) for name in self.ids for number in range(PARTITIONS)]
        )

    def poll(self, seconds: float) -> bool:
        """Take what comes within a time; returns whether anything came."""
        # While the broker is down, its errors come as messages.
        found = [one for one in self._consumer.consume(1000, seconds) if one.error() is None]
        for message in found:
            self._take(message)
        return bool(found)

    def rest(self, rows: int) -> None:
        """Read until the last of `rows` has come, and nothing has come for some seconds."""
        while self.poll(3.0) or self.newest < rows:
            pass

    def _take(self, message: Message) -> None:
        place, offset = (message.topic(), message.partition()), message.offset()
        value = message.value()
        assert offset is not None and isinstance(value, bytes)
        assert offset > self._offsets.get(place, -1)
        self._offsets[place] = offset
        row = json.loads(value)
        key, topic = int(row["k"]), str(message.topic())
        self._partitions.setdefault((topic, key), set()).add(int(message.partition() or 0))
        assert len(self._partitions[topic, key]) == 1, "a key has moved to another partition"
        self.ids[topic].setdefault(key, []).append(int(row["id"]))

    def close(self) -> None:
        self._consumer.close()

    @property
    def newest(self) -> int:
        """The largest id of each topic; the smaller of both."""
        return min(
            max((ids[-1] for ids in found.values()), default=0) for found in self.ids.values()
        )

    def grown(self) -> Callable[[], bool]:
        """What tells whether new rows have come to both topics since now."""
        before = self.newest
        return lambda: self.newest > before

    def check(self, rows: int) -> None:
        """Fail unless each row was seen once and in order per key; upserts may skip some."""
        wanted = {key: list(range(key or KEYS, rows + 1, KEYS)) for key in range(KEYS)}
        appended, upserted = self.ids["appended"], self.ids["upserted"]
        for key, ids in wanted.items():
            found = appended.get(key, [])
            assert found == ids, (key, _differences(found, ids))
            latest = upserted.get(key, [])
            assert latest == sorted(set(latest)) and latest[-1] == ids[-1], (key, latest[-20:])


def _differences(found: list[int], wanted: list[int]) -> str:
    lost = sorted(set(wanted) - set(found))
    doubled = sorted({item for item in found if found.count(item) > 1})
    return f"lost {lost[:20]}, doubled {doubled[:20]}, sorted: {found == sorted(found)}"


@contextmanager
def reading(broker: KafkaBroker) -> Iterator[Reader]:
    """A reader that reads in a thread until the block ends; what it finds wrong is raised there."""
    reader, ended, failed = Reader(broker), threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not ended.is_set():
                reader.poll(0.2)
        except BaseException as error:  # noqa: BLE001  # raised where the test can see it
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield reader
    finally:
        ended.set()
        thread.join()
    for error in failed:
        raise error


def kill_broker(broker: KafkaBroker, run: Run, moments: random.Random) -> None:
    """Kill the broker, in half of all cases the driver while it is down, and start the broker."""
    broker.kill()
    time.sleep(moments.uniform(0.0, 2.0))
    if moments.random() < 0.5:
        run.kill()
    time.sleep(moments.uniform(0.0, 2.0))
    broker.start()


@pytest.mark.soak
@pytest.mark.parametrize("kills", [4, 40])
def test_kills_of_driver_and_broker(shop: Shop, tmp_path: Path, kills: int) -> None:
    moments = random.Random(kills)
    with KafkaBroker(tmp_path / "kafka") as broker:
        common = ", ".join([f"'properties.bootstrap.servers' = '{broker.servers}'", *ONCE])
        for topic in ("appended", "upserted"):
            broker.create_topic(topic, PARTITIONS)
        rows = kills * 20_000
        slow, fast = (
            TABLES.format(rate=rate, rows=rows, common=common) for rate in (1_000, 200_000)
        )
        with reading(broker) as reader:
            for number in range(kills):
                run = shop.start(slow, "--until-caught-up")
                run.until(reader.grown())
                time.sleep(moments.uniform(0.0, 1.5))
                if number % 2:
                    kill_broker(broker, run, moments)
                    if run.process.poll() is None:
                        run.until(reader.grown())
                if run.process.poll() is None:
                    run.kill()
            shop.settle(fast)
        again = Reader(broker)
        for one in (reader, again):
            one.rest(rows)
            one.check(rows)
            one.close()
