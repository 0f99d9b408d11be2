"""What Paimon's sync actions promise for flags and tables, by cases of their tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.runtime.test_sync import Sync, fresh, mysql_conf, there

from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import TableError
from streamhouse.runtime.streaming.query import QueryFailed
from streamhouse.runtime.sync.options import sync_database_options
from streamhouse.runtime.sync.run import SyncRun, run_sync


@pytest.fixture
def sync(mariadb: MariaDB, tmp_path: Path, in_threads: None) -> Sync:
    return Sync(mariadb, tmp_path)


def test_names_that_paimon_has_not(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "actions_names")
    mariadb.execute(
        "CREATE TABLE actions_names.`a$b` (id INT PRIMARY KEY)",
        "CREATE TABLE actions_names.`c.d` (id INT PRIMARY KEY, `$% ^,& *(` VARCHAR(9))",
        "INSERT INTO actions_names.`a$b` VALUES (1)",
        "INSERT INTO actions_names.`c.d` VALUES (2, 'x')",
    )
    with pytest.raises(TableError, match=r"a\$b cannot be written to .*--table-mapping 'a\$b=…'"):
        sync.database("actions_names")
    others = {"a/b": "/", "../x": "/", "a`b`": "`", "a\\b": r"\\", "a\tb": r"\t", "..": "only dots"}
    for name in others:
        quoted = name.replace("`", "``")
        mariadb.execute(f"CREATE TABLE actions_names.`{quoted}` (id INT PRIMARY KEY)")
    with pytest.raises(TableError, match="7 of the selected tables cannot be followed"):
        sync.database("actions_names")
    sync.database("actions_names", skip_unsupported=True)
    assert sync.warehouse.tables("ods") == ["c.d"]
    for name, why in others.items():
        assert any(f"ods.{name}: " in one and why in one for one in sync.notices), name
    mapping = {"a$b": "a_b", "c.d": "c_d", "a/b": "slash"}
    sync.database("actions_names", skip_unsupported=True, table_mapping=mapping, name="mapped")
    assert there(sync.warehouse, "ods.slash") == []
    assert there(sync.warehouse, "ods.a_b") == [(1,)]
    assert there(sync.warehouse, "ods.c_d") == [(2, "x")]


def test_keys_of_sets_are_texts(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "actions_sets")
    mariadb.execute(
        "CREATE TABLE actions_sets.t (s SET('a','b') PRIMARY KEY, v SET('x','y'))",
        "INSERT INTO actions_sets.t VALUES ('b,a', 'y,x'), ('b', ''), ('', NULL)",
    )
    sync.database("actions_sets")
    mariadb.execute("UPDATE actions_sets.t SET s = 'a' WHERE s = 'b'")
    sync.database("actions_sets")
    rows = [("", None), ("a", []), ("a,b", ["x", "y"])]
    assert sorted(there(sync.warehouse, "ods.t")) == rows
    with pytest.raises(TableError, match="can be followed; the notices say why"):
        sync.database("actions_sets", primary_keys=["v"], name="other", table_prefix="p_")
    assert any("primary key 'v' is an array" in text for text in sync.notices)


@pytest.mark.parametrize(
    ("columns", "values", "error"),
    [
        ("id INT PRIMARY KEY, c TIME", "1, '517:51:04'", "'c'.*--type-mapping time-to-string"),
        ("c DATETIME PRIMARY KEY", "0", "'c' .* of the key has the zero date .*'ROUND'.*to-string"),
        ("id INT PRIMARY KEY, c VARCHAR(9)", "1, 'a'", "'part'.*has only 1 characters"),
    ],
)
def test_errors_name_the_table(
    sync: Sync, mariadb: MariaDB, columns: str, values: str, error: str
) -> None:
    fresh(mariadb, "actions_errors")
    mariadb.execute(
        "CREATE TABLE actions_errors.other (c VARCHAR(9) PRIMARY KEY)",
        f"CREATE TABLE actions_errors.t ({columns})",
        "SET sql_mode = ''",
        f"INSERT INTO actions_errors.t VALUES ({values})",
    )
    how: dict[str, Any] = {}
    if "part" in error:
        how["computed_column"] = ["part=substring(c, 2)"]
    with pytest.raises(QueryFailed, match=f"MySQL table actions_errors.t: .*{error}"):
        sync.database("actions_errors", **how)


def test_changed_options_reach_existing_tables(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "actions_options")
    mariadb.execute("CREATE TABLE actions_options.t (id INT PRIMARY KEY)")
    sync.database("actions_options", table_conf={"bucket": "1"})
    conf = {
        "bucket": "2", "changelog-producer": "input", "snapshot.num-retained.min": "5",
        "snapshot.time-retained": "1h", "tag.automatic-creation": "process-time",
    }  # fmt: skip
    sync.database("actions_options", table_conf=conf)
    options = sync.warehouse.table("ods.t").options
    assert {key: options[key] for key in conf} == {**conf, "bucket": "1"}
    assert any("keeps its option 'bucket' = '1'" in notice for notice in sync.notices)


def test_comments_are_followed(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "actions_comments")
    mariadb.execute(
        "CREATE TABLE actions_comments.t (id INT COMMENT 'key' PRIMARY KEY, v VARCHAR(9)"
        " COMMENT 'v') COMMENT 'before'"
    )
    sync.database("actions_comments")
    mariadb.execute(
        "ALTER TABLE actions_comments.t COMMENT 'after'",
        "ALTER TABLE actions_comments.t MODIFY v VARCHAR(20) COMMENT 'it''s new'",
        "ALTER TABLE actions_comments.t ADD COLUMN w INT COMMENT 'w'",
        "INSERT INTO actions_comments.t VALUES (1, 'a', 2)",
    )
    sync.database("actions_comments")
    table = sync.warehouse.table("ods.t")
    assert table.schema.get("comment") == "after"
    found = {column.name: column.comment for column in table.columns}
    assert found == {"id": "key", "v": "it's new", "w": "w"}
    assert there(sync.warehouse, "ods.t") == [(1, "a", 2)]


def test_several_changes_in_one_statement(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "actions_many")
    mariadb.execute(
        "CREATE TABLE actions_many.t (_id INT PRIMARY KEY, v1 VARCHAR(10), v2 INT, v3 VARCHAR(10))",
        "INSERT INTO actions_many.t VALUES (1, 'one', 10, 'string_1')",
    )
    sync.database("actions_many")
    mariadb.execute(
        "ALTER TABLE actions_many.t ADD v4 INT, MODIFY COLUMN v1 VARCHAR(20), ADD COLUMN "
        "(v5 DOUBLE, v6 DECIMAL(5, 3), `$% ^,& *(` VARCHAR(10), v7 INTEGER "
        "COMMENT 'Hi, v700 DOUBLE \\', v701 INT a test'), MODIFY v2 BIGINT",
        "INSERT INTO actions_many.t VALUES "
        "(2, 'long_string_two', 2000000000000, 's', 20, 20.5, 20.002, 'test_2', 200)",
        "ALTER TABLE actions_many.t MODIFY v7 VARCHAR(20)",
        "INSERT INTO actions_many.t (_id, v7) VALUES (3, 'three hundred')",
    )
    sync.database("actions_many", type_mapping=["allow-non-string-to-string"])
    rows: list[tuple[Any, ...]] = [row[:5] + row[7:] for row in there(sync.warehouse, "ods.t")]
    assert rows == [
        (1, "one", 10, "string_1", None, None, None),
        (2, "long_string_two", 2000000000000, "s", 20, "test_2", "200"),
        (3, None, None, None, None, None, "three hundred"),
    ]


def test_names_of_a_catalog_that_ignores_case(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "actions_CASE")
    mariadb.execute(
        "CREATE TABLE actions_CASE.T (ID INT, Part INT, UPPERCASE_V0 VARCHAR(20),"
        " PRIMARY KEY (ID))",
        "INSERT INTO actions_CASE.T VALUES (1, 1, 'apache')",
    )

    def follow() -> None:
        options = sync_database_options(
            {**sync.warehouse.options, "case-sensitive": "false"},
            "ods",
            mysql_conf(mariadb, "actions_CASE"),
            primary_keys=["ID", "PART"],
            partition_keys=["PART"],
            computed_column=["SUB=substring(UPPERCASE_V0, 2)"],
            metadata_column=["table_name"],
            metadata_column_prefix="M_",
        )
        run_sync(SyncRun(options, until_caught_up=True))

    follow()
    mariadb.execute(
        "ALTER TABLE actions_CASE.T MODIFY COLUMN UPPERCASE_V0 VARCHAR(30)",
        "ALTER TABLE actions_CASE.T ADD COLUMN UPPERCASE_V1 DOUBLE AFTER ID",
        "INSERT INTO actions_CASE.T VALUES (2, 0.5, 2, 'Paimon')",
        "ALTER TABLE actions_CASE.T RENAME COLUMN UPPERCASE_V1 TO Renamed_V1",
        "ALTER TABLE actions_CASE.T RENAME COLUMN Renamed_V1 TO Other_V1",
        "ALTER TABLE actions_CASE.T ADD COLUMN V2 INT DEFAULT 7",
        "CREATE TABLE actions_CASE.T1 (K INT PRIMARY KEY, UPPERCASE_V0 VARCHAR(9))",
        "INSERT INTO actions_CASE.T1 VALUES (3, 'xy')",
    )
    follow()
    assert sync.warehouse.tables("ods") == ["t", "t1"]
    table = sync.warehouse.table("ods.t")
    assert (table.primary_key, table.partition_keys) == (("id", "part"), ("part",))
    rows = [row for batch in table.read() for row in batch.to_pylist()]
    assert sorted(rows, key=lambda row: int(row["id"])) == [
        {"id": 1, "other_v1": None, "part": 1, "uppercase_v0": "apache", "v2": 7,
         "sub": "ache", "m_table_name": "T"},
        {"id": 2, "other_v1": 0.5, "part": 2, "uppercase_v0": "Paimon", "v2": 7,
         "sub": "imon", "m_table_name": "T"},
    ]  # fmt: skip
    assert there(sync.warehouse, "ods.t1") == [(3, "xy", "", "T1")]


def test_a_reload_fills_metadata_columns_with_a_prefix(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "actions_prefix")
    mariadb.execute(
        "CREATE TABLE actions_prefix.t (id INT PRIMARY KEY)",
        "INSERT INTO actions_prefix.t VALUES (1)",
    )
    how: dict[str, Any] = {
        "metadata_column": ["database_name", "op_ts"], "metadata_column_prefix": "my_",
    }  # fmt: skip
    sync.database("actions_prefix", **how)
    mariadb.execute(
        "ALTER TABLE actions_prefix.t ADD COLUMN v INT DEFAULT 7",
        "INSERT INTO actions_prefix.t VALUES (2, 8)",
    )
    sync.database("actions_prefix", **how)
    table = sync.warehouse.table("ods.t")
    rows = [row for batch in table.read() for row in batch.to_pylist()]
    found = sorted((row["id"], row["v"], row["my_database_name"]) for row in rows)
    assert found == [(1, 7, "actions_prefix"), (2, 8, "actions_prefix")]
    assert all(row["my_op_ts"] is not None for row in rows)


def test_tables_of_inserts_need_no_primary_key(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "actions_append")
    mariadb.execute(
        "CREATE TABLE actions_append.t (k INT PRIMARY KEY, v1 VARCHAR(10))",
        "INSERT INTO actions_append.t VALUES (1, 'Apache'), (2, 'Paimon')",
    )
    how: dict[str, Any] = {
        "table_conf": {"bucket": "1", "bucket-key": "v1"},
        "sync_primary_keys_from_source_schema": False,
    }
    sync.table("actions_append", "t", **how)
    mariadb.execute(
        "ALTER TABLE actions_append.t ADD COLUMN v2 INT",
        "INSERT INTO actions_append.t VALUES (3, 'more', 3)",
    )
    sync.table("actions_append", "t", **how)
    assert sync.warehouse.table("ods.t").primary_key == ()
    rows = [(1, "Apache", None), (2, "Paimon", None), (3, "more", 3)]
    assert there(sync.warehouse, "ods.t") == rows
    mariadb.execute("UPDATE actions_append.t SET v2 = 4 WHERE k = 3")
    with pytest.raises(QueryFailed, match="actions_append.t: it has an update .*primary key"):
        sync.table("actions_append", "t", **how)
    assert there(sync.warehouse, "ods.t") == rows


def test_a_sync_of_the_snapshot_ends_with_it(sync: Sync, mariadb: MariaDB) -> None:
    fresh(mariadb, "actions_snapshot")
    mariadb.execute(
        "CREATE TABLE actions_snapshot.t (id INT PRIMARY KEY)",
        "INSERT INTO t SELECT seq FROM seq_1_to_40",
        database="actions_snapshot",
    )
    conf = mysql_conf(mariadb, "actions_snapshot", **{"scan.startup.mode": "snapshot"})
    options = sync_database_options(sync.warehouse.options, "ods", conf)
    run_sync(SyncRun(options))
    assert len(there(sync.warehouse, "ods.t")) == 40
    mariadb.execute("DELETE FROM actions_snapshot.t", "DROP TABLE actions_snapshot.t")
    mariadb.execute("CREATE TABLE actions_snapshot.t (id INT PRIMARY KEY, v INT)")
    run_sync(SyncRun(options))
    assert len(there(sync.warehouse, "ods.t")) == 40
