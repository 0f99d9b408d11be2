"""What statements do to the rows and columns of a table of a sync."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from streamhouse.connectors.json_records import from_json, to_json
from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.query import Statement
from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import LexerOptions
from streamhouse.connectors.mysql_cdc.binlog.statements import (
    ANY,
    DdlChange,
    DdlChanges,
    StatementCheck,
)
from streamhouse.errors import DataLossError
from streamhouse.mysql.options import parse
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import TableDefinition
from streamhouse.mysql.values.types import MySqlColumn

OPTIONS = parse(
    {"hostname": "h", "username": "u", "password": "p", "database-name": "d", "table-name": "t"}
)
COLUMNS = (
    MySqlColumn("id", "int", "int(11)", False),
    MySqlColumn("v", "int", "int(11)", True),
    MySqlColumn("name", "varchar", "varchar(20)", True, length=80, charset="utf8mb4",
                collation="utf8mb4_general_ci"),
)  # fmt: skip
TABLE = TableDefinition("d", "t", COLUMNS, COLUMNS[:1], "utf8mb4")


def outcome(text: str, exists: bool = True) -> DdlChange | None:
    outcomes = DdlChanges(CapturedTable(OPTIONS, TABLE, COLUMNS), TABLE)
    statement = Statement("d", text, LexerOptions(), strict=True)
    return outcomes.of(statement, BinlogPosition("binlog.1", 100), exists)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ALTER TABLE t ADD a INT", "id v name a"),
        ("ALTER TABLE t ADD a INT NULL DEFAULT NULL FIRST, ADD b DATE AFTER v", "a id v b name"),
        ("ALTER TABLE t DROP v", "id name"),
        ("ALTER TABLE t RENAME COLUMN v TO w", "id w name"),
        ("ALTER TABLE t CHANGE v w BIGINT FIRST", "w id name"),
        ("ALTER TABLE t CHANGE v w INT, ADD v INT", "id w name v"),
        ("ALTER TABLE t MODIFY name VARCHAR(50) CHARACTER SET utf8mb4 AFTER id", "id name v"),
        ("ALTER TABLE t ADD v INT, CHANGE v w INT", "id w name v"),
        ("ALTER TABLE t ADD v INT FIRST, RENAME COLUMN v TO w", "v id w name"),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS v INT FIRST, ADD a INT", "id v name a"),
        ("ALTER TABLE t ADD IF NOT EXISTS (v INT, a INT), RENAME COLUMN v TO w", "id w name a"),
        ("CREATE INDEX i ON t (v)", "id v name"),
        ("ALTER TABLE t ENGINE = InnoDB, COMMENT = 'x'", "id v name"),
    ],
)
def test_statements_that_keep_each_row(text: str, names: str) -> None:
    found = outcome(text)
    assert found is not None and found.reload is None and found.after is not None
    assert [column.name for column in found.after.columns] == names.split()


@pytest.mark.parametrize(
    "text",
    [
        "TRUNCATE t", "DROP TABLE t", "DROP DATABASE d", "RENAME TABLE t TO x, y TO t",
        "RENAME TABLE _t_gho TO t", "CREATE OR REPLACE TABLE t (id INT)",
        "ALTER TABLE t RENAME TO x", "ALTER TABLE t ADD a INT DEFAULT 5",
        "ALTER TABLE t ADD a INT NOT NULL", "ALTER TABLE t ADD a INT AS (v + 1)",
        "ALTER TABLE t MODIFY name VARCHAR(3)", "ALTER TABLE t MODIFY v DATE",
        "ALTER TABLE t DROP v, ADD v INT", "ALTER TABLE t ADD v INT, DROP v",
        "ALTER TABLE t DROP v, CHANGE name v VARCHAR(20)",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)", "ALTER TABLE t DROP id",
        "ALTER TABLE t DROP PARTITION p", "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE t CHANGE id key_ INT NOT NULL", "ALTER TABLE t FROBNICATE",
        "ALTER IGNORE TABLE t ADD UNIQUE (v)",
        "ALTER TABLE x EXCHANGE PARTITION p WITH TABLE t",
        "ALTER TABLE t RENAME COLUMN v TO name, RENAME COLUMN name TO v",
    ],
)  # fmt: skip
def test_statements_after_which_rows_are_read_again(text: str) -> None:
    found = outcome(text)
    assert found is not None and (found.reload is not None or found.after is None)


def test_types_that_the_sql_mode_renames() -> None:
    for text in ("ALTER TABLE t ADD d DATE", "ALTER TABLE t MODIFY v BIGINT, DROP name"):
        outcomes = DdlChanges(CapturedTable(OPTIONS, TABLE, COLUMNS), TABLE)
        statement = Statement("d", text, LexerOptions(), strict=True, other_types=True)
        found = outcomes.of(statement, BinlogPosition("binlog.1", 100))
        assert found is not None and found.after is None and found.reload is not None


@pytest.mark.parametrize(
    ("changes", "charset"),
    [
        ("ADD a CHAR(9), CHARSET = greek", "greek"),
        ("CHARSET = greek, ADD a CHAR(9)", "greek"),
        ("ADD a CHAR(9) COLLATE latin1_bin FIRST, COLLATE greek_bin", "latin1"),
        ("ADD a CHAR(9) CHARSET greek, CONVERT TO CHARSET utf8mb4", "utf8mb4"),
        ("CONVERT TO CHARSET utf8mb4, ADD a CHAR(9) FIRST", "utf8mb4"),
    ],
)
def test_columns_get_the_character_set_that_the_table_gets(changes: str, charset: str) -> None:
    table = replace(TABLE, columns=COLUMNS[:1], charset="latin1")
    check = StatementCheck(CapturedTable(OPTIONS, table, COLUMNS[:1]), table)
    check.take(
        Statement("d", f"ALTER TABLE t {changes}", LexerOptions(), strict=True),
        BinlogPosition("binlog.1", 9),
    )
    assert check.known is not None
    assert {one.name: one.charset for one in check.known.columns} == {"id": None, "a": charset}


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t REORGANIZE PARTITION p0, p1 INTO (PARTITION p VALUES LESS THAN (9))",
        "ALTER TABLE t REBUILD PARTITION p0, p1", "ALTER TABLE t ANALYZE PARTITION p0, p1",
    ],
)  # fmt: skip
def test_partitions_of_which_the_rows_stay(text: str) -> None:
    found = outcome(text)
    assert found is not None and found.reload is None


def test_names_of_partitions_are_no_columns() -> None:
    for text in ("ALTER TABLE t DROP PARTITION p0, p1", "ALTER TABLE t TRUNCATE PARTITION a, b"):
        found = outcome(text)
        assert found is not None and found.reload is not None and "understood" not in found.reload
    found = outcome("ALTER TABLE t DROP `partition`, ADD a INT")
    assert found is not None and found.after is not None
    assert "a" in [column.name for column in found.after.columns]


def test_statements_about_nothing() -> None:
    assert outcome("ALTER TABLE x ADD a INT") is None
    assert outcome("CREATE TABLE IF NOT EXISTS t (id INT)") is None
    assert outcome("DROP TEMPORARY TABLE t") is None
    assert outcome("ALTER TABLE t2 RENAME TO t3") is None


def test_a_dropped_table_is_created_again() -> None:
    found = outcome("CREATE TABLE t (id INT PRIMARY KEY, x INT)", exists=False)
    assert found is not None and (found.verb, found.after) == ("CREATE", None)
    assert outcome("RENAME TABLE x TO t", exists=False) is not None
    assert outcome("CREATE TABLE x (id INT)", exists=False) is None


def test_names_that_change() -> None:
    text = "ALTER TABLE t CHANGE v V2 INT, RENAME COLUMN name TO label, DROP id, ADD x INT"
    found = outcome(text)
    assert found is not None and found.renamed == {"v": "V2", "name": "label"}
    assert found.dropped == {"id"}
    swapped = outcome("RENAME TABLE t TO x, y TO t")
    assert swapped is not None and swapped.dropped == {ANY}


def test_temporary_tables_hide_the_table() -> None:
    outcomes = DdlChanges(CapturedTable(OPTIONS, TABLE, COLUMNS), TABLE)

    def of(text: str) -> DdlChange | None:
        return outcomes.of(
            Statement("d", text, LexerOptions(), thread=7), BinlogPosition("binlog.1", 9)
        )

    assert of("CREATE TEMPORARY TABLE t (x INT)") is None
    assert of("ALTER TABLE t ADD y INT") is None
    assert of("DROP TEMPORARY TABLE t") is None
    assert of("TRUNCATE t") is not None


def test_an_offset_says_which_sessions_hide_the_table() -> None:
    captured = CapturedTable(OPTIONS, TABLE, COLUMNS)
    check, create, fill, drop = StatementCheck(captured, TABLE), *(
        Statement("d", text, LexerOptions(), thread=7, written=frozenset())
        for text in ("CREATE TEMPORARY TABLE t (x INT)", "INSERT INTO t VALUES (1)",
                     "DROP TEMPORARY TABLE t")
    )  # fmt: skip
    check.take(create, BinlogPosition("binlog.1", 9))
    # Another process goes on from there.
    known = from_json(TableDefinition, json.loads(json.dumps(to_json(check.known))))
    check = StatementCheck(captured, known)
    check.take(fill, BinlogPosition("binlog.1", 20))
    with pytest.raises(DataLossError):
        StatementCheck(captured, known).take(
            replace(fill, thread=8), BinlogPosition("binlog.1", 20)
        )
    with pytest.raises(DataLossError):
        # A restarted server counts its sessions anew.
        StatementCheck(captured, known).take(fill, BinlogPosition("binlog.2", 20))
    check.take(drop, BinlogPosition("binlog.1", 30))
    assert check.known == TABLE
    with pytest.raises(DataLossError):
        check.take(fill, BinlogPosition("binlog.1", 40))


def test_a_repair_is_of_no_effect_with_innodb() -> None:
    assert outcome("REPAIR TABLE t QUICK") is None
    captured = CapturedTable(OPTIONS, replace(TABLE, consistent=False), COLUMNS)
    outcomes = DdlChanges(captured, captured.table)
    statement = Statement("d", "REPAIR TABLE t QUICK", LexerOptions(), strict=True)
    found = outcomes.of(statement, BinlogPosition("binlog.1", 100))
    assert found is not None and found.reload is not None


@pytest.mark.parametrize(
    ("text", "kept", "is_new"),
    [
        ("TRUNCATE TABLE t", True, False),
        ("ALTER TABLE t ADD INDEX (v)", True, False),
        ("ALTER TABLE t ENGINE = InnoDB, COMMENT = 'x'", True, False),
        ("CREATE INDEX i ON t (v)", True, False),
        ("DROP INDEX i ON t", True, False),
        ("ALTER TABLE t DROP PARTITION p", True, False),
        ("ALTER TABLE other ADD x INT", True, False),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", True, False),
        # The table has the columns that these give it, but may have had others before.
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS v INT", False, False),
        ("ALTER TABLE t DROP COLUMN IF EXISTS x", False, False),
        ("ALTER TABLE t MODIFY v INT", False, False),
        ("ALTER TABLE t RENAME COLUMN x TO v", False, False),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", False, False),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id)", False, False),
        ("ALTER TABLE t WHATEVER", False, False),
        # `Statement.creates` finds it.
        ("CREATE TABLE t (id INT)", True, False),
        ("CREATE OR REPLACE TABLE t (id INT)", True, True),
        ("DROP TABLE t", True, True),
        ("DROP DATABASE d", True, True),
        ("RENAME TABLE x TO t", True, True),
    ],
)
def test_what_keeps_the_columns_that_a_table_had(text: str, kept: bool, is_new: bool) -> None:
    change = outcome(text)
    assert (change is None or change.keeps_columns) is kept
    assert (change is not None and change.is_new) is is_new


def test_an_index_may_have_become_the_key() -> None:
    table = replace(TABLE, index="one")
    ddls = DdlChanges(CapturedTable(OPTIONS, table, COLUMNS), table)
    statement = Statement("d", "ALTER TABLE t ADD UNIQUE one (id)", LexerOptions(), strict=True)
    change = ddls.of(statement, BinlogPosition("binlog.1", 100))
    assert change is not None and not change.keeps_columns
