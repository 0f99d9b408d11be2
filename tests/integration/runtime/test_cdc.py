"""A script keeps a MySQL table in a Paimon table, across restarts and failures."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.integration.runtime.conftest import Ended, Shop

from streamhouse import execute
from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.runtime.streaming.query import QueryFailed

pytestmark = pytest.mark.usefixtures("in_threads")

SCRIPT = """
CREATE TEMPORARY TABLE source (
  id INT, name STRING, country STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '{password}', 'database-name' = 'runtime', 'table-name' = '{table}'
);
CREATE TABLE IF NOT EXISTS customers (
  id INT, name STRING, country STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '1', 'changelog-producer' = 'input');
INSERT INTO customers SELECT id, name, country FROM source;
"""
ALTERED = """
CREATE TEMPORARY TABLE source (
  id INT, name STRING, points INT, PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '{password}', 'database-name' = 'runtime', 'table-name' = 'altered'
);
CREATE TABLE IF NOT EXISTS altered (
  id INT, name STRING, points INT, PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '1', 'changelog-producer' = 'input');
INSERT INTO altered SELECT id, name, points FROM source;
"""
METADATA = """
CREATE TEMPORARY TABLE source (
  id INT, name STRING, at_ TIMESTAMP_LTZ(3) METADATA FROM 'op_ts' VIRTUAL,
  table_name STRING METADATA VIRTUAL, PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '{password}', 'database-name' = 'runtime', 'table-name' = 'customers'
);
CREATE TABLE IF NOT EXISTS stamped (
  id INT, name STRING, at_ TIMESTAMP_LTZ(3), table_name STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '1');
INSERT INTO stamped SELECT id, name, at_, table_name FROM source;
"""
SECRET = "p4ss'w0rd"


def script(server: MariaDB, **given: str) -> str:
    values = {"user": USER, "password": PASSWORD, "table": "customers", **given}
    return SCRIPT.format(port=server.port, **values)


def there(server: MariaDB) -> list[tuple[Any, ...]]:
    rows = server.execute("SELECT id, name, country FROM runtime.customers ORDER BY id")
    return [tuple(row) for row in rows]


def here(shop: Shop) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in shop.rows("customers"))


@pytest.fixture
def customers(mariadb: MariaDB) -> MariaDB:
    """Five hundred of them, in a table of MySQL."""
    mariadb.execute(
        "CREATE DATABASE IF NOT EXISTS runtime",
        "DROP TABLE IF EXISTS runtime.customers",
        "CREATE TABLE runtime.customers (id INT PRIMARY KEY, name VARCHAR(20), country CHAR(20))",
        "USE runtime",
        "INSERT INTO customers SELECT seq, CONCAT('c', seq), 'Peru' FROM seq_1_to_500",
    )
    return mariadb


@pytest.mark.soak
def test_a_table_follows_mysql_across_restarts(shop: Shop, customers: MariaDB) -> None:
    mariadb = customers
    shop.settle(script(mariadb))
    assert here(shop) == there(mariadb)
    mariadb.execute(
        "UPDATE runtime.customers SET country = 'China' WHERE id = 7",
        "DELETE FROM runtime.customers WHERE id BETWEEN 10 AND 19",
        "INSERT INTO runtime.customers VALUES (1000, 'Søren', NULL)",
        "UPDATE runtime.customers SET id = 2000 WHERE id = 8",
    )
    shop.settle(script(mariadb))
    assert len(there(mariadb)) == 491
    assert here(shop) == there(mariadb)


def failed(ended: Ended) -> str:
    assert SECRET not in ended.out + ended.err
    assert (ended.code, len(ended.err.splitlines())) == (1, 1), ended.err
    return ended.err


def test_mistakes_are_reported_in_one_line(shop: Shop, customers: MariaDB) -> None:
    mariadb = customers
    wrong = SECRET.replace("'", "''")
    text = script(mariadb, password=wrong)
    assert "password" in failed(shop.run(text, "--until-caught-up", spark=False))
    with pytest.raises(TableError, match="nosuch"):
        shop.settle_here(script(mariadb, table="nosuch"))
    mariadb.execute("SET GLOBAL binlog_format = 'STATEMENT'")
    try:
        with pytest.raises(StreamhouseError, match="(?s)binlog.*ROW"):
            shop.settle_here(script(mariadb))
    finally:
        mariadb.execute("SET GLOBAL binlog_format = 'ROW'")


def test_the_target_and_the_source_are_altered_while_the_query_runs(
    shop: Shop, mariadb: MariaDB
) -> None:
    mariadb.execute(
        "CREATE DATABASE IF NOT EXISTS runtime",
        "CREATE TABLE runtime.altered (id INT PRIMARY KEY, name VARCHAR(20), points INT)",
        "INSERT INTO runtime.altered VALUES (1, 'Ann', 10)",
    )
    script = ALTERED.format(port=mariadb.port, user=USER, password=PASSWORD)
    with shop.running_here(script) as until:

        def there(*wanted: dict[str, Any]) -> None:
            rows: list[dict[str, Any]] = []

            def same() -> bool:
                with contextlib.suppress(TableError):
                    rows[:] = shop.rows("altered")
                return rows == list(wanted)

            try:
                until(same)
            except AssertionError as error:
                raise AssertionError(f"{rows}: {error}") from None

        there({"id": 1, "name": "Ann", "points": 10})
        execute(
            shop.warehouse,
            "ALTER TABLE altered ADD (city STRING AFTER id);"
            "ALTER TABLE altered RENAME name TO full_name;"
            "ALTER TABLE altered MODIFY points BIGINT;",
        )
        mariadb.execute("UPDATE runtime.altered SET points = 11, name = 'Ada'")
        there({"id": 1, "city": None, "full_name": "Ada", "points": 11})
        # MySQL gets a column before those that are read, and a longer one; neither stops the query.
        mariadb.execute(
            "ALTER TABLE runtime.altered ADD COLUMN zip INT FIRST, MODIFY name VARCHAR(60)",
            "INSERT INTO runtime.altered (id, name, points, zip) "
            "VALUES (2, REPEAT('x', 50), 5, 99)",
            "UPDATE runtime.altered SET points = 12 WHERE id = 1",
        )
        there(
            {"id": 1, "city": None, "full_name": "Ada", "points": 12},
            {"id": 2, "city": None, "full_name": "x" * 50, "points": 5},
        )
        mariadb.execute(
            "ALTER TABLE runtime.altered DROP COLUMN name",
            "UPDATE runtime.altered SET points = 13 WHERE id = 1",
        )
        with pytest.raises(QueryFailed) as failed:
            until(lambda: False)
        assert "'name'" in str(failed.value) and "runtime.altered" in str(failed.value)


def test_metadata_columns(shop: Shop, customers: MariaDB) -> None:
    text = METADATA.format(port=customers.port, user=USER, password=PASSWORD)
    shop.settle_here(text)
    customers.execute(
        "SET TIMESTAMP = 1700000000", "UPDATE runtime.customers SET name = 'x' WHERE id = 7"
    )
    shop.settle_here(text)
    rows = {row["id"]: row for row in shop.rows("stamped")}
    assert len(rows) == 500 and {row["table_name"] for row in rows.values()} == {"customers"}
    assert rows[7]["name"] == "x" and rows[7]["at_"].timestamp() == 1700000000
    assert {row["at_"].timestamp() for id_, row in rows.items() if id_ != 7} == {0.0}
