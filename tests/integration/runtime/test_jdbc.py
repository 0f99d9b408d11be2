"""A stream looks up a MySQL table: misses, NULL keys, pending rows, kills, the audit."""

from __future__ import annotations

import json
import signal
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.failpoints import LOOKUP_JOURNAL_STEP
from tests.integration.runtime.conftest import Dying, Shop
from tests.java_reads import java_rows

import streamhouse
from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import ConnectError, OptionError, StreamhouseError, TableError
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.audit.repair import repair
from streamhouse.runtime.run_output import RunOutput
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

pytestmark = pytest.mark.usefixtures("in_threads")

USER, PASSWORD = "looker", "hidd3n"
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
GENERATED = "CREATE TEMPORARY TABLE made (id INT) WITH ('connector' = 'datagen');"
TOTALS = """
CREATE TABLE totals (level STRING PRIMARY KEY NOT ENFORCED, orders BIGINT, price DECIMAL(10, 2))
WITH ('bucket' = '1', 'merge-engine' = 'aggregation',
  'fields.default-aggregate-function' = 'sum');
INSERT INTO totals SELECT COALESCE(l.label, '-'), COUNT(*), SUM(o.price) FROM orders AS o
LEFT JOIN labels FOR SYSTEM_TIME AS OF o.p AS l ON o.cust = l.cust
GROUP BY COALESCE(l.label, '-');
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
        f"CREATE OR REPLACE USER {USER} IDENTIFIED BY '{PASSWORD}'",
        f"GRANT SELECT ON jdbc.* TO {USER}",
    )
    return mariadb


def found(shop: Shop, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in shop.rows("enriched")]


def test_a_batch_that_runs_again_joins_what_it_had_found(
    shop: Shop, dying: Dying, customers: MariaDB
) -> None:
    options, change = shop.warehouse.options, streamhouse.execute
    script = pipeline(customers)
    change(options, TABLES)
    change(
        options,
        "INSERT INTO orders VALUES (1, 1, 'a', 1.50), (2, 2, 'b', 2), (3, CAST(NULL AS INT), 'a', "
        "3), (4, 7, 'a', 4), (5, 1, CAST(NULL AS STRING), 5)",
    )
    # What its workers remember of the server goes with them.
    killed = shop.run(script, spark=False, STREAMHOUSE_FAILPOINT="target-committed:0")
    assert killed.code == -signal.SIGKILL, killed.err
    assert PASSWORD not in killed.out + killed.err
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
    with dying(script, f"{LOOKUP_JOURNAL_STEP}:1"):
        pass
    waiting = {row["id"] for row in shop.rows("enriched__pending")}
    assert waiting == {3, 4, 5}
    assert found(shop, "id", "name", "rate", "label") == first
    customers.execute(
        "UPDATE jdbc.customers SET name = 'too late' WHERE id = 2",
        "INSERT INTO jdbc.customers VALUES (7, 'a', 'new', NULL, 2.5)",
    )
    with shop.running_here(script + TOTALS) as until:
        until(lambda: (4, "new", 2.5, None) in found(shop, "id", "name", "rate", "label"))
        # All orders are there, so one batch takes them.
        until(lambda: shop.warehouse.exists("default", "totals") and len(shop.rows("totals")) == 3)
    assert (6, "changed", None, "late") in found(shop, "id", "name", "rate", "label")
    assert [row["since"].isoformat() for row in shop.rows("enriched") if row["since"]] == [
        "2026-01-02T03:04:05.678000"
    ]
    kept = shop.rows("enriched__looked_up")
    (batch,) = (row for row in kept if (row["_batch"], row["_lookup"]) == (0, "dim_0"))
    assert (batch["_table"], batch["_keys"]) == ("customers", 3)
    assert sorted(json.loads(batch["_rows"])["name"]) == ["Ann", 'Søren "x"']
    proved = audit(options, "default.enriched")
    assert proved.equal and proved.batches >= 3 and proved.from_snapshot == 0
    assert [tuple(row.values()) for row in shop.rows("totals")] == [
        ("-", 2, Decimal(7)), ("gold", 2, Decimal("6.50")), ("late", 2, Decimal(8)),
    ]  # fmt: skip
    assert audit(options, "default.totals").equal
    with pytest.raises(TableError, match="looks up a table in MySQL"):
        repair(options, "default.totals")
    with Sidecar(options) as java:
        for table in ("enriched", "enriched__looked_up"):
            rows = java_rows(java, f"default.{table}").to_pylist()
            assert sorted(rows, key=str) == sorted(shop.rows(table), key=str)


class Printed(RunOutput):
    """What a script said."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.found: list[dict[str, Any]] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def rows(self, reader: pa.RecordBatchReader) -> None:
        self.found += reader.read_all().to_pylist()

    def changes(self, batch: pa.RecordBatch) -> None:
        self.found += batch.to_pylist()


