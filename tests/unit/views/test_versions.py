"""Tables with a key, joined as of a stored time: their versions, against a plain model."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.runtime.conftest import failing_at
from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.audit.audit import audit

Row = tuple[Any, ...]
Versions = dict[tuple[str, datetime], Row | None]
"""The row of a key from a time on; None from the time of a row that was deleted on."""

START = datetime(2026, 1, 1)
TABLES = """
CREATE TABLE IF NOT EXISTS sales (id INT, k STRING, at_ TIMESTAMP(3));
CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY NOT ENFORCED, k STRING, at_ TIMESTAMP(3))
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS rates (k STRING PRIMARY KEY NOT ENFORCED, v INT, time_ TIMESTAMP(3),
  WATERMARK FOR time_ AS time_ - INTERVAL '5' SECOND) WITH ('bucket' = '2');
CREATE TABLE IF NOT EXISTS people (v INT PRIMARY KEY NOT ENFORCED, name STRING, `since` STRING,
  rowtime AS TO_TIMESTAMP(`since`), WATERMARK FOR rowtime AS rowtime) WITH ('bucket' = '1');
"""
QUERIES = {
    "left": "SELECT o.id, rates.v FROM {} AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at_ ON "
    "o.k = rates.k",
    "inner": "SELECT o.id, r.v FROM {} AS o JOIN `rates` /*+ OPTIONS('scan.overwrite' = "
    "'difference') */ FOR SYSTEM_TIME AS OF o.at_ AS r ON o.k = r.k AND r.v > 1",
    "both": "SELECT o.id, p.name FROM {} AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at_ AS r ON "
    "o.k = r.k LEFT JOIN people FOR SYSTEM_TIME AS OF o.at_ AS p ON r.v = p.v",
}


class Model:
    """The versions of a table since the first batch, from its rows after each commit."""

    def __init__(self, time: int) -> None:
        self._time = time
        self.rows: dict[Any, Row] = {}
        self.versions: Versions = {}
        self._committed = self._read = False

    def commit(self, rows: dict[Any, Row]) -> None:
        self._committed = True
        for key, row in self.rows.items():
            if key not in rows:
                self.versions[key, row[self._time]] = None
        for key, row in rows.items():
            if self.rows.get(key) != row:
                self.versions[key, row[self._time]] = row
        self.rows = rows

    def read(self) -> None:
        """Note that a run begins; the first one of which there is a commit reads the rows then."""
        if not self._read:
            self.versions = {(key, row[self._time]): row for key, row in self.rows.items()}
        self._read = self._committed

    def at(self, key: Any, time: datetime) -> Row | None:
        times = [at for own, at in self.versions if own == key and at <= time]
        return self.versions[key, max(times)] if times else None


def second(rng: random.Random) -> datetime:
    return START + timedelta(seconds=rng.randint(0, 20))


class Shop:
    """Tables that change, with the models of those that are joined."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.pipeline = rng, LocalPipeline(folder)
        self.pipeline.do(TABLES)
        self.rates, self.people = Model(2), Model(2)
        self.sales: Counter[Row] = Counter()
        self.orders: dict[int, Row] = {}

    def change(self) -> None:
        rng = self.rng
        for model, table, keys in (
            (self.rates, "rates", ("a", "b", "c")), (self.people, "people", (0, 1, 2))
        ):  # fmt: skip
            for _ in range(rng.randint(0, 3)):
                key, rows = rng.choice(keys), dict(model.rows)
                if key in rows and rng.random() < 0.4:
                    del rows[key]
                    column = "k" if table == "rates" else "v"
                    self.pipeline.do(f"DELETE FROM {table} WHERE {column} = {key!r}")
                else:
                    at, value = second(rng), rng.randint(0, 3)
                    rows[key] = (key, value if table == "rates" else f"n{value}", at)
                    time = f"TIMESTAMP '{at}'" if table == "rates" else f"'{at}'"
                    self.pipeline.do(
                        f"INSERT INTO {table} VALUES ({key!r}, {rows[key][1]!r}, {time})"
                    )
                model.commit(rows)
        sold = [(rng.randint(0, 99), rng.choice("abcd"), second(rng)) for _ in range(3)]
        listed = ", ".join(f"({i}, '{k}', TIMESTAMP '{at}')" for i, k, at in sold)
        self.pipeline.do(f"INSERT INTO sales VALUES {listed}")
        self.sales.update(sold)
        order = (rng.randint(0, 4), rng.choice("abcd"), second(rng))
        self.orders[order[0]] = order
        self.pipeline.do(
            f"INSERT INTO orders VALUES ({order[0]}, '{order[1]}', TIMESTAMP '{order[2]}')"
        )

    def expected(self, query: str, table: str) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for row in self.sales.elements() if table == "sales" else self.orders.values():
            rate = self.rates.at(row[1], row[2])
            if query == "inner" and (rate is None or rate[1] <= 1):
                continue
            value = None if rate is None else rate[1]
            if query == "both":
                person = self.people.at(value, row[2])
                value = None if person is None else person[1]
            found[row[0], value] += 1
        return found


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))]
)
def test_rows_join_the_versions_of_their_times(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    shop = Shop(rng, tmp_path)
    cases = [(query, table) for query in QUERIES for table in ("sales", "orders")]
    query, table = ("both", "sales") if not seed else rng.choice(cases)
    text = QUERIES[query].format(table)
    script = f"{TABLES} CREATE MATERIALIZED VIEW t AS {text};"
    shop.change()
    for number in range(6 if seed else 3):
        shop.rates.read()
        shop.people.read()
        if number and rng.random() < 0.5:
            name = rng.choice(("t", "t__joined_rates_figures_sql"))
            step = rng.choice(("batch-written", "target-committed"))
            try:
                with failing_at(f"{step}:0:default.{name}"):
                    shop.pipeline.run(script)
            except pytest.fail.Exception:
                pass  # no batch of that query was due
        shop.pipeline.run(script)
        found = Counter(shop.pipeline.selected("SELECT id, " + _column(query) + " FROM t"))
        assert found == shop.expected(query, table), (query, table)
        shop.change()
    shop.pipeline.run(script)
    assert audit(shop.pipeline.options, "default.t").equal


def _column(query: str) -> str:
    return "name" if query == "both" else "v"


def test_a_target_with_a_key_and_a_lookup_join_the_same_rows(tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    sales = TABLES.split(";")[0].replace(")\n", ")").replace("at_ ", "now_ AS PROCTIME(), at_ ")
    script = (
        f"{sales}; {TABLES.partition(';')[2]} CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY NOT "
        "ENFORCED, name STRING, v INT) WITH ('bucket' = '1'); INSERT INTO t SELECT s.id, p.name, "
        "r.v FROM sales AS s LEFT JOIN people FOR SYSTEM_TIME AS OF s.now_ AS p ON s.id = p.v LEFT "
        "JOIN rates FOR SYSTEM_TIME AS OF s.at_ AS r ON s.k = r.k;"
    )
    shop.do(f"{sales}; {TABLES.partition(';')[2]} INSERT INTO people VALUES (1, 'x', '')")
    shop.do(f"INSERT INTO rates VALUES ('a', 1, TIMESTAMP '{START}')")
    shop.do(f"INSERT INTO sales VALUES (1, 'a', TIMESTAMP '{START}')")
    shop.run(script)
    shop.do("UPDATE people SET name = 'y'; DELETE FROM rates WHERE v = 1")
    assert shop.selected("SELECT * FROM t") == [(1, "x", 1)]
    shop.run(script)
    assert shop.selected("SELECT * FROM t") == [(1, "x", None)]


@pytest.mark.parametrize(
    ("join", "message"),
    [
        ("plain FOR SYSTEM_TIME AS OF o.at_ AS r ON o.k = r.k", "give it a WATERMARK"),
        ("sales FOR SYSTEM_TIME AS OF o.at_ AS r ON o.k = r.k", "a PRIMARY KEY and a WATERMARK"),
        ("topic FOR SYSTEM_TIME AS OF o.at_ AS r ON o.k = r.k", "INSERT it into a table with"),
    ],
)
def test_tables_without_versions_are_refused(join: str, message: str, tmp_path: Path) -> None:
    shop, plain = LocalPipeline(tmp_path), "CREATE TABLE IF NOT EXISTS plain (k STRING PRIMARY KEY "
    topic = (
        "CREATE TEMPORARY TABLE topic (k STRING PRIMARY KEY NOT ENFORCED, at_ TIMESTAMP(3), "
        "WATERMARK FOR at_ AS at_) WITH ('connector' = 'upsert-kafka', 'topic' = 't', "
        "'properties.bootstrap.servers' = 'localhost:1', 'key.format' = 'json', 'value.format' = "
        "'json')"
    )
    for statement in ("CREATE MATERIALIZED VIEW t AS", ""):
        with pytest.raises(StreamhouseError, match=message):
            shop.run(
                f"{TABLES} {plain} NOT ENFORCED, v INT); {topic}; {statement} SELECT o.id, r.k "
                f"FROM orders AS o JOIN {join};"
            )
    assert not any("joined" in name for name in shop.warehouse.tables("default"))


def test_versions_are_drawn_without_tables_of_their_own(tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    lines = shop.run(
        f"{TABLES} EXPLAIN CREATE MATERIALIZED VIEW t AS {QUERIES['both'].format('sales')}"
    )
    assert [line.split("`")[5] for line in lines if line.startswith("read by: ")] == [
        "t__joined_rates_figures_sql", "t__joined_rates_figures_sql"
    ]  # fmt: skip
    assert not any("joined" in name for name in shop.warehouse.tables("default"))
