"""Email addresses move between customers of MySQL, and each sink by email keeps all of them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.integration.runtime.conftest import Shop

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.runtime.audit.audit import audit

pytestmark = pytest.mark.usefixtures("in_threads")

TABLES = """
CREATE TABLE customers (id INT, email STRING, v INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('bucket' = '3', 'changelog-producer' = 'lookup');
CREATE TABLE names (v INT, name STRING, PRIMARY KEY (v) NOT ENFORCED) WITH ('bucket' = '2');
INSERT INTO names VALUES (0, 'n0'), (1, 'n1'), (2, 'n2'), (3, 'n3');
CREATE TABLE direct (email STRING, id INT, v INT, PRIMARY KEY (email) NOT ENFORCED)
  WITH ('bucket' = '2');
CREATE TABLE shuffled (email STRING, id INT, name STRING, PRIMARY KEY (email) NOT ENFORCED)
  WITH ('bucket' = '2');
"""
SCRIPT = """
CREATE TEMPORARY TABLE source (id INT, email STRING, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}',
  'username' = '{user}', 'password' = '{password}', 'database-name' = 'moves',
  'table-name' = 'customers');
CREATE TEMPORARY TABLE sunk (email STRING, id INT, v INT, PRIMARY KEY (email) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:mysql://127.0.0.1:{port}/moves', 'table-name' = 'by_email',
  'username' = '{user}', 'password' = '{password}');
INSERT INTO customers SELECT id, email, v FROM source;
INSERT INTO direct SELECT email, id, v FROM source;
INSERT INTO sunk SELECT email, id, v FROM customers;
INSERT INTO shuffled
SELECT /*+ LOOKUP('table'='n', 'strategy'='bucket') */ c.email, c.id, n.name FROM customers AS c
JOIN names /*+ OPTIONS('lookup.bucket.shuffle-min-rows'='0') */ FOR SYSTEM_TIME AS OF PROCTIME()
  AS n ON c.v = n.v;
"""


@pytest.fixture
def server(mariadb: MariaDB) -> MariaDB:
    mariadb.execute(
        "CREATE OR REPLACE DATABASE moves",
        "CREATE TABLE moves.customers (id INT PRIMARY KEY, email VARCHAR(20) UNIQUE, v INT)",
        "CREATE TABLE moves.by_email (email VARCHAR(20) PRIMARY KEY, id INT, v INT)",
        f"GRANT ALL ON moves.* TO {USER}",
    )
    return mariadb


def swap(one: int, other: int) -> list[str]:
    """A transaction that swaps the emails of two customers, if both are there."""
    first, second = (f"(SELECT email FROM customers WHERE id = {n})" for n in (one, other))
    both = "@a IS NOT NULL AND @b IS NOT NULL"
    return [
        "BEGIN",
        f"SET @a = {first}, @b = {second}",
        f"UPDATE customers SET email = CONCAT('t', id) WHERE id IN ({one}, {other}) AND {both}",
        f"UPDATE customers SET email = @b WHERE id = {one} AND {both}",
        f"UPDATE customers SET email = @a WHERE id = {other} AND {both}",
        "COMMIT",
    ]


def moves(draw: random.Random, count: int) -> list[str]:
    """Statements that swap emails, or change, delete or add a customer; swaps come last."""
    statements = []
    for number in range(count):
        one, other = draw.sample(range(1, 9), 2)
        row = f"({one}, 'e{number % 7}', {draw.randrange(4)})"
        statements += draw.choice(
            (
                swap(one, other),
                [f"UPDATE customers SET v = {draw.randrange(4)} WHERE id = {one}"],
                [f"DELETE FROM customers WHERE id = {one} AND RAND({number}) < 0.3"],
                [f"INSERT IGNORE INTO customers VALUES {row}"],
            )
        )
    statements.append("INSERT IGNORE INTO customers VALUES (1, 'f1', 1), (2, 'f2', 2)")
    return [*statements, *(text for n in range(1, 8) for text in swap(n, n + 1))]


def sink(server: MariaDB) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in server.execute("SELECT * FROM moves.by_email ORDER BY email")]


def wanted(server: MariaDB) -> list[tuple[Any, ...]]:
    rows = server.execute("SELECT email, id, v FROM moves.customers ORDER BY email")
    return [tuple(row) for row in rows]


def owners(server: MariaDB) -> list[tuple[Any, ...]]:
    return [row[:2] for row in wanted(server)]


def found(shop: Shop, table: str) -> list[tuple[Any, ...]]:
    return [(row["email"], row["id"]) for row in shop.rows(table)]


def test_no_email_is_lost(shop: Shop, server: MariaDB) -> None:
    draw = random.Random(5)
    shop.do(TABLES)
    script = SCRIPT.format(port=server.port, user=USER, password=PASSWORD)
    values = ", ".join(f"({n}, 'e{n}', {n % 4})" for n in range(1, 7))
    server.execute("USE moves", f"INSERT INTO customers VALUES {values}")
    for number in range(3):
        told = shop.settle_here(script)
        assert told.count("Make sure that (email) is unique in") == (0 if number else 3)
        for name in ("direct", "shuffled"):
            assert found(shop, name) == owners(server), name
        assert sink(server) == wanted(server)
        server.execute("USE moves", *moves(draw, 40))
    assert audit(shop.warehouse.options, "default.shuffled").equal
    plan = shop.printed("EXPLAIN " + script.split("INSERT INTO ")[-1].join(("INSERT INTO ", "")))
    assert "current at the end of a batch after all others, since the target's key does" in plan


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_no_email_is_lost_while_they_move(shop: Shop, server: MariaDB, seed: int) -> None:
    draw = random.Random(seed)
    shop.do(TABLES)
    script = SCRIPT.format(port=server.port, user=USER, password=PASSWORD)
    values = ", ".join(f"({n}, 'e{n}', {n % 4})" for n in range(1, 7))
    server.execute("USE moves", f"INSERT INTO customers VALUES {values}")
    for _ in range(2):
        with shop.running_here(script) as until:
            until(lambda: sink(server) == wanted(server))
            for _ in range(40):
                server.execute("USE moves", *moves(draw, 20))
            until(lambda: sink(server) == wanted(server))
            until(lambda: found(shop, "direct") == owners(server))
            until(lambda: found(shop, "shuffled") == owners(server))
        server.execute("USE moves", *moves(draw, 20))
    assert audit(shop.warehouse.options, "default.shuffled").equal
