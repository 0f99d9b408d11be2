"""A MySQL table looked up by a stream: misses, NULL keys, waiting rows, kills, the audit."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from tests.integration.runtime.conftest import Shop

import streamhouse
from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.paimon.sidecar import Sidecar
from streamhouse.runtime.audit import audit

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT, cust INT, kind STRING, price DECIMAL(10, 2),
  p AS PROCTIME());
CREATE TABLE IF NOT EXISTS enriched (id INT PRIMARY KEY NOT ENFORCED, name STRING,
  since TIMESTAMP(3), rate DOUBLE, label STRING, price DECIMAL(10, 2)) WITH ('bucket' = '1');
"""
SERVER = """
CREATE TEMPORARY TABLE customers (id INT, kind STRING, name STRING, since TIMESTAMP(3),
  rate DOUBLE) WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://127.0.0.1:{port}/jdbc',
  'table-name' = 'customers', 'username' = '{user}', 'password' = '{password}'{more});
CREATE TEMPORARY TABLE labels (label STRING, cust INT) WITH ('connector' = 'jdbc',
  'url' = 'jdbc:mariadb://127.0.0.1:{port}/jdbc', 'table-name' = 'labels',
  'username' = '{user}', 'password' = '{password}', 'lookup.cache' = 'PARTIAL');
"""
QUERY = """
INSERT INTO enriched SELECT {hint} o.id, c.name, c.since, c.rate, l.label, o.price
FROM orders AS o
JOIN customers FOR SYSTEM_TIME AS OF o.p AS c ON o.cust = c.id AND o.kind = c.kind
LEFT JOIN labels FOR SYSTEM_TIME AS OF o.p AS l ON c.id = l.cust;
"""
HINT = """/*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',
  'fixed-delay'='100ms', 'max-attempts'='500') */"""


def pipeline(server: MariaDB, **given: str) -> str:
    values = {"port": server.port, "user": USER, "password": PASSWORD, "more": "", "hint": HINT}
    return (TABLES + SERVER + QUERY).format(**{**values, **given})


@pytest.fixture
def customers(mariadb: MariaDB) -> MariaDB:
    mariadb.execute(
        "DROP DATABASE IF EXISTS jdbc",
        "CREATE DATABASE jdbc",
        "CREATE TABLE jdbc.customers (id INT, kind VARCHAR(9), name VARCHAR(40) CHARSET utf8mb4, "
        "since DATETIME(3), rate DOUBLE, KEY (id, kind))",
        "CREATE TABLE jdbc.labels (cust BIGINT PRIMARY KEY, label VARCHAR(20))",
        "INSERT INTO jdbc.customers VALUES (1, 'a', 'Ann', '2026-01-02 03:04:05.678', 0.1), "
        "(1, 'A', 'not Ann', NULL, 1), (2, 'b', 'Søren \"x\"', NULL, NULL)",
        "INSERT INTO jdbc.labels VALUES (1, 'gold')",
    )
    return mariadb


def found(shop: Shop, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in shop.rows("enriched")]


@pytest.mark.timeout(500)
def test_a_batch_that_runs_again_joins_what_it_had_found(shop: Shop, customers: MariaDB) -> None:
    options, change = shop.warehouse.options, streamhouse.execute
    script = pipeline(customers)
    change(options, TABLES)
    change(
        options,
        "INSERT INTO orders VALUES (1, 1, 'a', 1.50), (2, 2, 'b', 2), (3, CAST(NULL AS INT), 'a', "
        "3), (4, 7, 'a', 4), (5, 1, CAST(NULL AS STRING), 5)",
    )
    point = "target-committed:0"
    killed = shop.run(script, "--until-caught-up", STREAMHOUSE_FAILPOINT=point)
    assert killed.code == -signal.SIGKILL, killed.err
    first = [(1, "Ann", 0.1, "gold"), (2, 'Søren "x"', None, None)]
    assert found(shop, "id", "name", "rate", "label") == first
    assert shop.rows("enriched__pending") == []
    # Had the batch looked again, nothing would wait, and row 1 would.
    customers.execute(
        "DELETE FROM jdbc.customers WHERE id = 1",
        "UPDATE jdbc.customers SET name = 'changed' WHERE id = 2",
        "INSERT INTO jdbc.labels VALUES (2, 'late')",
    )
    change(options, "INSERT INTO orders VALUES (6, 2, 'b', 6)")
    point = "pending-committed:1"
    killed = shop.run(script, "--until-caught-up", STREAMHOUSE_FAILPOINT=point)
    assert killed.code == -signal.SIGKILL, killed.err
    waiting = {row["id"] for row in shop.rows("enriched__pending")}
    assert waiting == {3, 4, 5}
    assert found(shop, "id", "name", "rate", "label") == [*first, (6, "changed", None, "late")]
    customers.execute("INSERT INTO jdbc.customers VALUES (7, 'a', 'new', NULL, 2.5)")
    run = shop.start(script)
    run.until(lambda: (4, "new", 2.5, None) in found(shop, "id", "name", "rate", "label"))
    run.signal(signal.SIGINT)
    ended = run.wait()
    assert PASSWORD not in ended.out + ended.err
    assert [row["since"].isoformat() for row in shop.rows("enriched") if row["since"]] == [
        "2026-01-02T03:04:05.678000"
    ]
    kept = shop.rows("enriched__looked_up")
    (batch,) = (row for row in kept if (row["_batch"], row["_lookup"]) == (0, "dim_0"))
    assert (batch["_table"], batch["_keys"]) == ("customers", 3)
    assert sorted(json.loads(batch["_rows"])["name"]) == ["Ann", 'Søren "x"']
    proved = audit(options, "default.enriched")
    assert proved.equal and proved.batches >= 3 and proved.from_snapshot == 0
    with Sidecar(options) as java:
        for table in ("enriched", "enriched__looked_up"):
            rows = java.read(f"default.{table}").to_pylist()
            assert sorted(rows, key=str) == sorted(shop.rows(table), key=str)
