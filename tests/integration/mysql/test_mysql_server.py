"""Change data capture from a real MySQL, in each setting that its binlog depends on.

The other tests of change data capture run against it, too, with STREAMHOUSE_TEST_MYSQLD; see
scripts/mysql_server.sh.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import Database, apply, catch_up, rows_of
from tests.mysql_server import MySql
from tests.waiting import DEADLINE_S, looks, until

from streamhouse.connectors.mysql_cdc.database.discovery import Discovery, TableFilter
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.errors import ConnectError, DataLossError, SchemaChangeError, TableError
from streamhouse.mysql.checks import check
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import parse
from streamhouse.mysql.table import check_server
from streamhouse.source import Offset

pytestmark = pytest.mark.soak

_SETTINGS = {
    "default": [],
    "no-gtid": ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"],
    "compressed": ["--binlog-transaction-compression=ON"],
    "full": [
        "--binlog-row-metadata=FULL",
        "--binlog-checksum=NONE",
        "--binlog-rows-query-log-events=ON",
    ],
}
_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v INT, b LONGTEXT)"
_STARTUP = "scan.startup"


@pytest.fixture(scope="module", params=_SETTINGS)
def server(
    request: pytest.FixtureRequest,
    installed_mysql: Installed,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MySql]:
    folder = installed_mysql(tmp_path_factory.mktemp("mysql"))
    with MySql(folder, server_options=_SETTINGS[request.param]) as server:
        yield server


@pytest.fixture
def database(server: MySql) -> Iterator[Database]:
    database = Database(server)
    yield database
    database.close()


class Followed:
    """A table with the rows that a stream has made of it; each change must fit them."""

    def __init__(
        self, database: Database, table: str = "t", key: str = "id", **options: str
    ) -> None:
        self._database, self._table, self._key = database, table, key
        self.source: MySqlSource = database.source(table, options=options)
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.offset: Offset = self.source.initial_offset()
        self.catch_up()

    def catch_up(self) -> None:
        self.offset, rows = catch_up(self.source, self.offset)
        apply(self.rows, rows, [self._key])

    def check(self) -> None:
        """The stream's rows are those of a new snapshot, which a SELECT reads."""
        self.catch_up()
        assert self.rows == Followed(self._database, self._table, self._key).rows


def end_xa(database: Database, statement: str) -> None:
    """Commit or roll back a prepared transaction, once the session that prepared it is gone."""
    for _ in looks():
        with contextlib.suppress(pymysql.err.OperationalError):
            database.run(statement)
            return


def test_transactions(database: Database) -> None:
    database.run(
        _TABLE, "XA START 'a'", "INSERT INTO t VALUES (1, 1, '')", "XA END 'a'", "XA PREPARE 'a'"
    )
    followed = Followed(database)
    assert followed.rows == {}
    end_xa(database, "XA COMMIT 'a'")
    for name, end in (("b", "COMMIT"), ("c", "ROLLBACK"), ("d", "COMMIT ONE PHASE")):
        key, verb = ord(name), end.split()[0]
        prepare = [] if "ONE" in end else [f"XA PREPARE '{name}'"]
        phase = " ONE PHASE" if "ONE" in end else ""
        database.run(
            f"XA START '{name}'",
            f"INSERT INTO t VALUES ({key}, 1, '')",
            f"XA END '{name}'",
            *prepare,
            f"XA {verb} '{name}'{phase}",
        )
    database.run(
        "BEGIN",
        "INSERT INTO t VALUES (2, 1, '')",
        "SAVEPOINT s",
        "DELETE FROM t",
        "ROLLBACK TO s",
        "COMMIT",
    )
    database.run("BEGIN", "DELETE FROM t", "ROLLBACK")
    database.run(
        "INSERT INTO t SELECT 3, 2, REPEAT('a', 20000000)", "UPDATE t SET b = CONCAT(b, 'b')"
    )
    followed.check()
    assert {key for (key,) in followed.rows} == {1, 2, 3, ord("b"), ord("d")}