def said(shop: Shop, text: str) -> Printed:
    """Run a script that needs no Spark in this process."""
    printed = Printed()
    options = ScriptOptions("s", shop.warehouse.options, until_caught_up=True)
    ScriptRunner(options, printed).run(parse_script(text))
    return printed


def test_plans_and_selects(shop: Shop, customers: MariaDB) -> None:
    values = {"port": customers.port, "user": USER, "password": PASSWORD}
    tables = (TABLES + SERVER).format(**values, more=", 'lookup.max-retries' = '5'")
    output = said(shop, f"{tables} EXPLAIN {QUERY.format(hint='')}")
    plan = "\n".join(row["plan"] for row in output.found)
    assert "customers by id, kind, INNER; strategy: by key from MySQL (cache NONE)" in plan
    assert "strategy: by key from MySQL (cache PARTIAL, 100,000 keys)" in plan
    assert PASSWORD not in plan
    streamhouse.execute(shop.warehouse, "INSERT INTO orders VALUES (1, 2, 'b', 1), (2, 9, 'b', 1)")
    select = """SELECT o.id, c.name FROM orders AS o LEFT JOIN customers
      /*+ OPTIONS('lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '1') */
      FOR SYSTEM_TIME AS OF o.p AS c ON o.cust = c.id;"""
    changes = [(row["id"], row["name"]) for row in said(shop, tables + select).found]
    assert sorted(changes) == [(1, 'Søren "x"'), (2, None)]
    batch = """SET 'execution.runtime-mode' = 'batch';
      SELECT l.label, COUNT(*) AS n, MAX(c.since) AS since FROM customers AS c
      LEFT JOIN labels AS l ON l.cust = c.id GROUP BY l.label ORDER BY n DESC;"""
    rows = said(shop, tables + batch).found
    assert [(row["label"], row["n"]) for row in rows] == [("gold", 2), (None, 1)]
    assert rows[0]["since"].isoformat() == "2026-01-02T03:04:05.678000"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"'{password}'": "'s3cret'"}, ConnectError, "refuses the login of user"),
        ({"127.0.0.1:{port}/": "127.0.0.1:1/"}, ConnectError, "check the option 'url'"),
        ({"/jdbc'": "/mysql'", "'customers', 'user": "'user', 'user"}, TableError, "can see"),
        ({"'customers', 'user": "'customer', 'user"}, TableError, "did you mean 'customers'"),
        ({"c.rate": "c.rates", "rate D": "rates D"}, TableError, "did you mean 'rate'"),
        ({"(id INT, kind": "(id FLOAT, kind"}, OptionError, "compares cust as another type"),
        (
            {"cust INT) WITH": "cust STRING) WITH", "c.id = l": "c.kind = l"},
            OptionError,
            "declare the column with a type like MySQL's",
        ),
        ({"FROM orders AS": "FROM customers AS"}, StreamhouseError, "'connector' = 'mysql-cdc'"),
        (
            {"INSERT INTO enriched": f"{GENERATED}\nINSERT INTO made"},
            StreamhouseError,
            "must be a Paimon table",
        ),
    ],
)
def test_what_is_wrong_is_reported_before_anything_runs(
    shop: Shop,
    customers: MariaDB,
    changes: dict[str, str],
    error: type[Exception],
    message: str,
) -> None:
    text = TABLES + SERVER + QUERY
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    text = text.replace("'lookup.cache' = 'PARTIAL'", "'lookup.max-retries' = '0'")
    more = ", 'lookup.max-retries' = '0'"
    wrong = text.format(port=customers.port, user=USER, password=PASSWORD, more=more, hint="")
    with pytest.raises(error) as raised:
        said(shop, wrong)
    assert message in str(raised.value)
    assert PASSWORD not in str(raised.value) and "s3cret" not in str(raised.value)
