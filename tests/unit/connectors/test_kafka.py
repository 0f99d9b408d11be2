"""Kafka's options, offsets and encodings, without a broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.single_stream import analyze_stream

from streamhouse.connectors.kafka import client
from streamhouse.connectors.kafka.connector import CONNECTOR
from streamhouse.connectors.kafka.options import client_properties, parse
from streamhouse.connectors.kafka.positions import KafkaPosition
from streamhouse.connectors.kafka.producing import Encoding
from streamhouse.connectors.kafka.reader import Range
from streamhouse.connectors.kafka.records import RecordLayout
from streamhouse.connectors.kafka.source import KafkaSource, _limited, _split
from streamhouse.connectors.registry import check_declaration
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import ConnectError, NotStreamedError, OptionError, StreamhouseError
from streamhouse.options import is_secret
from streamhouse.sql.plan import CURRENT, AsOf, Column, Name, Resolver, TableInfo
from streamhouse.sql.syntax import Query, TextPosition

COLUMNS = (Column("id", "BIGINT", nullable=False), Column("name", "STRING"))
BASE = {"topic": "t", "properties.bootstrap.servers": "k:9092", "format": "json"}


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"topic": ""}, "set either 'topic' or 'topic-pattern'"),
        ({"topic-pattern": "x.*"}, "set either 'topic' or 'topic-pattern'"),
        ({"topic": "", "topic-pattern": "("}, "option 'topic-pattern': '\\('"),
        ({"properties.bootstrap.servers": ""}, "option 'properties.bootstrap.servers' is missing"),
        ({"format": "jsn"}, "unknown format 'jsn'; did you mean 'json'"),
        ({"value.format": "json"}, "set either 'format' or 'value.format'"),
        ({"csv.field-delimiter": ";"}, "'csv.field-delimiter' does not apply to 'format' = 'json'"),
        ({"json.ignore-parse-error": "true"}, "did you mean 'json.ignore-parse-errors'"),
        ({"key.fields": "id"}, "'key.fields' needs 'key.format'"),
        ({"scan.startup.mode": "timestamp"}, "'timestamp' needs 'scan.startup.timestamp-millis'"),
        ({"scan.startup.timestamp-millis": "1"}, "needs 'scan.startup.mode' = 'timestamp'"),
        (
            {
                "scan.startup.mode": "specific-offsets",
                "scan.startup.specific-offsets": "0:1",
            },
            "'0:1' is not like 'partition:0,offset:42'",
        ),
        ({"scan.bounded.mode": "never"}, "'never' is not one of unbounded, latest-offset"),
        ({"sink.delivery-guarantee": "exactly-once"}, "needs 'sink.transactional-id-prefix'"),
        ({"bad-records": "table"}, "'bad-records' = 'table' needs 'bad-records.table'"),
        ({"bad-records": "skip", "format": "canal-json"}, "would leave out changes of rows"),
        ({"key.format": "json"}, "'key.format' needs 'key.fields'"),
        ({"key.format": "json", "key.fields": "di"}, "there is no column 'di'; did you mean 'id'"),
        (
            {"properties.ssl.truststore.location": "/x.jks"},
            "is a JKS file; export the",
        ),
        (
            {"properties.isolation.level": "foo"},
            "'properties.isolation.level': 'foo' is not one of read_committed, read_uncommitted",
        ),
        ({"properties.security.protocol": "SASL"}, "'SASL' is not one of PLAINTEXT, SSL, SASL_PL"),
        ({"properties.sasl.mechanism": "SCRAM"}, "'SCRAM' is not one of PLAIN, SCRAM-SHA-256, "),
        ({"properties.compression.type": "zip"}, "'zip' is not one of none, gzip, snappy, lz4"),
        ({"properties.auto.offset.reset": "first"}, "'first' is not one of earliest, latest, none"),
        ({"properties.sasl.jaas.config": "x;"}, "has no username and password"),
    ],
)
def test_options_are_checked(more: Mapping[str, str], problem: str) -> None:
    options = {"connector": "kafka", **BASE, **more}
    given = {key: value for key, value in options.items() if value}
    table = TableInfo(("c", "d", "t"), COLUMNS, options=given, connector="kafka")
    with pytest.raises(OptionError, match=problem):
        check_declaration(table, "table t")


def test_properties_of_java_become_those_of_librdkafka() -> None:
    login = 'org.apache.kafka…ScramLoginModule required username="a\\"b" password=\'c;d\';'
    given = {
        "properties.security.protocol": "SASL_SSL",
        "properties.sasl.mechanism": "PLAIN",
        "properties.sasl.jaas.config": login,
        "properties.ssl.truststore.type": "PEM",
        "properties.ssl.truststore.location": "/ca.pem",
        "properties.ssl.endpoint.identification.algorithm": "",
        "properties.key.deserializer": "x",
        "topic": "t",
    }
    assert client_properties(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": 'a"b',
        "sasl.password": "c;d",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert is_secret("properties.sasl.jaas.config")
    assert is_secret("properties.ssl.keystore.key")


def test_offsets_keep_what_positions_have() -> None:
    position = KafkaPosition(
        {"a": "x", "b": "y"}, {("a", 0): 5, ("a", 10): 7}, {("a", 10): 2}, None
    )
    offset = position.offset()
    assert offset == {
        "topics": {
            "a": {"id": "x", "next": {"0": 5, "10": 7}, "from": {"10": 2}},
            "b": {"id": "y", "next": {}},
        }
    }
    assert KafkaPosition.parse(offset) == position
    bounded = replace(position, until={("a", 0): 9})
    assert KafkaPosition.parse(bounded.offset()) == bounded


def test_the_case_of_values_does_not_matter() -> None:
    given = {"properties.isolation.level": "READ_UNCOMMITTED", "properties.sasl.mechanism": "plain"}
    assert client_properties(given) == {
        "isolation.level": "read_uncommitted",
        "sasl.mechanism": "PLAIN",
    }


def test_brokers_that_have_never_answered_are_given_up_within_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert client._REFUSED_S < client.FIRST_CONTACT_S < 8
    monkeypatch.setattr(client, "FIRST_CONTACT_S", 1.0)
    monkeypatch.setattr(client, "_REFUSED_S", 0.1)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{server.getsockname()[1]}"
        options = parse({**BASE, "properties.bootstrap.servers": place}, "table t")
        for least, reason in ((0.1, "Connection refused"), (1.0, "Timed out|Failed while waiting")):
            connected = client.Client(options)
            started = time.monotonic()
            message = f"Kafka at {place}: .*({reason}).*; check 'properties.bootstrap"
            with pytest.raises(ConnectError, match=message):
                connected.topics()
            assert least <= time.monotonic() - started
            server.listen()


def test_a_read_limit_is_shared_in_proportion() -> None:
    first = {("a", 0): 0, ("a", 1): 0, ("a", 2): 5}
    ends = {("a", 0): 900, ("a", 1): 100, ("a", 2): 5}
    assert _limited(first, ends, 100) == {("a", 0): 90, ("a", 1): 10, ("a", 2): 5}
    assert _limited(first, ends, 10_000) == ends
    assert sum(_limited(first, ends, 1).values()) == 7


def test_batches_are_larger_if_tasks_keep_no_rows() -> None:
    class Brokers:
        def topics(self) -> dict[str, tuple[str, int]]:
            return {"t": ("id", 2)}

        def ends(self, partitions: Any) -> dict[Any, int]:
            return dict.fromkeys(partitions, 10_000_000)

        def beginnings(self, partitions: Any) -> dict[Any, int]:
            return dict.fromkeys(partitions, 0)

    options = {**BASE, "format": "raw", "scan.startup.mode": "earliest-offset"}
    source = SourceSpec("kafka", options, (Column("a", "STRING"),)).open()
    assert isinstance(source, KafkaSource)
    source._client = cast(Any, Brokers())

    def rows(most: int | None) -> int:
        return sum(KafkaPosition.parse(source._latest({}, most)).next.values())

    assert (rows(None), rows(5_000_000), rows(100)) == (2_000_000, 2_000_000, 100)
    source.allow_large_batches()
    assert (rows(None), rows(5_000_000), rows(100)) == (8_000_000, 5_000_000, 100)


def test_long_ranges_are_split_if_there_are_fewer_than_tasks() -> None:
    whole = [Range("a", 0, 0, 400_000)]
    assert _split(whole, 2) == [Range("a", 0, 0, 200_000), Range("a", 0, 200_000, 400_000)]
    assert _split([Range("a", 0, 0, 60_000)], 2) == [Range("a", 0, 0, 60_000)]


def encoding(more: Mapping[str, str], upserts: bool = False) -> Encoding:
    options = parse({**BASE, **more}, "t")
    return Encoding(options, RecordLayout.of(COLUMNS, options, "t"), upserts)


ROWS = pa.record_batch(
    {
        "id": pa.array([1, 2, 1, 3, 2], pa.int64()),
        "name": pa.array(["a", "b", "c", "d", "b"]),
        "rowkind": pa.array(["+I", "+I", "+U", "+I", "-D"]),
    }
)


def test_upserts_write_the_last_change_of_each_key() -> None:
    written = encoding({"key.format": "json", "key.fields": "id"}, upserts=True).records([ROWS])
    assert pa.Table.from_batches(list(written)).to_pylist() == [
        {"key": b'{"id":1}', "value": b'{"id":1,"name":"c"}'},
        {"key": b'{"id":3}', "value": b'{"id":3,"name":"d"}'},
        {"key": b'{"id":2}', "value": None},
    ]


def test_a_format_of_inserts_refuses_other_changes() -> None:
    with pytest.raises(StreamhouseError, match="'connector' = 'upsert-kafka'"):
        list(encoding({}).records([ROWS]))
    assert CONNECTOR.refused_changes(TableInfo(("t",), COLUMNS, options=BASE)) is not None


SOURCE = TableInfo(
    ("c", "d", "source"), COLUMNS, primary_key=("id",),
    options={
        "connector": "upsert-kafka", "topic": "t", "properties.bootstrap.servers": "k:9092",
        "key.format": "json", "value.format": "json",
    },
    connector="upsert-kafka",
)  # fmt: skip


class Tables(Resolver):
    """Resolves two names: the source, and the target of a test."""

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        from streamhouse.connectors.registry import declared

        return declared(SOURCE)


def planned(select: str, **target: object) -> None:
    table = TableInfo(("c", "d", "target"), COLUMNS, primary_key=("id",))
    changed = replace(table, **target)  # type: ignore[arg-type]
    analyze_stream(Query(select, TextPosition(1, 1)), Tables(), changed)


@pytest.mark.parametrize(
    ("select", "target", "needs"),
    [
        ("SELECT id, name FROM source WHERE name = 'x'", {}, "the query"),
        (
            "SELECT CHAR_LENGTH(name), name FROM source", {}, "c.d.target",
        ),
        (
            "SELECT id, name FROM source", {"options": {"changelog-producer": "input"}},
            "c.d.target",
        ),
        (
            "SELECT id, name FROM source",
            {"columns": (COLUMNS[0], Column("name", "STRING", nullable=False))},
            "c.d.target",
        ),
        (
            "SELECT id, MAX(name) FROM source GROUP BY id",
            {
                "options": {
                    "merge-engine": "aggregation", "fields.name.aggregate-function": "max",
                }
            },
            "the query",
        ),
    ],
)  # fmt: skip
def test_a_source_of_upserts_can_only_be_copied(
    select: str, target: dict[str, object], needs: str
) -> None:
    planned("SELECT id, UPPER(name) FROM source")
    with pytest.raises(NotStreamedError, match=f"the former row, which {needs} needs"):
        planned(select, **target)