_VALUES: Sequence[tuple[str, str, str]] = (
    ("TINYINT UNSIGNED", "255", "0"),
    ("MEDIUMINT UNSIGNED", "16777215", "0"),
    ("BIGINT UNSIGNED", "18446744073709551615", "0"),
    ("YEAR", "2155", "0"),
    ("DECIMAL(65,30)", f"{'1234567' * 5}.{'123456789' * 3}001", "-1e-30"),
    ("FLOAT", "1.17549e-38", "-0e0"),
    ("DOUBLE", "1.7976931348623157e308", "-0e0"),
    ("BIT(64)", "~0", "0"),
    ("DATE", "'9999-12-31'", "'0000-00-00'"),
    ("TIME(6)", "'-838:59:59'", "'00:00:00.000001'"),
    ("DATETIME(6)", "'9999-12-31 23:59:59.499999'", "'0000-00-00 00:00:00'"),
    ("TIMESTAMP(3) NULL", "'2038-01-19 03:14:07.499'", "NULL"),
    ("CHAR(5)", "'ab  '", "''"),
    ("BINARY(5)", "'ab'", "''"),
    ("VARBINARY(300)", "x'00ff'", "''"),
    ("LONGBLOB", "x'00'", "''"),
    ("VARCHAR(300)", "REPEAT('ä', 200)", "''"),
    ("VARCHAR(9) CHARACTER SET gb18030", "'中€'", "''"),
    ("ENUM('a','ö','x y')", "'ö'", "''"),
    ("SET('a','ö','q')", "'a,q'", "''"),
    ("BOOLEAN", "TRUE", "FALSE"),
    ("POINT SRID 4326", "ST_GeomFromText('POINT(1 2)', 4326)", "NULL"),
    ("GEOMETRY", "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1))')", "NULL"),
    ("JSON", "CAST(CAST('-12.50' AS DECIMAL(10,2)) AS JSON)", "'null'"),
    (
        "JSON",
        "JSON_ARRAY(1e0, TIMESTAMP'2020-01-01 00:00:01.5', x'cafe', 18446744073709551615)",
        "'{}'",
    ),
    ("JSON", "JSON_OBJECT('b', REPEAT('v', 70000), 'ä', '\"\\n', 'a', 1.5e-20)", "'[]'"),
)


def test_types(database: Database) -> None:
    """Rows of the binlog are those of a SELECT, in columns of each type."""
    columns = ", ".join(f"c{at} {kind}" for at, (kind, _, _) in enumerate(_VALUES))
    high, low = (", ".join(value[at] for value in _VALUES) for at in (1, 2))
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    followed = Followed(database)
    session = "SET sql_mode = '', time_zone = '+02:00'"
    database.run(session, f"INSERT INTO t VALUES (1, {high}), (2, {low})")
    database.run(session, "UPDATE t SET c0 = c0 - 1 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    database.run(session, f"INSERT INTO t VALUES (3, {low})")
    followed.check()
    texts = [name for name, (kind, _, _) in enumerate(_VALUES) if kind == "JSON"]
    names = ", ".join(f"c{at}" for at in texts)
    (there,) = database.run(f"SELECT {names} FROM t WHERE id = 1")
    assert [followed.rows[1,][f"c{at}"] for at in texts] == list(there)


def test_columns_that_only_mysql_has(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), j JSON, i INT DEFAULT 7 INVISIBLE, "
        "g INT AS (id + 1) VIRTUAL, INDEX ((LOWER(v))), "
        "INDEX ((CAST(j->'$.a' AS UNSIGNED ARRAY))))",
        "SET sql_generate_invisible_primary_key = ON",
        "CREATE TABLE keyless (a INT)",
        "INSERT INTO keyless VALUES (1), (1)",
    )
    followed, keyless = Followed(database), Followed(database, "keyless", "my_row_id")
    database.run("""INSERT INTO t (id, v, j) VALUES (1, 'Ä', '{"a": [1, 2]}')""")
    database.run("ALTER TABLE t ADD INDEX ((UPPER(v)))", "INSERT INTO t (id, i) VALUES (2, 8)")
    database.run("""UPDATE t SET j = JSON_SET(j, '$.b', 1.50)""")
    database.run("DELETE FROM keyless LIMIT 1", "INSERT INTO keyless VALUES (2)")
    followed.check()
    keyless.check()


