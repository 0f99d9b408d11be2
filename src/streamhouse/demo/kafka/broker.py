"""A private Kafka broker (KRaft) for demos and tests, and the orders of the revenue demo in it."""

import contextlib
import datetime
import json
import random
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamhouse.background import RepeatedStep, wait_until
from streamhouse.demo.mariadb import free_port
from streamhouse.demo.private_server import STOP_SECONDS, PrivateServer
from streamhouse.errors import ConnectError
from streamhouse.paimon.java.installed_java import java_command
from streamhouse.paimon.java.jars import Artifact
from streamhouse.paimon.java.jvm import spark_jars

_JARS = Artifact("Kafka", "org.apache.kafka:kafka_2.13:4.1.2", "STREAMHOUSE_KAFKA_JARS", True)
_JAVA = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.level=WARN")
_SETTINGS = files(__package__) / "server.properties"


TOPIC = "orders"
_PARTITIONS = 2
_STEP_S = 0.01
_FLUSH_S = 30.0


class KafkaBroker(PrivateServer):
    """A broker of its own under `data_dir`, on 127.0.0.1 only.

    `settings` override those of the broker; `listeners` are further ones: their names and protocols
    (`{"SECURE": "SASL_SSL"}`), whose settings `settings` has.
    """

    name = "Kafka"

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        java_options: Sequence[str] = ("-XX:TieredStopAtLevel=1",),
    ) -> None:
        super().__init__(data_dir)
        self._settings = dict(settings or {})
        self._listeners = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self._java_options = tuple(java_options)
        self._ports: dict[str, int] = {}

    @property
    def servers(self) -> str:
        """The address for `bootstrap.servers`."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """The address of a listener; known once the broker has been started."""
        if listener not in self._ports:
            raise ConnectError("the private Kafka broker has no port before start()")
        return f"127.0.0.1:{self._ports[listener]}"

    def admin(self) -> AdminClient:
        """A client that creates and changes topics."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, and wait until it can be written."""
        new = NewTopic(name, partitions, 1, config=dict(config or {}))
        admin = self.admin()
        admin.create_topics([new])[name].result(30)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        admin = self.admin()
        admin.delete_topics([name], operation_timeout=30)[name].result(30)
        if not wait_until(lambda: name not in admin.list_topics(timeout=10).topics, STOP_SECONDS):
            raise ConnectError(f"topic {name} was not deleted within {STOP_SECONDS:.0f} s")

    @property
    def _properties(self) -> Path:
        return self.data_dir / "server.properties"

    @property
    def _own_argument(self) -> str:
        return str(self._properties)

    def _prepare(self) -> None:
        for name in (*self._listeners, "CONTROLLER"):
            self._ports.setdefault(name, free_port())
        self._write_settings()
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format = ("format", "-t", f"S{cluster[1:]}", "-c", self._own_argument)
        self._create_data(self._java("kafka.tools.StorageTool", *format))

    def _server_command(self) -> list[str]:
        return self._java("kafka.Kafka", self._own_argument)

    def _answers(self) -> bool:
        with contextlib.suppress(KafkaException):
            return bool(self.admin().list_topics(timeout=1).brokers)
        return False

    def _java(self, main: str, *arguments: str) -> list[str]:
        # Spark's resolver leaves out Scala's library, since Spark has it.
        jars = [*sorted(_JARS.path().glob("*.jar")), *spark_jars(["scala-library*.jar"])]
        classes = ":".join(map(str, jars))
        return [java_command(), *_JAVA, *self._java_options, "-cp", classes, main, *arguments]

    def _write_settings(self) -> None:
        addresses = [f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()]
        advertised = [line for line in addresses if not line.startswith("CONTROLLER:")]
        protocols = {**self._listeners, "CONTROLLER": "PLAINTEXT"}
        settings = {
            "log.dirs": str(self.data_dir / "data"),
            "listeners": ",".join(addresses),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
            "controller.quorum.voters": f"1@127.0.0.1:{self._ports['CONTROLLER']}",
            **self._settings,
        }
        self._properties.touch(mode=0o600)
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        # Of a key that occurs twice, the last line counts.
        self._properties.write_text(_SETTINGS.read_text() + lines)


class KafkaOrders:
    """A broker, and a thread that produces orders as JSON while it runs."""

    def __init__(self, folder: Path, per_second: int) -> None:
        self._broker = KafkaBroker(folder)
        self._per_second = per_second
        self._thread: RepeatedStep | None = None
        self.produced = 0

    @property
    def servers(self) -> str:
        """The broker's address."""
        return self._broker.servers

    def open(self) -> None:
        """Start the broker, with an empty topic."""
        self._broker.start()
        if TOPIC in self._broker.admin().list_topics(timeout=10).topics:
            self._broker.delete_topic(TOPIC)
        self._broker.create_topic(TOPIC, _PARTITIONS)

    def begin(self) -> None:
        """Begin to produce, unless it already does."""
        if self._thread is None:
            settings = {"bootstrap.servers": self.servers, "linger.ms": 5, "log_level": 0}
            self._producer = Producer({**settings, "enable.idempotence": True})
            self._began = time.monotonic()
            self._thread = RepeatedStep(self._produce, "orders", _STEP_S)

    def end(self) -> None:
        """Stop producing; all orders are in the topic then. Raises `ConnectError`."""
        if self._thread is not None:
            self._thread.stop()
            self._thread.check()
            if self._producer.flush(_FLUSH_S):
                raise ConnectError("the demo's Kafka broker has not taken all orders")

    def close(self) -> None:
        """Stop producing, and stop the broker."""
        if self._thread is not None:
            self._thread.stop()
        self._broker.stop()

    def _produce(self) -> float:
        due = int((time.monotonic() - self._began) * self._per_second)
        while self.produced < due:
            self.produced += 1
            self._producer.produce(TOPIC, self._order(self.produced))
        self._producer.poll(0)
        return _STEP_S

    def _order(self, number: int) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        order = {
            "order_id": number,
            "customer_id": random.randint(1, 10),
            "price": random.uniform(1, 100),
            "order_time": now.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
        }
        return json.dumps(order).encode()
