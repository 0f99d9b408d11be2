"""`streamhouse thrift`, asked by Hive's own JDBC driver and by beeline."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
from py4j.protocol import Py4JJavaError
from tests.processes import listening, reachable
from tests.unit.conftest import Shop
from tests.unit.serve.test_view_feed import keep
from tests.waiting import DEADLINE_S, looks, until

from streamhouse.paimon.java.installed_java import java_command
from streamhouse.paimon.java.jvm import JavaProcess, spark_jars
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn

STREAMHOUSE = [sys.executable, "-c", "from streamhouse.cli.main import main; main()"]
JAVA = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
TYPES = (
    Column("id", "INT"), Column("flag", "BOOLEAN"), Column("price", "DECIMAL(20, 2)"),
    Column("ratio", "DOUBLE"), Column("raw", "BYTES"), Column("day", "DATE"),
    Column("clock", "TIME(3)"), Column("at", "TIMESTAMP(3)"), Column("zoned", "TIMESTAMP_LTZ(3)"),
    Column("fine", "TIMESTAMP(6)"), Column("words", "ARRAY<STRING>"),
)  # fmt: skip
TIME_MS = 1_700_000_000_123
FULL = (
    1, True, Decimal("123456789012345678.90"), 0.5, b"ab", 19_000, 3_723_000, TIME_MS, TIME_MS,
    TIME_MS * 1_000, ["x", "y"],
)  # fmt: skip


@dataclass
class Served:
    """A warehouse that is served, and a connection to it."""

    shop: Shop
    process: subprocess.Popen[bytes]
    errors: Path
    url: str
    password: str
    drivers: Any
    connection: Any

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The answer, as texts; None is a null."""
        statement = self.connection.createStatement()
        try:
            return of_result(statement.executeQuery(sql))
        finally:
            statement.close()

    def failure(self, sql: str) -> str:
        with pytest.raises(Py4JJavaError) as raised:
            self.rows(sql)
        return str(raised.value.java_exception.getMessage())

    def until(self, look: Callable[[], object], answer: object) -> None:
        until(lambda: look() == answer, lambda: f"{look()}\n{self.errors.read_text()}")


def of_result(result: Any) -> list[tuple[Any, ...]]:
    width, rows = result.getMetaData().getColumnCount(), []
    while result.next():
        rows.append(tuple(result.getString(i + 1) for i in range(width)))
    return rows


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("thrift")
    shop = Shop(folder / "warehouse")
    shop.sales()
    shop.create("types", TYPES, ["id"])
    shop.write("shop.sales", ("Chad", 1, 1.5), ("Peru", 2, None))
    shop.write("shop.types", FULL, (2, *[None] * (len(TYPES) - 1)))
    shop.orders("bad-name")
    keep(shop.warehouse, "twice", "SELECT country, orders * 2 AS n FROM shop.sales", "country", "n")
    port, errors = folder / "port", folder / "stderr"
    words = ["thrift", "--warehouse", str(shop.path), "--port", "0", "--port-file", str(port)]
    with errors.open("w") as out:
        process = subprocess.Popen([*STREAMHOUSE, *words], stderr=out)
    try:
        for _ in looks(errors.read_text):
            assert process.poll() is None, errors.read_text()
            if port.exists() and port.read_text().endswith("\n"):
                break
        url = f"jdbc:hive2://127.0.0.1:{port.read_text().strip()}"
        with JavaProcess(spark_jars(), JAVA) as java:
            (password,) = re.findall(r"^The password, .*: (\S+)$", errors.read_text(), re.MULTILINE)
            drivers = java.jvm.java.sql.DriverManager
            connection = drivers.getConnection(f"{url}/shop", "me", password)
            yield Served(shop, process, errors, url, password, drivers, connection)
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_each_query_sees_the_newest_snapshot(served: Served) -> None:
    count = "SELECT COUNT(*), SUM(orders) FROM sales"
    assert served.rows(count) == [("2", "3")]
    served.shop.write("shop.sales", ("Mali", 10, 0.25))
    assert served.rows(count) == [("3", "13")]
    assert served.rows("SELECT country FROM shop.sales WHERE orders > 1 ORDER BY 1") == [
        ("Mali",),
        ("Peru",),
    ]
    assert served.rows("SELECT n FROM twice WHERE country = 'Mali'") == [("20",)]


