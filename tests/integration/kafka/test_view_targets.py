"""Kafka, MySQL and files have the result of SELECTs that are views, whatever changes and dies."""

from __future__ import annotations

import json
import random
import signal
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.runtime.conftest import Shop, failing_at, shop, without_jvm
from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.demo.kafka.broker import KafkaBroker
from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import SqlError

__all__ = ["shop", "without_jvm"]

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY NOT ENFORCED, customer INT, price INT)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS customers (id INT PRIMARY KEY NOT ENFORCED, country STRING)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS visits (customer INT, page STRING);
CREATE TABLE IF NOT EXISTS pages (page STRING, topic STRING);
"""
SUMS = (
    "SELECT c.country, AVG(CAST(o.price AS DOUBLE)) AS average, MAX(o.price) AS most, COUNT(*) AS n"
    " FROM orders AS o JOIN customers AS c ON o.customer = c.id GROUP BY c.country"
)
VISITED = "SELECT v.customer, p.topic FROM visits AS v JOIN pages AS p ON v.page = p.page"
SUM_COLUMNS = "country STRING, average DOUBLE, most INT, n BIGINT"
KEYED = SUM_COLUMNS.replace("STRING,", "STRING PRIMARY KEY NOT ENFORCED,")
CHANGING = ("upserts", "changelog", "mysql_sums")
"""The sinks of `SUMS`; `appended` and `files` have `VISITED`."""


class Targets:
    """Sinks of all kinds, declared for a script, and the rows that they have."""

    def __init__(self, shop: Shop, broker: KafkaBroker, server: MariaDB) -> None:
        self.broker, self.server, self.folder = broker, server, shop.folder / "files"
        self.name = f"v{uuid.uuid4().hex[:8]}"
        for sink in ("upserts", "changelog", "appended"):
            broker.create_topic(f"{self.name}_{sink}", 1)
        server.execute(
            f"CREATE DATABASE {self.name}",
            f"CREATE TABLE {self.name}.sums (country VARCHAR(40) PRIMARY KEY, average DOUBLE, "
            "most INT, n BIGINT)",
            "CREATE OR REPLACE USER viewer IDENTIFIED BY 'hidd3n'",
            f"GRANT ALL ON {self.name}.* TO viewer",
        )

    @property
    def script(self) -> str:
        def kafka(sink: str, more: str) -> str:
            return (
                f"'topic' = '{self.name}_{sink}', 'properties.bootstrap.servers' = "
                f"'{self.broker.servers}', 'sink.delivery-guarantee' = 'exactly-once', "
                f"'sink.transactional-id-prefix' = '{self.name}_{sink}', {more}"
            )

        return f"""{TABLES}
CREATE TEMPORARY TABLE upserts ({KEYED}) WITH ('connector' = 'upsert-kafka',
  {kafka("upserts", "'key.format' = 'json', 'value.format' = 'json'")});
CREATE TEMPORARY TABLE changelog ({SUM_COLUMNS}) WITH ('connector' = 'kafka',
  {kafka("changelog", "'format' = 'debezium-json'")});
CREATE TEMPORARY TABLE mysql_sums ({KEYED}) WITH ('connector' = 'jdbc',
  'url' = 'jdbc:mysql://127.0.0.1:{self.server.port}/{self.name}', 'table-name' = 'sums',
  'username' = 'viewer', 'password' = 'hidd3n');
CREATE TEMPORARY TABLE appended (customer INT, topic STRING) WITH ('connector' = 'kafka',
  {kafka("appended", "'format' = 'json'")});
