"""Changes of MySQL and Kafka as versions of rows, joined as of a time, against a plain model."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.kafka.conftest import Topic
from tests.integration.runtime.conftest import failing_at
from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.demo.kafka.broker import KafkaBroker
from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.runtime.audit.audit import audit

SALES = "CREATE TABLE IF NOT EXISTS sales (id INT, k STRING, at_ TIMESTAMP(3), i TIMESTAMP_LTZ(3));"
COLUMNS = "(k STRING PRIMARY KEY NOT ENFORCED, v INT, at_ TIMESTAMP{}, WATERMARK FOR at_ AS at_)"
SOURCES = {
    "served": f"""CREATE TEMPORARY TABLE served {COLUMNS.format("(3)")} WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{{port}}', 'username' = '{USER}',
  'password' = '{PASSWORD}', 'database-name' = 'versions', 'table-name' = 'rates');""",
    "changed": f"""CREATE TEMPORARY TABLE changed {COLUMNS.format("(3)")} WITH (
  'connector' = 'kafka', 'topic' = '{{topic}}_changed', 'format' = 'debezium-json',
  'scan.startup.mode' = 'earliest-offset', 'properties.bootstrap.servers' = '{{servers}}');""",
    "upserted": f"""CREATE TEMPORARY TABLE upserted
  {COLUMNS.format("_LTZ(3) METADATA FROM 'timestamp' VIRTUAL")} WITH (
  'connector' = 'upsert-kafka', 'topic' = '{{topic}}_upserted', 'key.format' = 'json',
  'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY',
  'properties.bootstrap.servers' = '{{servers}}');""",
}
VIEWS = "".join(
    f"CREATE MATERIALIZED VIEW of_{name} AS SELECT s.id, r.v FROM sales AS s LEFT JOIN {name} FOR "
    f"SYSTEM_TIME AS OF s.{time} AS r ON s.k = r.k;"
    for name, time in zip(SOURCES, ("at_", "at_", "i"), strict=True)
)
START = datetime(2026, 1, 1)


class Rates:
    """Rows by key of a source, which `write` changes there, with all of their versions."""

    def __init__(self, rng: random.Random, write: Callable[..., None]) -> None:
        self._rng, self._write = rng, write
        self.rows: dict[str, tuple[int, datetime]] = {}
        self.versions: dict[tuple[str, datetime], int | None] = {}

    def change(self, deleted_at: datetime | None = None) -> None:
        """Write or delete a row; a delete has the row's time, or one of its own."""
        rng, key = self._rng, self._rng.choice("abc")
        old, at = self.rows.get(key), START + timedelta(seconds=rng.randint(0, 20))
        new = None if old and rng.random() < 0.3 else (rng.randint(0, 3), at)
        if new == old:
            return
        self._write(key, old, new, at)
        if new is None:
            assert old is not None
            self.versions[key, at if deleted_at else old[1]] = None
            del self.rows[key]
        else:
            self.versions[key, at], self.rows[key] = new[0], new

    def at(self, key: str, time: datetime) -> int | None:
        times = [at for own, at in self.versions if own == key and at <= time]
        return self.versions[key, max(times)] if times else None


class Sources:
    """A MySQL table, and topics with changes and upserts."""

    def __init__(self, rng: random.Random, server: MariaDB, broker: KafkaBroker) -> None:
        self._server, self.topic = server, f"v{rng.getrandbits(40):x}"
        server.execute(
            "CREATE OR REPLACE DATABASE versions",
            "CREATE TABLE versions.rates (k VARCHAR(5) PRIMARY KEY, v INT, at_ DATETIME(3))",
            f"GRANT ALL ON versions.* TO {USER}",
        )
        self._topics = {name: Topic(broker, f"{self.topic}_{name}") for name in SOURCES}
        for name in ("changed", "upserted"):
            # The records are months old, which a broker deletes when it looks for old ones.
            broker.create_topic(self._topics[name].name, 2, {"retention.ms": "-1"})
        writers = (self._serve, self._send_change, self._upsert)
        self.rates = {name: Rates(rng, write) for name, write in zip(SOURCES, writers, strict=True)}

    def change(self) -> None:
        for name, rates in self.rates.items():
            for _ in range(5):
                rates.change(START if name == "upserted" else None)

    def _serve(self, key: str, old: Any, new: Any, at: datetime) -> None:
        self._server.execute(
            f"DELETE FROM versions.rates WHERE k = '{key}'"
            if new is None
            else f"INSERT INTO versions.rates VALUES ('{key}', {new[0]}, '{at}') ON DUPLICATE KEY "
            f"UPDATE v = {new[0]}, at_ = '{at}'"
        )

    def _send_change(self, key: str, old: Any, new: Any, at: datetime) -> None:
        def row(of: Any) -> dict[str, Any] | None:
            return None if of is None else {"k": key, "v": of[0], "at_": str(of[1])}

        kind = "d" if new is None else "c" if old is None else "u"
        change = json.dumps({"before": row(old), "after": row(new), "op": kind})
        self._topics["changed"].send(change, partition=ord(key) % 2, key=key)

    def _upsert(self, key: str, old: Any, new: Any, at: datetime) -> None:
        value = None if new is None else json.dumps({"v": new[0]})
        self._topics["upserted"].send(
            value, partition=ord(key) % 2, key=json.dumps({"k": key}),
            timestamp=int(at.replace(tzinfo=UTC).timestamp() * 1000),
        )  # fmt: skip


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 8))]
)
def test_rows_join_the_versions_of_sources(
    mariadb: MariaDB, broker: KafkaBroker, seed: int, tmp_path: Path
) -> None:
    rng, shop = random.Random(seed), LocalPipeline(tmp_path)
    sources, sales = Sources(rng, mariadb, broker), list[Any]()
    declared = "".join(SOURCES.values()).format(
        port=mariadb.port, topic=sources.topic, servers=broker.servers
    )
    script = f"{SALES}{declared}{VIEWS}"
    # Of MySQL, versions begin with the first run.
    shop.do(SALES)
    shop.run(script)
    for number in range(3 if seed == 0 else 6):
        sources.change()
        new = [
            (n, rng.choice("abc"), START + timedelta(seconds=rng.randint(0, 20)))
            for n in range(3 * number, 3 * number + 3)
        ]
        shop.do(
            "INSERT INTO sales VALUES "
            + ", ".join(f"({n}, '{k}', TIMESTAMP '{at}', TIMESTAMP '{at}')" for n, k, at in new)
        )
        sales += new
        if number:
            name, step = rng.choice([*SOURCES]), rng.choice(("batch-written", "target-committed"))
            kept = rng.choice((f"of_{name}", f"of_{name}__joined_{name}_figures_sql"))
            try:
                with failing_at(f"{step}:0:default.{kept}"):
                    shop.run(script)
            except pytest.fail.Exception:
                pass  # no batch of that query was due
        shop.run(script)
        for name, rates in sources.rates.items():
            found = Counter(shop.selected(f"SELECT id, v FROM of_{name}"))
            assert found == Counter((n, rates.at(k, at)) for n, k, at in sales), (number, name)
    assert all(audit(shop.options, f"default.of_{name}").equal for name in SOURCES)
    mariadb.execute("DROP DATABASE versions")
