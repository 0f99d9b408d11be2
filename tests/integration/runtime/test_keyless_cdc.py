"""A MySQL table without a key, counted by all of its columns, while drivers die and rows change."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest
from tests.integration.conftest import Installed
from tests.integration.runtime.conftest import Dying, Shop
from tests.mysql_server import Server
from tests.waiting import DEADLINE_S

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB

pytestmark = pytest.mark.usefixtures("in_threads")

_ROWS = 20_000
_SCRIPT = """
CREATE TEMPORARY TABLE my_t (a INT, b STRING) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '{password}', 'database-name' = 'keyless', 'table-name' = 't',
  'scan.incremental.snapshot.chunk.key-column' = 'a'
);
CREATE TABLE IF NOT EXISTS counted (
  a INT, b STRING, n BIGINT, s BIGINT, PRIMARY KEY (a, b) NOT ENFORCED
) WITH (
  'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum',
  'fields.s.aggregate-function' = 'sum', 'bucket' = '1'
);
INSERT INTO counted
SELECT COALESCE(a, -1), COALESCE(b, '~'), COUNT(*), SUM(a)
FROM my_t GROUP BY COALESCE(a, -1), COALESCE(b, '~');
"""


@pytest.fixture
def server(installed: Installed, tmp_path: Path) -> Iterator[MariaDB]:
    with Server(installed(tmp_path / "mariadb")) as server:
        server.execute(
            "CREATE DATABASE keyless",
            "CREATE TABLE keyless.t (a INT, b VARCHAR(20))",
            "INSERT INTO keyless.t SELECT NULLIF(seq % 50, 0), NULLIF(CONCAT('b', seq % 3), 'b0') "
            f"FROM keyless.seq_1_to_{_ROWS}",
        )
        yield server


@contextmanager
def _writing(server: MariaDB) -> Iterator[None]:
    """Overlapping transactions, without a pause between them."""
    stop, errors = threading.Event(), []

    def run(number: int) -> None:
        dice = random.Random(number)
        connection = server.connect("keyless")
        try:
            while not stop.is_set():
                a, c = dice.randint(1, 60), dice.randint(1, 60)
                statements = (
                    "BEGIN",
                    f"INSERT INTO t VALUES ({a}, 'b1'), ({a}, 'b1'), (NULL, NULL)",
                    f"UPDATE t SET a = {a}, b = 'ü' WHERE a = {c} LIMIT 2",
                    f"DO SLEEP({dice.choice((0, 0.01, 0.03))})",
                    f"DELETE FROM t WHERE a <=> {dice.choice((c, 'NULL'))} LIMIT 3",
                    dice.choice(("COMMIT", "COMMIT", "ROLLBACK")),
                )
                try:
                    with connection.cursor() as cursor:
                        for statement in statements:
                            cursor.execute(statement)
                except pymysql.err.OperationalError:
                    connection.rollback()  # a deadlock
        except pymysql.err.MySQLError as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert not errors


def test_the_multiset_is_the_same_after_kills(shop: Shop, dying: Dying, server: MariaDB) -> None:
    text = _SCRIPT.format(port=server.port, user=USER, password=PASSWORD)
    with _writing(server):
        for point in ("batch-written:0", "target-committed:1"):
            with dying(text, f"{point}:default.counted"):
                pass
    shop.settle_here(text)
    expected = server.execute(
        "SELECT COALESCE(a, -1), COALESCE(b, '~'), COUNT(*), CAST(SUM(a) AS SIGNED) "
        "FROM keyless.t GROUP BY 1, 2"
    )
    found = {(row["a"], row["b"]): (row["n"], row["s"]) for row in shop.rows("counted")}
    assert {key: of for key, of in found.items() if of[0]} == {
        (a, b): (count, total) for a, b, count, total in expected
    }
