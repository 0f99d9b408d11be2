"""INSERTs that no stream computes, into all kinds of targets, after random changes and failures."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.integration.runtime.conftest import failing_at
from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.errors import SqlError, StreamhouseError, TableError

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT, customer_id INT, price DECIMAL(10, 2));
CREATE TABLE IF NOT EXISTS regions (customer_id INT, region STRING);
CREATE TABLE IF NOT EXISTS customers (id INT PRIMARY KEY NOT ENFORCED, country STRING)
  WITH ('bucket' = '1');
"""
TARGETS = """
CREATE TABLE IF NOT EXISTS listed (id INT, region STRING);
CREATE TABLE IF NOT EXISTS totals (country STRING PRIMARY KEY NOT ENFORCED, total DECIMAL(20, 2))
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.total.aggregate-function' = 'sum');
CREATE TABLE IF NOT EXISTS newest (id INT PRIMARY KEY NOT ENFORCED, region STRING)
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.region.aggregate-function' = 'max');
CREATE TABLE IF NOT EXISTS kept (id INT PRIMARY KEY NOT ENFORCED, country STRING, n BIGINT)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS moved (id INT PRIMARY KEY NOT ENFORCED, country STRING)
  WITH ('bucket' = '1');
"""
LISTED = "SELECT o.id, r.region FROM orders o JOIN regions r ON o.customer_id = r.customer_id"
PRICES = "SELECT c.country, o.price FROM orders o JOIN customers c ON o.customer_id = c.id"
KEPT = (
    "SELECT c.id, c.country, COUNT(*) AS n FROM customers c LEFT JOIN orders o ON o.customer_id = "
    "c.id GROUP BY c.id, c.country"
)
PAIRS = "SELECT c.id + 0 AS id, p.country FROM customers c JOIN customers p ON c.id = p.id"
TARGETS_OF = {
    "listed": LISTED,
    "totals": f"SELECT country, SUM(price) FROM ({PRICES}) GROUP BY country",
    "newest": f"SELECT id, MAX(region) FROM ({LISTED}) GROUP BY id",
    "kept": KEPT,
    "moved": PAIRS,
}
"""The rows that each target has to have."""


def script(folder: Path) -> str:
    return f"""{TABLES} {TARGETS}
CREATE TEMPORARY TABLE files (id INT, region STRING) WITH ('connector' = 'filesystem',
  'path' = '{folder}/files', 'format' = 'json');
INSERT INTO listed {LISTED};
INSERT INTO files {LISTED};
INSERT INTO totals {PRICES};
INSERT INTO newest {LISTED};
INSERT INTO kept {KEPT};
CREATE MATERIALIZED VIEW pairs AS SELECT n, country FROM ({PAIRS}) AS q (n, country);
INSERT INTO moved SELECT n, country FROM pairs;
"""


FAILURES = [
    f"{step}:0:default.{target}"
    for step in ("batch-written", "target-committed")
    for target in (
        "listed", "files$filesystem", "totals", "kept", "moved", "pairs",
        "totals__view_figures_sql",
    )
]  # fmt: skip


SPREAD = "UPDATE customers SET country = CONCAT(country, CAST(id AS STRING))"


def change(rng: random.Random) -> str:
    """Statements that add orders and regions, and change customers in any way."""
    n = rng.randint
    statements = [
        f"INSERT INTO orders VALUES ({n(1, 6)}, {n(1, 4)}, {n(1, 20)}), ({n(1, 6)}, 2, 0.5)",
        f"INSERT INTO regions VALUES ({n(1, 4)}, '{rng.choice('nsew')}')",
        f"INSERT INTO customers VALUES ({n(1, 4)}, '{rng.choice('xyz')}')",
        f"UPDATE customers SET country = '{rng.choice('xyz')}' WHERE id > {n(1, 8)}",
        f"DELETE FROM customers WHERE id = {n(1, 4)}",
    ]
    return "; ".join([SPREAD, *rng.sample(statements, rng.randint(2, 5))])


def table_rows(shop: LocalPipeline, query: str) -> list[tuple[Any, ...]]:
    return sorted(shop.selected(query), key=repr)


