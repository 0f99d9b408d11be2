"""A broker that demands TLS and a login: by the options of Java's clients and of librdkafka."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.integration.kafka.conftest import COLUMNS, Stream
from tests.waiting import DEADLINE_S

from streamhouse.connectors.base import WrittenBatch
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.demo.kafka.broker import KafkaBroker
from streamhouse.errors import ConnectError

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    folder = tmp_path_factory.mktemp("secure")
    key, certificate, both = (folder / name for name in ("key.pem", "ca.pem", "both.pem"))
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    both.write_text(key.read_text() + certificate.read_text())
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(both),
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{login} user_shop="hidd3n";',
    }
    broker = KafkaBroker(folder, settings, {"SECURE": "SASL_SSL"})
    with broker:
        broker.create_topic("orders", 1)
        producer = Producer({"bootstrap.servers": broker.servers})
        producer.produce("orders", b'{"id": 1, "name": "a"}')
        assert producer.flush(DEADLINE_S) == 0
        yield broker


def secured(broker: KafkaBroker, more: Mapping[str, str]) -> dict[str, str]:
    return {
        "topic": "orders", "format": "json",
        "properties.bootstrap.servers": broker.address("SECURE"),
        "properties.security.protocol": "SASL_SSL", "properties.sasl.mechanism": "PLAIN",
        "properties.ssl.ca.location": str(broker.data_dir / "ca.pem"), **more,
    }  # fmt: skip


def stream(broker: KafkaBroker, more: Mapping[str, str]) -> Stream:
    options = {**secured(broker, more), "scan.startup.mode": "earliest-offset"}
    return Stream(SourceSpec("kafka", options, COLUMNS).open())


def write(broker: KafkaBroker, more: Mapping[str, str]) -> None:
    sink = SinkSpec("kafka", secured(broker, more), COLUMNS, name="t").open()
    rows = pa.record_batch({"id": [2], "name": ["b"]})

    def written() -> WrittenBatch:
        writer = sink.writer("q", 0, "a")
        writer.write(rows)
        return WrittenBatch(0, writer.prepare())

    sink.committer("q").commit(written, lambda: None)


LOGIN = {"properties.sasl.username": "shop", "properties.sasl.password": "hidd3n"}


def test_login_by_either_spelling(secure: KafkaBroker) -> None:
    java = {
        "properties.sasl.jaas.config": 'x required username="shop" password="hidd3n";',
        "properties.ssl.truststore.type": "PEM",
        "properties.ssl.truststore.location": str(secure.data_dir / "ca.pem"),
    }
    for more in (LOGIN, java):
        opened = stream(secure, more)
        assert opened.batch() == [{"id": 1, "name": "a"}]
        opened.source.close()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"properties.sasl.password": "wrong"}, "Invalid username or password"),
        ({"properties.sasl.mechanism": "SCRAM-SHA-256"}, "mechanism"),
        # The system's authorities do not know the broker's certificate.
        ({"properties.ssl.ca.location": "probe"}, "certificate"),
        ({"properties.security.protocol": "PLAINTEXT"}, "check .properties.bootstrap"),
    ],
)
def test_a_wrong_login_or_certificate_is_an_error(
    secure: KafkaBroker, wrong: Mapping[str, str], reason: str
) -> None:
    with pytest.raises(ConnectError, match=reason) as caught:
        stream(secure, {**LOGIN, **wrong}).batch()
    assert "hidd3n" not in str(caught.value)
    with pytest.raises(ConnectError, match=reason) as caught:
        write(secure, {**LOGIN, **wrong})
    assert "hidd3n" not in str(caught.value)
