"""A MySQL table kept in a Paimon table by a script, across restarts, and what can go wrong."""

from __future__ import annotations

from typing import Any

from tests.integration.runtime.conftest import Ended, Shop

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB

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
SECRET = "p4ss'w0rd"


def script(server: MariaDB, **given: str) -> str:
    values = {"user": USER, "password": PASSWORD, "table": "customers", **given}
    return SCRIPT.format(port=server.port, **values)


def there(server: MariaDB) -> list[tuple[Any, ...]]:
    rows = server.execute("SELECT id, name, country FROM runtime.customers ORDER BY id")
    return [tuple(row) for row in rows]


def here(shop: Shop) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in shop.rows("customers"))


def test_a_table_follows_mysql_across_restarts(shop: Shop, mariadb: MariaDB) -> None:
    mariadb.execute(
        "CREATE DATABASE runtime",
        "CREATE TABLE runtime.customers (id INT PRIMARY KEY, name VARCHAR(20), country CHAR(20))",
        "USE runtime",
        "INSERT INTO customers SELECT seq, CONCAT('c', seq), 'Peru' FROM seq_1_to_500",
    )
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


def test_mistakes_are_told_in_one_line(shop: Shop, mariadb: MariaDB) -> None:
    wrong = SECRET.replace("'", "''")
    assert "password" in failed(shop.run(script(mariadb, password=wrong), "--until-caught-up"))
    assert "nosuch" in failed(shop.run(script(mariadb, table="nosuch"), "--until-caught-up"))
    mariadb.execute("SET GLOBAL binlog_format = 'STATEMENT'")
    try:
        message = failed(shop.run(script(mariadb), "--until-caught-up"))
    finally:
        mariadb.execute("SET GLOBAL binlog_format = 'ROW'")
    assert "binlog" in message and "ROW" in message