CREATE TEMPORARY TABLE files (customer INT, topic STRING) WITH ('connector' = 'filesystem',
  'path' = '{self.folder}', 'format' = 'json');
{"".join(f"INSERT INTO {sink} {SUMS};" for sink in CHANGING)}
INSERT INTO appended {VISITED};
INSERT INTO files {VISITED};
"""

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of each sink, in order; topics are replayed from their start."""
        upserts: dict[Any, Any] = {}
        for key, value in self._records("upserts"):
            upserts[key] = json.loads(value) if value else None
        bag: list[dict[str, Any]] = []
        for _, value in self._records("changelog"):
            change = json.loads(value)
            if change["before"] is not None:
                bag.remove(change["before"])
            if change["after"] is not None:
                bag.append(change["after"])
        lines = [
            line for path in self.folder.glob("[!._]*") for line in path.read_text().splitlines()
        ]
        found = {
            "upserts": [tuple(row.values()) for row in upserts.values() if row is not None],
            "changelog": [tuple(row.values()) for row in bag],
            "mysql_sums": self.server.execute(f"SELECT * FROM {self.name}.sums"),
            "appended": [tuple(json.loads(v).values()) for _, v in self._records("appended")],
            "files": [tuple(json.loads(line).values()) for line in lines],
        }
        return {sink: sorted(rows, key=repr) for sink, rows in found.items()}

    def _records(self, sink: str) -> Iterator[tuple[bytes, bytes]]:
        """The committed records of a topic, which has one partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.servers, "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed", "enable.partition.eof": True,
                "enable.auto.commit": False, "log_level": 0,
            }
        )  # fmt: skip
        try:
            consumer.assign([TopicPartition(f"{self.name}_{sink}", 0, 0)])
            while True:
                for message in consumer.consume(1000, 1.0):
                    if message.error() is not None:
                        return
                    yield message.key(), message.value()
        finally:
            consumer.close()


def change(rng: random.Random) -> str:
    """Inserts into all tables, and updates and deletes of those with a key."""
    n = rng.randint
    return (
        f"INSERT INTO orders VALUES ({n(1, 9)}, {n(1, 4)}, {n(1, 50)}), ({n(1, 9)}, 2, 7); "
        f"INSERT INTO customers VALUES ({n(1, 4)}, '{rng.choice('xyz')}'), (5, 'w'); "
        f"UPDATE orders SET customer = {n(1, 5)} WHERE id > {n(1, 9)}; "
        f"DELETE FROM orders WHERE id = {n(1, 9)}; DELETE FROM customers WHERE id = {n(1, 5)}; "
        f"INSERT INTO visits VALUES ({n(1, 4)}, '{rng.choice('ab')}'), (1, 'a'); "
        f"INSERT INTO pages VALUES ('{rng.choice('ab')}', '{rng.choice('st')}')"
    )


POINTS = [
    f"{step}:0:default.{target}"
    for step in ("batch-written", "target-committed")
    for sink in (*CHANGING, "appended", "files")
    for target in (f"{sink}__view_shop_sql",)
]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 8))]
)
def test_sinks_have_the_result_of_a_view_after_kills(
    shop: Shop, broker: KafkaBroker, mariadb: MariaDB, without_jvm: None, seed: int
) -> None:
    rng, targets = random.Random(seed), Targets(shop, broker, mariadb)
    shop.do(f"{TABLES}INSERT INTO customers VALUES (1, 'x'), (2, 'y'), (3, 'x'); {change(rng)}")
    script = targets.script
    point = rng.choice(POINTS)
    killed = shop.run(script, "--until-caught-up", spark=False, STREAMHOUSE_FAILPOINT=point)
    assert killed.code == -signal.SIGKILL, killed.err
    batch = LocalPipeline(shop.folder / "batch")
    batch.options, batch.warehouse = dict(shop.warehouse.options), shop.warehouse
    for number in range(2 if seed == 0 else 5):
        shop.do(change(rng))
        if number and seed:
            try:
                with failing_at(rng.choice(POINTS)):
                    shop.settle_here(script)
            except pytest.fail.Exception:
                pass  # no batch of that query was due
        shop.settle_here(script)
        found = targets.rows()
        for sink, rows in found.items():
            expected = batch.selected(SUMS if sink in CHANGING else VISITED)
            assert rows == sorted(expected, key=repr), (number, sink)
    mariadb.execute(f"DROP DATABASE {targets.name}")
    refused = "INTO appended: the format 'json' has only inserts.* rows of the result change: COUNT"
    with pytest.raises(SqlError, match=refused):
        shop.settle_here(f"{script}INSERT INTO appended (customer) SELECT COUNT(*) FROM visits;")
