"""A script with its passwords by reference: `mysql-cdc`, `jdbc`, what is shown, what is allowed."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.integration.runtime.conftest import Shop

from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import ConnectError, OptionError
from streamhouse.secret_references import ALLOWED

USER, PASSWORD, VARIABLE = "referrer", "hidd3n", "STREAMHOUSE_TEST_PASSWORD"
SCRIPT = """
CREATE TEMPORARY TABLE changes (id INT PRIMARY KEY NOT ENFORCED, owner INT) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '${{env:{variable}}}', 'database-name' = 'referred', 'table-name' = 'things');
CREATE TEMPORARY TABLE owners (id INT, name STRING) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:mysql://127.0.0.1:{port}/referred',
  'table-name' = 'owners', 'username' = '{user}', 'password' = '${{file:{file}}}');
CREATE TABLE IF NOT EXISTS things (id INT PRIMARY KEY NOT ENFORCED, owner INT)
  WITH ('changelog-producer' = 'input', 'bucket' = '1');
CREATE TABLE IF NOT EXISTS named (id INT PRIMARY KEY NOT ENFORCED, name STRING)
  WITH ('bucket' = '1');
SHOW CREATE TABLE changes;
INSERT INTO things SELECT id, owner FROM changes;
INSERT INTO named SELECT t.id, o.name
FROM (SELECT *, PROCTIME() AS p FROM things) AS t
JOIN owners FOR SYSTEM_TIME AS OF t.p AS o ON t.owner = o.id;
"""

STARTS_SPARK = """
CREATE TEMPORARY TABLE made (id INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
CREATE TABLE ones (id INT) WITH ('bucket' = '-1');
INSERT INTO ones SELECT id FROM made;
"""


@pytest.fixture
def script(mariadb: MariaDB, tmp_path: Path) -> str:
    mariadb.execute(
        "DROP DATABASE IF EXISTS referred",
        "CREATE DATABASE referred",
        "CREATE TABLE referred.things (id INT PRIMARY KEY, owner INT)",
        "CREATE TABLE referred.owners (id INT PRIMARY KEY, name TEXT)",
        "INSERT INTO referred.things VALUES (7, 1)",
        "INSERT INTO referred.owners VALUES (1, 'Ann')",
        f"CREATE OR REPLACE USER {USER} IDENTIFIED BY '{PASSWORD}'",
        f"GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {USER}",
    )
    file = tmp_path / "secret"
    file.write_text(f"{PASSWORD}\n")
    return SCRIPT.format(port=mariadb.port, user=USER, variable=VARIABLE, file=file)


def test_passwords_come_from_the_driver(shop: Shop, script: str) -> None:
    """The JVM and its workers have started before, so they lack the variable."""
    shop.settle_here(STARTS_SPARK, name="first.sql")
    with patch.dict(os.environ, {VARIABLE: PASSWORD}):
        output = shop.settle_here(script)
    assert shop.rows("named") == [{"id": 7, "name": "Ann"}]
    assert "'password' = '****'" in output
    written = [
        path for path in shop.path.rglob("*") if path.is_file() and path.suffix != ".parquet"
    ]
    assert len(written) > 10
    leaks = [path for path in written if PASSWORD.encode() in path.read_bytes()]
    assert leaks == [] and PASSWORD not in output


def test_what_is_missing_wrong_or_not_allowed(shop: Shop, script: str) -> None:
    with pytest.raises(OptionError, match=f"environment variable {VARIABLE}, which is not set"):
        shop.settle_here(script)
    with patch.dict(os.environ, {VARIABLE: "wr0ng"}):
        with pytest.raises(ConnectError, match="refuses the login") as caught:
            shop.settle_here(script)
        assert "wr0ng" not in str(caught.value)
    with (
        patch.dict(os.environ, {VARIABLE: PASSWORD, ALLOWED: "file:/run/secrets/*"}),
        pytest.raises(OptionError, match="refers to (env|file):.*, which is not allowed here"),
    ):
        shop.settle_here(script)