def in_files(folder: Path) -> list[tuple[Any, ...]]:
    texts = [path.read_text() for path in (folder / "files").glob("[!._]*")]
    return sorted(
        (tuple(json.loads(line).values()) for text in texts for line in text.splitlines()), key=repr
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))]
)
def test_targets_have_the_result_once_across_failures(seed: int, tmp_path: Path) -> None:
    shop, rng = LocalPipeline(tmp_path), random.Random(seed)
    values = ", ".join(f"({number}, 'x')" for number in range(1, 9))
    shop.do(f"{TABLES} INSERT INTO customers VALUES {values}")
    for number in range(4 if seed else 2):
        shop.do(TABLES + change(rng))
        if number:
            point = rng.choice(FAILURES)
            try:
                with failing_at(point):
                    shop.run(script(tmp_path))
            except pytest.fail.Exception:
                pass  # no batch of that query was due
        shop.run(script(tmp_path))
        for target, query in TARGETS_OF.items():
            found = table_rows(shop, f"SELECT * FROM {target}")
            if target == "totals":
                found = [row for row in found if row[1]]
            assert found == table_rows(shop, query), (number, target)
        assert in_files(tmp_path) == table_rows(shop, LISTED), number


def test_all_targets_start_from_scratch(tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 1); INSERT INTO customers VALUES (1, 'x')")
    shop.do("INSERT INTO regions VALUES (1, 'n')")
    shop.run(script(tmp_path))
    shop.do("TRUNCATE TABLE regions; INSERT INTO regions VALUES (1, 's')")
    shop.run(script(tmp_path), from_scratch=True)
    for target, query in TARGETS_OF.items():
        assert table_rows(shop, f"SELECT * FROM {target}") == table_rows(shop, query), target


def test_two_pipelines_do_not_keep_one_table(tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    insert = f"{TABLES} {TARGETS} INSERT INTO kept {KEPT};"
    shop.run(insert)
    with pytest.raises(TableError, match="result of an INSERT of pipeline 'figures.sql'"):
        shop.run(insert, name="other.sql")
    shop.run(insert)


def test_a_renamed_script_does_not_add_a_growing_result_again(tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 3); INSERT INTO regions VALUES (1, 'n')")
    insert = (
        f"{TABLES} CREATE TABLE IF NOT EXISTS sums (region STRING PRIMARY KEY NOT ENFORCED, total "
        "DECIMAL(20, 2)) WITH ('bucket' = '1', 'merge-engine' = 'aggregation', "
        "'fields.total.aggregate-function' = 'sum'); INSERT INTO sums SELECT r.region, o.price "
        "FROM orders o JOIN regions r ON o.customer_id = r.customer_id;"
    )
    shop.run(insert)
    with pytest.raises(StreamhouseError, match="which a new query would write again"):
        shop.run(insert, name="other.sql")
    assert shop.selected("SELECT * FROM sums") == [("n", 3)]


@pytest.mark.parametrize(
    ("insert", "error"),
    [
        (f"listed (region) SELECT country FROM ({PRICES})", "table default.customers has updates"),
        ("listed (id) SELECT COUNT(*) FROM orders", "no primary key.*COUNT changes when rows"),
        (f"newest (id, region) SELECT 1, country FROM ({PRICES})", "max"),
        ("kept (id) SELECT MAX(id) FROM kept", "cannot read its own table"),
        ("listed (id) SELECT x FROM orders JOIN regions ON TRUE", "column 'x'"),
    ],
)
def test_what_cannot_be_kept_is_refused(insert: str, error: str, tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    with pytest.raises(SqlError, match=error):
        shop.run(f"{TABLES} {TARGETS} INSERT INTO {insert};")
    assert shop.warehouse.tables("default") == []


def test_a_null_of_the_query_gets_the_type_of_the_target(tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1, 1); INSERT INTO regions VALUES (1, 'n')")
    query = LISTED.replace("o.id, r.region", "NULL, r.region")
    shop.run(f"{TABLES} {TARGETS} INSERT INTO listed {query};")
    assert shop.rows("listed") == [{"id": None, "region": "n"}]
