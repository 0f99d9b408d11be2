"""Syncs of tables with zero dates in their keys."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from tests.integration.runtime.test_sync import Sync, fresh, mysql_conf, there

from streamhouse.demo.mariadb import MariaDB
from streamhouse.mysql.values.dates import OPTION
from streamhouse.runtime.streaming.query import QueryFailed
from streamhouse.runtime.sync.options import sync_database_options
from streamhouse.runtime.sync.run import SyncRun, run_sync

SESSION = "SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'"
KINDS = {"d": "DATE", "dt": "DATETIME", "dt3": "DATETIME(3)", "ts": "TIMESTAMP"}


@pytest.fixture
def sync(mariadb: MariaDB, tmp_path: Any, in_threads: None) -> Sync:
    return Sync(mariadb, tmp_path)


def run(sync: Sync, database: str, behavior: str, name: str | None = None, **how: Any) -> None:
    conf = mysql_conf(sync.server, database) | {OPTION: behavior, "server-time-zone": "+02:00"}
    conf["scan.incremental.snapshot.chunk.size"] = "2"
    options = sync_database_options(sync.warehouse.options, "ods", conf, **how)
    run_sync(SyncRun(options, name, until_caught_up=True, notice=sync.notices.append))


def create(server: MariaDB, database: str, values: list[str]) -> None:
    fresh(server, database)
    for name, kind in KINDS.items():
        own = [value for value in values if not kind.startswith("TIMESTAMP") or value >= "2024"]
        rows = ", ".join(
            f"('{value}', {number}, 0, 0, 'old')" for number, value in enumerate(["0", "0", *own])
        )
        server.execute(
            SESSION,
            f"CREATE TABLE {database}.{name} (k {kind} NOT NULL DEFAULT '2024-01-01', id INT, "
            f"n {kind} NOT NULL DEFAULT '2024-01-01', z {kind} NULL, v VARCHAR(9), "
            "PRIMARY KEY (k, id))",
            f"INSERT INTO {database}.{name} VALUES {rows}",
        )


def change(server: MariaDB, database: str) -> None:
    for name in KINDS:
        table = f"{database}.{name}"
        server.execute(
            SESSION,
            f"UPDATE {table} SET v = 'new' WHERE id = 0",
            f"UPDATE {table} SET k = '2024-09-01' WHERE id = 1",
            f"UPDATE {table} SET k = 0 WHERE id = 2",
            f"DELETE FROM {table} WHERE id = 3",
            f"REPLACE INTO {table} (k, id, n, z, v) VALUES (0, 9, '2024-02-02', NULL, 'in')",
        )


def mysql_rows(server: MariaDB, table: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    """MySQL's texts, in the zone that the sync has, without trailing zeros."""
    rows = server.execute(
        "SET time_zone = '+02:00'", f"SELECT CONCAT(k), id, CONCAT(n), CONCAT(z), v FROM {table}"
    )
    return {(shortened(k), int(id)): (shortened(n), shortened(z), v) for k, id, n, z, v in rows}


def shortened(value: Any) -> Any:
    if isinstance(value, datetime.date):
        value = str(value)
    if value is None:
        return None
    return value.rstrip("0").rstrip(".") if "." in value else value


def rounded(text: str | None) -> str | None:
    return None if text is None else text.replace("0000-00-00", "0001-01-01")


def test_rounded_keys(sync: Sync, mariadb: MariaDB) -> None:
    create(mariadb, "zero_round", ["2024-01-01", "2024-01-02"])
    run(sync, "zero_round", "round")
    for _ in range(2):
        for name in KINDS:
            expected = {
                (rounded(k), id): (rounded(n), rounded(z), v)
                for (k, id), (n, z, v) in mysql_rows(mariadb, f"zero_round.{name}").items()
            }
            found = {
                (shortened(k), id): (shortened(n), shortened(z), v)
                for k, id, n, z, v in there(sync.warehouse, f"ods.{name}")
            }
            assert found == expected, name
        change(mariadb, "zero_round")
        run(sync, "zero_round", "round")
    mariadb.execute(SESSION, "INSERT INTO zero_round.d VALUES ('2023-00-00', 30, 0, 0, 'x')")
    with pytest.raises(QueryFailed, match="'k' .* has the value 2023-00-00, which is no date"):
        run(sync, "zero_round", "round")


def test_keys_that_are_texts(sync: Sync, mariadb: MariaDB) -> None:
    create(mariadb, "zero_text", ["2024-01-01", "2024-01-02", "2023-00-00", "2023-02-31"])
    how: dict[str, Any] = {"type_mapping": ["to-string"]}
    run(sync, "zero_text", "CONVERT_TO_NULL", **how)
    for _ in range(2):
        for name in KINDS:
            theirs = mysql_rows(mariadb, f"zero_text.{name}")
            rows = there(sync.warehouse, f"ods.{name}")
            assert {(shortened(row[0]), int(row[1])): row[4] for row in rows} == {
                key: row[2] for key, row in theirs.items()
            }
            assert {row[2] for row in rows if row[4] != "in"} == {None}
            zero = {"d": "", "dt": " 00:00:00.000", "dt3": " 00:00:00.000"}
            text = "0000-00-00" + zero.get(name, " 00:00:00.000000")
            assert text in {row[0] for row in rows}, name
        change(mariadb, "zero_text")
        run(sync, "zero_text", "CONVERT_TO_NULL", **how)


def test_exceptions(sync: Sync, mariadb: MariaDB) -> None:
    create(mariadb, "zero_error", [])
    match = r"MySQL table zero_error.\w+: column '\w' .* has the value 0000-00-00.*'EXCEPTION'"
    with pytest.raises(QueryFailed, match=match):
        run(sync, "zero_error", "EXCEPTION")
    texts: dict[str, Any] = {"type_mapping": ["to-string"], "table_prefix": "text_"}
    with pytest.raises(QueryFailed, match=match):
        run(sync, "zero_error", "EXCEPTION", "texts", **texts)


def test_keys_whose_texts_get_more_digits(sync: Sync, mariadb: MariaDB) -> None:
    create(mariadb, "zero_digits", ["2024-01-01", "2024-01-02"])
    how: dict[str, Any] = {"type_mapping": ["to-string"]}
    run(sync, "zero_digits", "CONVERT_TO_NULL", **how)
    for name, kind in KINDS.items():
        if name != "d":
            wide = kind.partition("(")[0] + "(6)"
            table = f"zero_digits.{name}"
            mariadb.execute(SESSION, f"ALTER TABLE {table} MODIFY k {wide} NOT NULL DEFAULT 0")
    change(mariadb, "zero_digits")
    run(sync, "zero_digits", "CONVERT_TO_NULL", **how)
    for name in KINDS:
        rows = there(sync.warehouse, f"ods.{name}")
        keys = mysql_rows(mariadb, f"zero_digits.{name}")
        assert sorted((shortened(row[0]), int(row[1])) for row in rows) == sorted(keys)


def test_a_new_column_has_rounded_dates(sync: Sync, mariadb: MariaDB) -> None:
    create(mariadb, "zero_added", ["2024-01-01"])
    run(sync, "zero_added", "ROUND")
    mariadb.execute(SESSION, "ALTER TABLE zero_added.d ADD COLUMN more DATE NOT NULL")
    change(mariadb, "zero_added")
    run(sync, "zero_added", "ROUND")
    rows = there(sync.warehouse, "ods.d")
    assert {row[-1] for row in rows} == {datetime.date(1, 1, 1)}
    assert len(rows) == len(mysql_rows(mariadb, "zero_added.d"))
