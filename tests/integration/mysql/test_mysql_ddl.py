"""Statements that change a followed table without row events, and statements that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database, catch_up
from tests.mysql_server import IS_MYSQL, Server

from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.errors import DataLossError, SchemaChangeError, TableError
from streamhouse.source import Offset
from streamhouse.sql.plan import Column

CREATE = (
    "CREATE TABLE twin (id INT, v INT, s VARCHAR(20), PRIMARY KEY (id)) PARTITION BY RANGE (id) "
    "(PARTITION p VALUES LESS THAN (10), PARTITION q VALUES LESS THAN (100))"
)
PLAIN = "CREATE TABLE twin (id INT PRIMARY KEY, v INT, s VARCHAR(20))"
LOOSE = "SET sql_mode = ''"
STATEMENTS = "SET binlog_format = STATEMENT"


@pytest.fixture
def followed(database: Database) -> tuple[Database, MySqlSource, Offset]:
    database.run(PLAIN, "INSERT INTO twin VALUES (1, 70000, 'abc'), (2, NULL, NULL)")
    database.run("CREATE TABLE u (id INT PRIMARY KEY, v INT, s VARCHAR(20))")
    source = database.source("twin")
    offset, _ = catch_up(source, source.initial_offset())
    return database, source, offset


def rows_after(followed: tuple[Database, MySqlSource, Offset], *statements: str) -> list[Any]:
    database, source, offset = followed
    database.run(*statements)
    return catch_up(source, offset)[1]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE twin RENAME TO w",
        "-- gone\nDROP TABLE twin",
        "# gone\nTRUNCATE twin",
        "/* a */ /*!50000 TRUNCATE */ twin",
        "CREATE OR REPLACE TABLE twin (id INT PRIMARY KEY, v INT, s VARCHAR(20))",
        "CREATE OR REPLACE TABLE twin AS SELECT * FROM u",
        "CREATE OR REPLACE SEQUENCE twin",
        "ALTER TABLE twin DROP PRIMARY KEY, ADD PRIMARY KEY (id, s)",
        "ALTER TABLE twin DROP COLUMN v, ADD COLUMN v INT",
        "ALTER TABLE twin ADD COLUMN `n` INT, RENAME COLUMN v TO w",
        "ALTER IGNORE TABLE twin ADD UNIQUE (v)",
        "ALTER TABLE twin MODIFY s VARCHAR(2)",
        "ALTER TABLE twin MODIFY v SMALLINT",
        "ALTER TABLE twin MODIFY v INT AS (id + 1) STORED",
        "ALTER TABLE twin CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE twin ADD SYSTEM VERSIONING",
        "ALTER TABLE twin ADD FOREIGN KEY (v) REFERENCES u (id) ON DELETE SET NULL",
        "RENAME TABLE twin TO w, u TO twin",
        "DROP DATABASE {db}",
        "SET STATEMENT max_statement_time = 9 FOR TRUNCATE TABLE twin",
    ],
)
def test_the_stream_ends_at_such_a_statement(
    followed: tuple[Database, MySqlSource, Offset], statement: str
) -> None:
    database = followed[0]
    keys = "SET foreign_key_checks = 0"
    with pytest.raises(SchemaChangeError, match=r"MySQL table cdc_\d+.twin.*binlog\.\d+:\d+.*"):
        rows_after(followed, LOOSE, keys, statement.format(db=database.name))


@pytest.mark.parametrize(
    "operation",
    ["TRUNCATE PARTITION p", "DROP PARTITION p", "EXCHANGE PARTITION p WITH TABLE u",
     "CONVERT PARTITION p TO TABLE w"],
)  # fmt: skip
def test_the_stream_ends_when_partitions_go(database: Database, operation: str) -> None:
    database.run(CREATE, "INSERT INTO twin VALUES (1, 1, ''), (50, 1, '')")
    database.run("CREATE TABLE u (id INT, v INT, s VARCHAR(20), PRIMARY KEY (id))")
    for table in ("twin", *(["u"] if "EXCHANGE" in operation else [])):
        source = database.source(table)
        offset, _ = catch_up(source, source.initial_offset())
        database.run(f"ALTER TABLE twin {operation}")
        with pytest.raises(SchemaChangeError, match="start again"):
            catch_up(source, offset)


def test_the_stream_continues_after_others(followed: tuple[Database, MySqlSource, Offset]) -> None:
    rows = rows_after(
        followed,
        "CREATE TABLE Twin (id INT PRIMARY KEY)",
        "ALTER TABLE Twin ADD twin INT COMMENT 'DROP TABLE twin'",
        "DROP TABLE Twin",
        "CREATE TEMPORARY TABLE twin (id INT)",
        "TRUNCATE twin",
        "DROP TABLE twin",
        "RENAME TABLE twin TO w, w TO twin",
        "ALTER TABLE twin ADD INDEX twin (v), COMMENT = 'TRUNCATE twin'",
        "ALTER TABLE twin MODIFY v BIGINT, MODIFY s VARCHAR(40), ADD n INT NOT NULL DEFAULT 3",
        "ALTER TABLE twin DROP PRIMARY KEY, ADD PRIMARY KEY (id), ENGINE = InnoDB",
        "CREATE OR REPLACE VIEW seen AS SELECT * FROM twin",
        "DROP VIEW seen",
        "INSERT INTO twin VALUES (5, 50, 'x', 1)",
    )
    assert [(row["id"], row["v"]) for row in rows] == [(5, 50)]


def test_a_column_that_is_added_with_a_value_for_existing_rows(database: Database) -> None:
    database.run(PLAIN, "INSERT INTO twin VALUES (1, 1, '')")
    source = database.source("twin")
    offset, _ = catch_up(source, source.initial_offset())
    database.run("ALTER TABLE twin ADD n INT, ADD m INT NOT NULL DEFAULT 7")
    fresh = database.source("twin", [Column("id", "INT"), Column("n", "INT")])
    assert catch_up(fresh, offset)[1] == []
    fresh = database.source("twin", [Column("id", "INT"), Column("m", "INT")])
    with pytest.raises(SchemaChangeError, match="adds column 'm', which existing rows get"):
        catch_up(fresh, offset)


@pytest.mark.parametrize(
    "statement",
    [
        "/* x */ UPDATE twin SET v = 1",
        "-- x\nDELETE FROM twin",
        "REPLACE INTO {db}.`twin` VALUES (1, 2, '')",
        "INSERT INTO seen VALUES (9, 9, '')",
        "INSERT INTO u VALUES (9, 9, '')",
        "UPDATE u, twin SET twin.v = 1",
        "LOAD DATA INFILE '{file}' INTO TABLE twin (@a) SET id = 77",
        "CALL fill()",
        "SELECT filled()",
        "SET @a = filled()",
        "INSERT INTO w SELECT filled()",
        "CREATE TEMPORARY TABLE z SELECT filled()",
    ],
)
def test_statements_that_may_write_the_table_are_data_loss(
    followed: tuple[Database, MySqlSource, Offset], tmp_path: Path, statement: str
) -> None:
    database = followed[0]
    file = tmp_path / "rows.txt"
    file.write_text("1\n")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    database.run(
        "SET GLOBAL log_bin_trust_function_creators = ON",
        "CREATE VIEW seen AS SELECT * FROM twin",
        "CREATE TABLE w (v INT PRIMARY KEY)",
        "CREATE TRIGGER fills AFTER INSERT ON u FOR EACH ROW UPDATE twin SET v = 8",
        "CREATE PROCEDURE fill() UPDATE twin SET v = 6",
        "CREATE FUNCTION filled() RETURNS INT BEGIN UPDATE twin SET v = 5; RETURN 1; END",
    )
    filled = statement.format(db=database.name, file=file)
    with pytest.raises(DataLossError, match="logged as a statement.*set binlog_format = ROW"):
        rows_after(followed, STATEMENTS, filled)


def test_statements_that_write_others_are_passed(
    followed: tuple[Database, MySqlSource, Offset],
) -> None:
    rows = rows_after(
        followed,
        STATEMENTS,
        "INSERT INTO u VALUES (1, 1, 'twin')",
        "UPDATE u SET v = 1 /* twin */ WHERE s <> 'twin'",
        "CREATE TEMPORARY TABLE twin (id INT)",
        "INSERT INTO twin VALUES (8)",
        "DELETE FROM twin",
        "DROP TABLE twin",
        "SET binlog_format = ROW",
        "INSERT INTO twin VALUES (8, 8, '')",
    )
    assert [row["id"] for row in rows] == [8]


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE", "ON DELETE CASCADE"),
        ("FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL", "ON DELETE SET NULL"),
        ("FOREIGN KEY (p) REFERENCES parent (id) ON UPDATE CASCADE", "ON UPDATE CASCADE"),
        ("FOREIGN KEY (p) REFERENCES parent (id) ON DELETE RESTRICT", ""),
    ],
)
def test_foreign_keys_that_change_rows_are_refused(
    database: Database, definition: str, message: str
) -> None:
    if IS_MYSQL and message:
        pytest.skip("MySQL logs what foreign keys change")
    database.run("CREATE TABLE parent (id INT PRIMARY KEY)")
    database.run(f"CREATE TABLE child (id INT PRIMARY KEY, p INT, {definition})")
    if not message:
        database.source("child")
        return
    with pytest.raises(TableError, match=f"{message}, which changes its rows without row events"):
        database.source("child")


def test_system_versioned_tables_are_refused(database: Database) -> None:
    database.run("CREATE TABLE versioned (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    with pytest.raises(TableError, match="is system-versioned, which is not supported"):
        database.source("versioned")


def test_a_server_that_ignores_the_case_of_names(installed: Installed, tmp_path: Path) -> None:
    options = ["--lower-case-table-names=1"]
    with Server(installed(tmp_path / "own"), server_options=options) as server:
        database = Database(server)
        database.run(PLAIN)
        source = database.source("Twin")
        offset, _ = catch_up(source, source.initial_offset())
        database.run("INSERT INTO TWIN VALUES (1, 1, '')")
        offset, rows = catch_up(source, offset)
        assert [row["id"] for row in rows] == [1]
        database.run("TRUNCATE TABLE TWIN")
        with pytest.raises(SchemaChangeError):
            catch_up(source, offset)
        database.close()


def test_an_alter_that_is_logged_twice_counts_when_it_is_done(
    followed: tuple[Database, MySqlSource, Offset],
) -> None:
    database, source, offset = followed
    two_phases = "SET binlog_alter_two_phase = ON"
    with pytest.raises(pymysql.err.MySQLError, match="CONSTRAINT"):
        database.run(two_phases, "ALTER TABLE twin DROP s, ADD CONSTRAINT c CHECK (v < 5)")
    database.run(two_phases, "ALTER TABLE twin ADD n INT FIRST")
    offset, rows = catch_up(source, offset)
    assert rows == []
    database.run(two_phases, "ALTER TABLE twin DROP s")
    with pytest.raises(SchemaChangeError, match="no column 's'"):
        catch_up(source, offset)


@pytest.mark.parametrize("charset", ["latin1", "gbk", "utf8mb4"])
@pytest.mark.parametrize("statement", ["DROP TABLE `läd`", "TRUNCATE läd", "DROP TABLE läd -- x"])
def test_a_client_with_another_character_set(
    database: Database, charset: str, statement: str
) -> None:
    name = "läd" if charset != "gbk" else "表"
    database.run(f"CREATE TABLE {name} (id INT PRIMARY KEY)", "CREATE TABLE lad (id INT)")
    source = database.source(name)
    offset, _ = catch_up(source, source.initial_offset())
    client = pymysql.connect(
        unix_socket=str(database.server.socket),
        user="root",
        database=database.name,
        charset=charset,
        ssl_disabled=True,
    )
    with client, client.cursor() as cursor:
        cursor.execute("DROP TABLE lad")
        assert catch_up(source, offset)[1] == []
        cursor.execute(statement.replace("läd", name))
    with pytest.raises(SchemaChangeError, match=name):
        catch_up(source, offset)