def test_other_machines_cannot_reach_it(served: Served) -> None:
    server = psutil.Process(served.process.pid)
    pids = [one.pid for one in (server, *server.children(recursive=True))]
    assert listening(pids) and reachable(pids) == set()


def test_one_table_twice_and_two_tables_in_a_query(served: Served) -> None:
    assert served.rows(
        "SELECT a.country, b.country FROM sales a CROSS JOIN sales b "
        "WHERE a.orders = 1 AND b.orders = 2"
    ) == [("Chad", "Peru")]
    assert served.rows(
        "SELECT country, id, n FROM sales JOIN types ON orders = id JOIN twice USING (country) "
        "ORDER BY id"
    ) == [("Chad", "1", "2"), ("Peru", "2", "4")]


def test_types(served: Served) -> None:
    full, empty = served.rows("SELECT * FROM types ORDER BY id")
    assert full == (
        "1", "true", "123456789012345678.90", "0.5", "ab", "2022-01-08", "01:02:03.000",
        "2023-11-14 22:13:20.123", "2023-11-14 22:13:20.123", "2023-11-14 22:13:20.123",
        '["x","y"]',
    )  # fmt: skip
    assert empty == ("2", *[None] * (len(TYPES) - 1))


def test_what_clients_list(served: Served) -> None:
    about = served.connection.getMetaData()
    tables = of_result(about.getTables(None, "shop", "%", None))
    assert [(row[1], row[2], row[3]) for row in tables] == [
        ("shop", "sales", "VIEW"),
        ("shop", "twice", "VIEW"),
        ("shop", "types", "VIEW"),
    ]
    columns = of_result(about.getColumns(None, "shop", "sales", "%"))
    assert [(row[3], row[5]) for row in columns] == [
        ("country", "STRING"),
        ("orders", "BIGINT"),
        ("revenue", "DOUBLE"),
    ]
    assert "notice: shop.bad-name is not served" in served.errors.read_text()


