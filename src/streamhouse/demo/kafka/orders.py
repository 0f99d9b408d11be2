"""Orders of the revenue demo, produced into a topic of a private broker at a steady rate."""

from __future__ import annotations

import datetime
import json
import random
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

from streamhouse.demo.kafka.broker import KafkaBroker
from streamhouse.errors import ConnectError

TOPIC = "orders"
_PARTITIONS = 2
_STEP_S = 0.01
_FLUSH_S = 30.0


class KafkaOrders:
    """A broker, and a thread that produces orders as JSON while it runs."""

    def __init__(self, folder: Path, per_second: int) -> None:
        self._broker = KafkaBroker(folder)
        self._per_second = per_second
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
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
            self._thread = threading.Thread(target=self._run, name="orders", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Stop producing; all orders are in the topic then."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_FLUSH_S)

    def close(self) -> None:
        """Stop producing, and stop the broker."""
        self.end()
        self._broker.stop()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "linger.ms": 5,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        began = time.monotonic()
        while not self._stopped.wait(_STEP_S):
            due = int((time.monotonic() - began) * self._per_second)
            while self.produced < due:
                self.produced += 1
                producer.produce(TOPIC, self._order(self.produced))
            producer.poll(0)
        if producer.flush(_FLUSH_S):
            raise ConnectError("the demo's Kafka broker has not taken all orders")

    def _order(self, number: int) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        order = {
            "order_id": number,
            "customer_id": random.randint(1, 10),
            "price": random.uniform(1, 100),
            "order_time": now.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
        }
        return json.dumps(order).encode()