_PASSED = (
    "ALTER TABLE t ADD COLUMN x1 INT DEFAULT 5 FIRST, ALGORITHM=INSTANT",
    "ALTER TABLE t RENAME COLUMN x1 TO x2",
    "ALTER TABLE t DROP COLUMN x2, ALGORITHM=INSTANT",
    "ALTER TABLE t ADD COLUMN x3 INT AS (v) VIRTUAL INVISIBLE",
    "ALTER TABLE t ENCRYPTION='N'",
    "ALTER TABLE t ALTER COLUMN v SET INVISIBLE",
    "CREATE INDEX f ON t ((v + 1))",
    "ALTER TABLE t ALTER INDEX f INVISIBLE",
    "ALTER TABLE t ADD CONSTRAINT c CHECK (v < 1000) NOT ENFORCED",
    "ALTER TABLE t ALTER CHECK c ENFORCED",
    "ALTER TABLE t DROP CHECK c",
    "ALTER TABLE t AUTOEXTEND_SIZE=4M",
    "ANALYZE TABLE t UPDATE HISTOGRAM ON v",
    "CREATE TABLE made AS SELECT * FROM t",
    "CREATE TABLE alike LIKE t",
    "ALTER TABLE t PARTITION BY HASH(id) PARTITIONS 2",
    "OPTIMIZE TABLE t",
    "TRUNCATE TABLE alike",
    "CREATE ROLE IF NOT EXISTS someone",
    "SET PERSIST max_connections = 151",
    "CREATE VIEW seen AS SELECT * FROM t",
)
_ENDING = (
    "TRUNCATE TABLE t",
    "DROP TABLE t",
    "RENAME TABLE t TO u",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE t TRUNCATE PARTITION p0",
    "ALTER TABLE t DROP PARTITION p0",
    "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE other",
    "ALTER TABLE t DROP COLUMN v",
    "ALTER TABLE t DROP COLUMN v, ADD COLUMN v INT, ALGORITHM=INSTANT",
    "/*!80000 DROP TABLE t */",
)


def test_statements_that_are_passed(database: Database) -> None:
    database.run(_TABLE, "INSERT INTO t VALUES (1, 1, 'a')")
    followed = Followed(database)
    for number, statement in enumerate(_PASSED, 2):
        database.run(statement, f"INSERT INTO t (id, v, b) VALUES ({number}, {number}, 'b')")
        database.run("UPDATE t SET v = v + 1 WHERE id = 1")
        followed.catch_up()
        there = database.run("SELECT id, v, b FROM t ORDER BY id")
        assert sorted(tuple(row.values()) for row in followed.rows.values()) == there, statement


@pytest.mark.parametrize("statement", _ENDING)
def test_statements_that_change_rows_without_events(database: Database, statement: str) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (99))",
        "CREATE TABLE other (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (20, 2)",
    )
    followed = Followed(database)
    database.run(statement)
    with pytest.raises(SchemaChangeError):
        followed.catch_up()


def test_sessions_with_other_formats(database: Database) -> None:
    database.run(_TABLE, "CREATE TABLE other (id INT)")
    followed = Followed(database)
    database.run("CREATE TEMPORARY TABLE t (id INT)", "INSERT INTO t VALUES (5)", "DROP TABLE t")
    database.run(
        "SET binlog_format = MIXED",
        "CREATE TEMPORARY TABLE t (id INT)",
        "INSERT INTO t VALUES (5)",
        "DROP TABLE t",
        "INSERT INTO other VALUES (1)",
    )
    database.run("INSERT INTO t VALUES (1, 1, '')")
    followed.check()
    database.run("SET binlog_format = MIXED", "INSERT INTO t VALUES (2, 1, '')")
    with pytest.raises(DataLossError, match="was logged as a statement"):
        followed.catch_up()


