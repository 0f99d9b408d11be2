"""A real Kafka broker, and tables over its topics without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.waiting import DEADLINE_S, looks

from streamhouse.connectors.registry import check_declaration
from streamhouse.connectors.specs import SourceSpec
from streamhouse.demo.kafka.broker import KafkaBroker
from streamhouse.source import Offset, Source
from streamhouse.sql.plan import Column, TableInfo


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


class Topic:
    """A topic with a producer."""

    def __init__(self, broker: KafkaBroker, name: str) -> None:
        self.broker, self.name = broker, name

    def send(self, *values: str | bytes | None, partition: int = 0, **more: Any) -> None:
        """Produce values, and wait until the broker has them."""
        producer = Producer({"bootstrap.servers": self.broker.servers, "linger.ms": 0})
        for value in values:
            raw = value.encode() if isinstance(value, str) else value
            producer.produce(self.name, raw, partition=partition, **more)
        assert producer.flush(DEADLINE_S) == 0

    def send_in_transaction(self, *values: str, commit: bool) -> None:
        producer = Producer(
            {"bootstrap.servers": self.broker.servers, "transactional.id": uuid.uuid4().hex}
        )
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value.encode(), partition=0)
        producer.flush(DEADLINE_S)
        if commit:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)


@pytest.fixture
def topic(broker: KafkaBroker) -> Topic:
    name = f"t{uuid.uuid4().hex[:10]}"
    broker.create_topic(name, 2)
    return Topic(broker, name)


COLUMNS = (Column("id", "BIGINT"), Column("name", "STRING"))
Open = Callable[..., "Stream"]


class Stream:
    """A source that is read batch by batch, as a query reads it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.offset: Offset = source.initial_offset()

    def batch(self, max_rows: int | None = None, parallelism: int = 1) -> list[dict[str, Any]]:
        """The rows of the next batch."""
        start = self.offset
        self.offset = self.source.latest_offset(start, max_rows)
        return self.again(start, parallelism)

    def again(self, start: Offset, parallelism: int = 1) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for partition in self.source.partitions(start, self.offset, parallelism):
            rows += pa.Table.from_batches(
                list(self.source.read(partition)), self._schema()
            ).to_pylist()
        return rows

    def until(self, count: int) -> list[dict[str, Any]]:
        """The rows of as many batches as it takes to read `count` rows."""
        rows: list[dict[str, Any]] = []
        for _ in looks():
            rows += self.batch()
            if len(rows) >= count:
                break
        return rows

    def _schema(self) -> pa.Schema:
        schema = self.source.schema
        return schema.append(pa.field("rowkind", pa.string())) if self.source.changelog else schema


@pytest.fixture
def opened(broker: KafkaBroker) -> Iterator[Open]:
    sources: list[Source] = []

    def make(
        topic: str | None,
        options: Mapping[str, str] | None = None,
        columns: Sequence[Column] = COLUMNS,
        connector: str = "kafka",
        primary_key: tuple[str, ...] = (),
    ) -> Stream:
        own = {
            "connector": connector,
            "properties.bootstrap.servers": broker.servers,
            "scan.startup.mode": "earliest-offset",
            **({"format": "json"} if connector == "kafka" else {}),
            **({} if topic is None else {"topic": topic}),
            **(options or {}),
        }
        given = {key: value for key, value in own.items() if value != ""}
        if connector == "upsert-kafka":
            given.pop("scan.startup.mode")
        table = TableInfo(
            ("c", "d", "t"), tuple(columns), primary_key=primary_key, options=given,
            connector=connector,
        )  # fmt: skip
        check_declaration(table, "table t")
        plain = {key: value for key, value in given.items() if key != "connector"}
        source = SourceSpec(connector, plain, tuple(columns), primary_key=primary_key).open()
        sources.append(source)
        return Stream(source)

    yield make
    for source in sources:
        source.close()
