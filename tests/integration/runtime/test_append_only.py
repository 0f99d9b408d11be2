"""`scan.read-changelog-as-append-only.enabled`: a table of all changes of a MySQL table."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.runtime.conftest import Shop

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB

pytestmark = pytest.mark.usefixtures("in_threads")


def test_append_only_with_row_kinds_in_a_script(shop: Shop, mariadb: MariaDB) -> None:
    mariadb.execute(
        "DROP DATABASE IF EXISTS appended",
        "CREATE DATABASE appended",
        "CREATE TABLE appended.t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO appended.t VALUES (1, 1), (2, 2), (3, 3)",
    )
    script = f"""
CREATE TEMPORARY TABLE changes (kind STRING METADATA FROM 'row_kind' VIRTUAL, id INT, v INT,
  PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{mariadb.port}',
  'username' = '{USER}', 'password' = '{PASSWORD}', 'database-name' = 'appended',
  'table-name' = 't', 'scan.read-changelog-as-append-only.enabled' = 'true',
  'scan.incremental.snapshot.enabled' = 'false', 'debezium.snapshot.mode' = 'initial');
CREATE TABLE IF NOT EXISTS history (kind STRING, id INT, v INT) WITH ('bucket' = '-1');
INSERT INTO history SELECT kind, id, v FROM changes;
"""
    output = shop.settle_here(script)
    why = "'scan.startup.mode' says whether there is a snapshot"
    assert f"option 'debezium.snapshot.mode' has no effect here: {why}" in output
    mariadb.execute(
        "UPDATE appended.t SET v = 20 WHERE id = 2",
        "UPDATE appended.t SET id = 4 WHERE id = 3",
        "DELETE FROM appended.t WHERE id = 1",
    )
    shop.settle_here(script)

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["kind"], row["id"], row["v"]

    expected = [("+I", 1, 1), ("+I", 2, 2), ("+I", 3, 3), ("-U", 2, 2), ("+U", 2, 20),
                ("-D", 3, 3), ("+I", 4, 3), ("-D", 1, 1)]  # fmt: skip
    assert sorted(map(key, shop.rows("history"))) == sorted(expected)