def test_where_to_start(database: Database) -> None:
    database.run(_TABLE, "INSERT INTO t VALUES (1, 1, '')")
    server = database.server
    has_gtids = server.execute("SELECT @@gtid_mode") == [("ON",)]
    if has_gtids:
        database.run("SET gtid_next = 'AUTOMATIC:blue'", "INSERT INTO t VALUES (2, 1, '')")
    file, pos, _, _, gtids = server.execute("SHOW BINARY LOG STATUS")[0]
    before = int(time.time()) * 1000
    time.sleep(1.1)
    database.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (3, 1, '')")
    modes = {
        "latest-offset": ({}, set()),
        "specific-offset": ({".file": file, ".pos": str(pos)}, {3}),
    }
    for mode, (extra, expected) in modes.items():
        options = {f"{_STARTUP}.specific-offset{key}": value for key, value in extra.items()}
        assert started(database, mode, **options) == expected, mode
    assert 3 in started(database, "timestamp", **{f"{_STARTUP}.timestamp-millis": str(before)})
    if has_gtids:
        option = f"{_STARTUP}.specific-offset.gtid-set"
        assert ":blue:1" in gtids
        assert started(database, "specific-offset", **{option: gtids}) == {3}
        without = gtids.replace(":blue:1", "").replace("\n", "")
        assert started(database, "specific-offset", **{option: without}) == {2, 3}


def started(database: Database, mode: str, **options: str) -> set[int]:
    """The keys that a stream reads which starts so."""
    source = database.source("t", options={f"{_STARTUP}.mode": mode, **options})
    return {row["id"] for row in catch_up(source, source.initial_offset())[1]}


@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_a_restart_of_the_server(database: Database, crash: bool) -> None:
    database.run(_TABLE, "INSERT INTO t VALUES (1, 1, '')")
    followed = Followed(database)
    database.server.kill() if crash else database.server.stop()
    database.server.start()
    database.run("INSERT INTO t VALUES (2, 1, '')")
    followed.check()


def _reset(database: Database) -> None:
    database.run("RESET BINARY LOGS AND GTIDS", "INSERT INTO t VALUES (2, 2, '')")


def _purged(database: Database) -> None:
    database.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    newest = database.run("SHOW BINARY LOG STATUS")[0][0]
    database.run(f"PURGE BINARY LOGS TO '{newest}'", "INSERT INTO t VALUES (2, 2, '')")


@pytest.mark.parametrize("lose", [_reset, _purged])
def test_a_binlog_that_is_gone(database: Database, lose: Callable[[Database], None]) -> None:
    database.run(_TABLE, "FLUSH BINARY LOGS", "INSERT INTO t VALUES (1, 1, '')")
    followed = Followed(database)
    lose(database)
    with pytest.raises(DataLossError):
        followed.catch_up()


def test_a_user_with_only_what_is_needed(database: Database) -> None:
    grants = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
    database.run(
        "DROP USER IF EXISTS least",
        "CREATE USER least@'%' IDENTIFIED BY 'l'",
        f"GRANT {grants} ON *.* TO least@'%'",
        _TABLE,
        "XA START 'x'",
        "INSERT INTO t VALUES (1, 1, '')",
        "XA END 'x'",
        "XA PREPARE 'x'",
    )
    options = {"username": "least", "password": "l"}
    checked = check(parse(database.options("t", **options)), [database.name], [])
    assert checked.ok and checked.version.startswith(("8.", "9."))
    assert [
        requirement.status
        for requirement in checked.requirements
        if requirement.name == "XA_RECOVER_ADMIN"
    ] == ["info"]
    for mode in ("disabled", "required"):
        followed = Followed(database, **options, **{"ssl.mode": mode})
        assert followed.rows == {}
    end_xa(database, "XA COMMIT 'x'")
    followed.catch_up()
    assert len(followed.rows) == 1