def test_beeline(served: Served) -> None:
    options = ["--outputformat=csv2", "--silent=true"]
    sql = "SELECT country, n FROM shop.twice ORDER BY n LIMIT 2"
    done = subprocess.run(
        [java_command(), *JAVA, "-cp", os.pathsep.join(map(str, spark_jars())),
         "org.apache.hive.beeline.BeeLine", "-u", served.url, "-n", "me",
         "-p", served.password, *options, "-e", sql],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Its prompt stands before the header.
    assert done.stdout.split()[-3:] == ["country,n", "Chad,2", "Peru,4"], done.stdout


def test_nothing_can_be_written(served: Served) -> None:
    row = "VALUES ('Oman', 1, 1.0D)"
    assert "view" in served.failure(f"INSERT INTO sales {row}").lower()
    (source,) = (
        name for _, name, _ in served.rows("SHOW TABLES IN streamhouse_sources") if "sales" in name
    )
    served.failure(f"INSERT INTO streamhouse_sources.{source} {row}")
    assert served.rows("SELECT COUNT(*) FROM sales WHERE country = 'Oman'") == [("0",)]


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_wrong_password_is_refused(served: Served, password: str) -> None:
    with pytest.raises(Py4JJavaError) as raised:
        served.drivers.getConnection(f"{served.url}/shop", "me", password)
    assert "validating the login" in str(raised.value.java_exception.getMessage())


SEALED = {
    "SELECT * FROM text.`{file}`": "TABLE_OR_VIEW_NOT_FOUND",
    "SELECT 1 WHERE 'x' IN (SELECT * FROM text.`{file}`)": "TABLE_OR_VIEW_NOT_FOUND",
    "EXECUTE IMMEDIATE 'SELECT * FROM text.`{file}`'": "TABLE_OR_VIEW_NOT_FOUND",
    "BEGIN SELECT * FROM text.`{file}`; END": "TABLE_OR_VIEW_NOT_FOUND",
    "CREATE TEMPORARY VIEW v USING text OPTIONS (path '{file}')": "not allowed",
    "CREATE TABLE shop.t (a STRING) USING csv LOCATION '{file}'": "not allowed",
    "CREATE TABLE shop.t AS SELECT 1 AS a": "not allowed",
    "CREATE DATABASE d LOCATION '{folder}/d'": "not allowed",
    "INSERT OVERWRITE DIRECTORY '{folder}/d' USING csv SELECT 1": "not allowed",
    "INSERT OVERWRITE LOCAL DIRECTORY '{folder}/d' USING csv SELECT 1": "not allowed",
    "SELECT TRANSFORM(country) USING 'cat {file}' AS x FROM sales": "not allowed",
    "ADD FILE '{file}'": "not allowed",
    "ADD JAR '{file}'": "not allowed",
    "LIST FILES": "not allowed",
    "CREATE FUNCTION f AS 'x.Y' USING JAR '{file}'": "not allowed",
    "SELECT reflect('java.lang.System', 'getenv', 'HOME')": "not allowed",
    "SELECT java_method('java.lang.System', 'getenv', 'HOME')": "not allowed",
    "SELECT ABS(LENGTH(try_reflect('java.lang.System', 'getenv', 'HOME')))": "not allowed",
    "SET spark.sql.runSQLOnFiles=true": "not allowed",
    "SET spark.sql.variable.substitute=true": "not allowed",
    "SET spark.sql.catalog.c=org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog": (
        "not allowed"
    ),
    "CACHE TABLE sales": "not allowed",
    "DROP VIEW shop.sales": "not allowed",
    "CREATE OR REPLACE VIEW shop.sales AS SELECT 1 AS a": "not allowed",
    "SELECT * FROM streamhouse_sources.`{source}` WITH ('served' = '../shop.sales')": (
        "query the served views"
    ),
}


def test_files_are_neither_read_nor_written(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x\n")
    source = served.rows("SHOW TABLES IN streamhouse_sources")[0][1]
    for text, said in SEALED.items():
        sql = text.format(file=file, folder=tmp_path, source=source)
        assert said in served.failure(sql), sql
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert served.rows("SELECT '${env:HOME}', '${system:user.home}'") == [
        ("${env:HOME}", "${system:user.home}")
    ]


def test_settings_of_a_connection_give_no_access_to_files(served: Served) -> None:
    for setting in (
        "spark.sql.runSQLOnFiles=true",
        "spark.sql.variable.substitute=true",
        "spark.sql.catalog.c=org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    ):
        with pytest.raises(Py4JJavaError) as raised:
            served.drivers.getConnection(f"{served.url}/shop?{setting}", "me", served.password)
        assert "not allowed here" in str(raised.value.java_exception.getMessage())
    url = f"{served.url}/shop?spark.sql.shuffle.partitions=3"
    served.drivers.getConnection(url, "me", served.password).close()


def test_metadata_requests_of_clients(served: Served) -> None:
    for text in (
        "USE shop",
        "SET spark.sql.session.timeZone=UTC",
        "SET -v",
        "EXPLAIN SELECT * FROM sales",
        "DESCRIBE sales",
        "SHOW COLUMNS IN sales",
        "SHOW CREATE TABLE sales",
        "CREATE OR REPLACE TEMPORARY VIEW mine AS SELECT country FROM sales",
        "SELECT * FROM mine",
        "WITH a AS (SELECT orders FROM sales) SELECT 1 WHERE 1 IN (SELECT orders FROM a)",
        "SELECT explode(array(1, 2)) UNION ALL SELECT id FROM range(3)",
    ):
        statement = served.connection.createStatement()
        statement.execute(text)
        statement.close()


def test_new_tables_and_columns_appear_and_dropped_ones_disappear(served: Served) -> None:
    def columns() -> list[Any]:
        found = served.connection.getMetaData().getColumns(None, "shop", "later", "%")
        return [row[3] for row in of_result(found)]

    table = served.shop.orders("later")
    served.shop.write(table, (7, "nut", Decimal("1.10")))
    served.until(columns, ["id", "item", "price"])
    assert served.rows("SELECT * FROM later") == [("7", "nut", "1.10")]
    served.shop.warehouse.alter_table(table, AddColumn(Column("zip", "STRING")))
    served.until(columns, ["id", "item", "price", "zip"])
    served.shop.warehouse.drop_table("shop", "later")
    served.until(columns, [])


def test_it_ends_by_a_signal(served: Served) -> None:
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(DEADLINE_S) == 0
    lines = served.errors.read_text().splitlines()
    assert f"at {served.url} (Ctrl-C ends)" in lines[-1]