_NO_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (("--enforce-gtid-consistency=ON", "--gtid-mode=ON", "--performance-schema=OFF"), True),
        (_NO_GTIDS, True),
        ((*_NO_GTIDS, "--performance-schema=OFF"), False),
        ((*_NO_GTIDS, "--performance-schema-max-metadata-locks=0"), False),
        ((*_NO_GTIDS, "--performance-schema-max-metadata-locks=3"), False),
        ((*_NO_GTIDS, "--performance-schema-instrument=wait/lock/metadata/sql/mdl=OFF"), False),
    ],
    ids=["gtids", "locks", "no-schema", "no-locks", "lost-locks", "no-instrument"],
)
def test_commits_that_selects_do_not_see_yet(
    installed_mysql: Installed, tmp_path: Path, options: Sequence[str], reported: bool
) -> None:
    """With semi-synchronous replication, a COMMIT waits for a replica after it is logged."""
    plugin = ["--plugin-load-add=semisync_source.so", "--rpl-semi-sync-source-timeout=3000"]
    folder = installed_mysql(tmp_path / "semi-sync")
    with MySql(folder, server_options=[*options, *plugin]) as server:
        database = Database(server)
        database.run(_TABLE, "INSERT INTO t VALUES (1, 1, '')")
        source = database.source("t")
        start = source.initial_offset()
        database.run("SET GLOBAL rpl_semi_sync_source_enabled = ON")
        position = server.execute("SHOW BINARY LOG STATUS")[0][:2]
        update = threading.Thread(target=database.run, args=("UPDATE t SET v = 2",))
        update.start()
        until(lambda: server.execute("SHOW BINARY LOG STATUS")[0][:2] != position)
        first = source.latest_offset(start)
        end = source.latest_offset(first)
        assert database.run("SELECT v FROM t") == [(1,)]
        if reported:
            rows = rows_of(source, first, end)
            assert [(row["id"], row["v"]) for row in rows] == [(1, 2)]
            assert catch_up(source, end)[1] == []
        else:
            with pytest.raises(ConnectError, match="could miss them; set gtid_mode = ON"):
                rows_of(source, first, end)
        update.join(DEADLINE_S)
        checked = check(parse(database.options("t")), [], [])
        (mode,) = [
            requirement.status
            for requirement in checked.requirements
            if requirement.name == "gtid_mode"
        ]
        assert mode == ("info" if reported else "missing")
        database.close()


def test_rows_that_foreign_keys_change(database: Database) -> None:
    """MySQL logs them from 9.6 on; Discovery, which a sync uses, finds the tables, too."""
    database.run(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE t (id INT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE grandchild (id INT PRIMARY KEY, t INT, "
        "FOREIGN KEY (t) REFERENCES t (id) ON DELETE SET NULL)",
        "INSERT INTO parent VALUES (1), (2), (3)",
        "INSERT INTO t VALUES (10, 1), (11, 1), (20, 2), (30, 3)",
        "INSERT INTO grandchild VALUES (100, 10), (101, 20)",
    )
    if database.server.execute("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'") != [
        ("innodb_native_foreign_keys", "OFF")
    ]:
        with pytest.raises(TableError, match="has ON UPDATE CASCADE"):
            database.source("t")
        return
    child, grandchild = Followed(database), Followed(database, "grandchild")
    database.run("DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 9 WHERE id = 2")
    database.run("BEGIN", "DELETE FROM parent WHERE id = 3", "ROLLBACK")
    child.check()
    grandchild.check()
    assert {key: row["p"] for (key,), row in child.rows.items()} == {20: 9, 30: 3}
    assert {key: row["t"] for (key,), row in grandchild.rows.items()} == {100: None, 101: 20}
    options = parse(database.options("t"))
    with contextlib.closing(Session(options)) as session:
        server, tables = check_server(session, options), TableFilter(database.name)
        found = Discovery.of_sync(session, server, options, tables).found()
    assert [item.reason for item in found] == [None, None, None]


def test_partial_json_is_refused(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, j JSON)", "INSERT INTO t VALUES (1, '{}')")
    followed = Followed(database, "t")
    database.run(
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        'UPDATE t SET j = \'{"a": 1, "b": 2}\'',
        "UPDATE t SET j = JSON_SET(j, '$.a', 3)",
    )
    with pytest.raises(ConnectError, match="set binlog_row_value_options = ''"):
        followed.catch_up()


def test_load_data(database: Database, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("1,10,a\n2,20,b\n")
    tmp_path.chmod(0o755)
    database.run(_TABLE)
    followed = Followed(database)
    load = f"LOAD DATA INFILE '{rows}' REPLACE INTO TABLE t FIELDS TERMINATED BY ','"
    database.run(load)
    followed.check()
    rows.write_text("2,21,c\n3,30,d\n")
    database.run(load)
    followed.check()
    assert {key: row["v"] for (key,), row in followed.rows.items()} == {1: 10, 2: 21, 3: 30}
    database.run("SET SESSION binlog_format = STATEMENT", load)
    with pytest.raises(DataLossError, match="was logged as a statement"):
        followed.catch_up()
