"""MySQL as a sink: upserts and deletes, each batch once after any kill, values, errors."""

from __future__ import annotations

import contextlib
import datetime
import logging
import threading
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from tests.integration.conftest import Installed
from tests.integration.runtime.conftest import Shop
from tests.mysql_server import Server
from tests.waiting import DEADLINE_S, until

from streamhouse.connectors.base import Message, WrittenBatch
from streamhouse.connectors.jdbc.connector import JdbcCommitter
from streamhouse.connectors.registry import connector
from streamhouse.connectors.specs import SinkSpec
from streamhouse.demo.mariadb import MariaDB
from streamhouse.errors import StreamhouseError, TableError, UnsupportedSqlError
from streamhouse.sql.plan import Column, TableInfo

pytestmark = pytest.mark.usefixtures("in_threads")

USER, PASSWORD = "sinker", "hidd3n"
PEOPLE = """
CREATE TABLE IF NOT EXISTS people (id INT, country STRING, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('bucket' = '1', 'changelog-producer' = 'input');
"""
EVERY_TYPE = """
CREATE TABLE sunk.typed (id INT PRIMARY KEY, big BIGINT UNSIGNED, price DECIMAL(38,10), d DOUBLE,
  f FLOAT, name VARCHAR(100) CHARSET utf8mb4, latin VARCHAR(9) CHARSET latin1, b VARBINARY(20),
  day DATE, tod TIME(3), at DATETIME(6), at_utc DATETIME(3), zoned TIMESTAMP(6) NULL,
  local TIMESTAMP(3) NULL, yes BOOLEAN, flag BIT(1), bits BIT(12), doc JSON, tags SET('x','y'),
  kind ENUM('p','q'), year YEAR)
"""
NOON = datetime.datetime(2024, 7, 1, 12, 0, 0, 123000)
SPRING = datetime.datetime(2024, 3, 31, 2, 30, 0, 123456)
VALUES: dict[str, tuple[str, Any]] = {
    "id": ("INT", 0),
    "big": ("DECIMAL(20, 0)", Decimal(2**64 - 1)),
    "price": ("DECIMAL(38, 10)", Decimal("0.0000000001")),
    "d": ("DOUBLE", -0.1),
    "f": ("FLOAT", 0.5),
    "name": ("STRING", 'o\'h \\ "日本" 😀\n%s\0'),
    "latin": ("STRING", "é"),
    "b": ("BYTES", b"\x00\xff'\\\n"),
    "day": ("DATE", datetime.date(2024, 2, 29)),
    "tod": ("TIME(3)", datetime.time(10, 11, 12, 345000)),
    "at": ("TIMESTAMP(6)", SPRING),
    "at_utc": ("TIMESTAMP_LTZ(3)", NOON.replace(tzinfo=datetime.UTC)),
    "zoned": ("TIMESTAMP_LTZ(6)", SPRING.replace(tzinfo=datetime.UTC)),
    "local": ("TIMESTAMP(3)", NOON),
    "yes": ("BOOLEAN", True),
    "flag": ("BOOLEAN", False),
    "bits": ("BYTES", b"\x0a\xbc"),
    "doc": ("STRING", '{"a": [1, "x"]}'),
    "tags": ("ARRAY<STRING>", ["x", "y"]),
    "kind": ("STRING", "q"),
    "year": ("INT", 1999),
}
"""A value of each column of `typed`, with the type that it is declared with."""


@pytest.fixture
def server(mariadb: MariaDB) -> Iterator[MariaDB]:
    mariadb.execute(
        "DROP DATABASE IF EXISTS sunk",
        "CREATE DATABASE sunk",
        "CREATE TABLE sunk.people (id INT PRIMARY KEY, country VARCHAR(40))",
        "CREATE TABLE sunk.log (id INT, what VARCHAR(40))",
        f"CREATE OR REPLACE USER {USER} IDENTIFIED BY '{PASSWORD}'",
        f"GRANT ALL ON sunk.* TO {USER}",
    )
    yield mariadb
    mariadb.execute("DROP DATABASE sunk")


def options(server: MariaDB, table: str, **more: str) -> dict[str, str]:
    return {
        "url": f"jdbc:mysql://127.0.0.1:{server.port}/sunk?serverTimezone=%2B02:00",
        "table-name": table,
        "username": USER,
        "password": PASSWORD,
        **more,
    }


def declared(server: MariaDB, table: str, columns: str, **more: str) -> str:
    given = {"connector": "jdbc", **options(server, table, **more)}
    text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    return f"CREATE TEMPORARY TABLE {table}_sink ({columns}) WITH ({text});\n"


def rows(server: MariaDB, table: str) -> list[tuple[Any, ...]]:
    return server.execute(f"SELECT * FROM sunk.{table} ORDER BY 1, 2")


def committer(
    server: MariaDB, table: str, key: tuple[str, ...] = (), query: str = "q", **more: str
) -> JdbcCommitter:
    columns = (Column("id", "INT", nullable=not key), Column("country", "STRING"))
    spec = SinkSpec("jdbc", options(server, table, **more), columns, primary_key=key)
    return opened(spec, query)


def opened(spec: SinkSpec, query: str = "q") -> JdbcCommitter:
    made = spec.open().committer(query)
    assert isinstance(made, JdbcCommitter)
    return made


def batch(*values: tuple[int, str]) -> list[pa.RecordBatch]:
    ids, countries = zip(*values, strict=True)
    return [pa.record_batch({"id": pa.array(ids, pa.int32()), "country": list(countries)})]


def test_values_of_every_type_are_read_as_they_were_written(server: MariaDB) -> None:
    server.execute(EVERY_TYPE)
    columns = tuple(Column(name, kind) for name, (kind, _) in VALUES.items())
    spec = SinkSpec("jdbc", options(server, "typed"), columns, primary_key=("id",))
    empty = {**dict.fromkeys(VALUES), "id": 1}
    written = [{name: value for name, (_, value) in VALUES.items()}, empty]
    schema = pa.schema([(f.name, f.type) for f in spec.arrow_schema])
    made = spec.open().committer("q")
    rows_written = pa.RecordBatch.from_pylist(written, schema)
    made.commit(lambda: WrittenBatch(0, _messages(spec, rows_written)), lambda: None)

    table = TableInfo(("c", "d", "t"), columns, options=spec.options, connector="jdbc")
    _, read = connector("jdbc").scan(table, spec.options, list(VALUES))
    assert sorted(pa.Table.from_batches(read()).to_pylist(), key=lambda row: row["id"]) == written
    raw = "SELECT at, at_utc, UNIX_TIMESTAMP(zoned), UNIX_TIMESTAMP(local) FROM sunk.typed LIMIT 1"
    assert server.execute(raw) == [
        (
            SPRING,
            NOON + datetime.timedelta(hours=2),
            Decimal(str(SPRING.replace(tzinfo=datetime.UTC).timestamp())),
            Decimal("1719828000.123"),
        )
    ]


def _messages(spec: SinkSpec, rows: pa.RecordBatch) -> Sequence[Message]:
    writer = spec.open().writer("q", 0, "a")
    writer.write(rows)
    return writer.prepare()


def test_each_change_is_written_once_though_a_batch_runs_again(shop: Shop, server: MariaDB) -> None:
    for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
        server.execute(
            f"CREATE TRIGGER sunk.{event} AFTER {event} ON sunk.people FOR EACH ROW "
            f"INSERT INTO sunk.log VALUES ({row}.id, CONCAT('{event} ', {row}.country))"
        )
    script = (
        PEOPLE
        + declared(server, "people", "id INT, country STRING, PRIMARY KEY (id) NOT ENFORCED")
        + "INSERT INTO people_sink SELECT id, UPPER(country) FROM people WHERE id < 9;"
    )
    shop.do(f"{PEOPLE} INSERT INTO people VALUES (1, 'Kenya'), (2, 'China'), (9, 'Peru');")
    with shop.failing_here(script, "target-committed:0"):
        pass
    shop.settle_here(script)
    logged = [(1, "INSERT KENYA"), (2, "INSERT CHINA")]
    assert rows(server, "log") == logged

    shop.do("UPDATE people SET country = 'Chad' WHERE id = 2; DELETE FROM people WHERE id = 1;")
    with shop.failing_here(script, "batch-written:1"):
        pass
    assert rows(server, "log") == logged
    # The last changes are repeated only if a batch that was committed is written again.
    with shop.failing_here(script, "target-committed:1"):
        pass
    server.execute("UPDATE sunk.people SET country = 'by hand' WHERE id = 2")
    shop.settle_here(script)

    assert rows(server, "people") == [(2, "by hand")]
    assert sorted(rows(server, "log")) == sorted(
        [*logged, (1, "DELETE KENYA"), (2, "UPDATE CHAD"), (2, "UPDATE by hand")]
    )
    ((query, number, target, _),) = rows(server, "streamhouse_commits")
    assert (len(query), number, target) == (36, 1, "sunk.people")


def test_rows_without_a_key_are_appended_once(
    shop: Shop, server: MariaDB, caplog: pytest.LogCaptureFixture
) -> None:
    made = """CREATE TEMPORARY TABLE made (id INT) WITH ('connector' = 'datagen',
      'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '3');"""
    columns = "id INT, what STRING"
    insert = "INSERT INTO log_sink SELECT id, 'made' FROM made;"
    script = made + declared(server, "log", columns) + insert
    for point in ("batch-written:0", "target-committed:0"):
        with shop.failing_here(script, point):
            pass
    shop.settle_here(script)
    assert rows(server, "log") == [(1, "made"), (2, "made"), (3, "made")]

    server.execute(
        "DROP TABLE sunk.streamhouse_commits",
        f"REVOKE ALL ON sunk.* FROM {USER}",
        f"GRANT SELECT, INSERT ON sunk.log TO {USER}",
    )
    strict = made + declared(server, "log", columns, **{"sink.delivery-guarantee": "exactly-once"})
    with pytest.raises(StreamhouseError, match="cannot be written exactly once: .*GRANT CREATE"):
        shop.settle_here(strict + insert)
    script = f"SET 'pipeline.name' = 'again'; {script}"
    with shop.failing_here(script, "target-committed:0"):
        pass
    assert "rows are written at least once: those of an interrupted" in caplog.text
    shop.settle_here(script)
    assert rows(server, "log") == [(n, "made") for n in (1, 1, 1, 2, 2, 2, 3, 3, 3)]


def test_bounded_inserts_are_one_transaction(shop: Shop, server: MariaDB) -> None:
    keyed = declared(server, "people", "id INT, country STRING, PRIMARY KEY (id) NOT ENFORCED")
    text = keyed + declared(server, "log", "id INT, what STRING")
    shop.do(
        text
        + "INSERT INTO people_sink VALUES (1, 'Kenya'), (2, 'China'), (1, 'Chad');"
        + "INSERT INTO log_sink SELECT id, country FROM people_sink;"
        + "INSERT INTO log_sink (id) VALUES (7);"
    )
    assert rows(server, "people") == [(1, "Chad"), (2, "China")]
    assert rows(server, "log") == [(1, "Chad"), (2, "China"), (7, None)]
    assert rows(server, "streamhouse_commits") == []
    with pytest.raises(TableError, match="cannot hold a row: Data too long for column 'country'"):
        shop.do(f"{text} INSERT INTO people_sink VALUES (5, 'x'), (6, REPEAT('x', 41));")
    assert rows(server, "people") == [(1, "Chad"), (2, "China")]
    plan = shop.printed(f"{PEOPLE} {text} EXPLAIN INSERT INTO people_sink SELECT * FROM people;")
    assert "sunk" not in plan and PASSWORD not in plan
    assert "exactly-once: upserts and deletes by id, one transaction for each micro-batch" in plan
    with pytest.raises(UnsupportedSqlError, match="the query updates and deletes rows; declare"):
        shop.settle_here(f"{PEOPLE} {text} INSERT INTO log_sink SELECT * FROM people;")


def test_lost_connections_locks_and_deadlocks_are_overcome(server: MariaDB) -> None:
    server.execute("SET GLOBAL innodb_lock_wait_timeout = 1")
    # More than the default, which a busy machine may use up before the sessions are killed.
    sink = committer(server, "people", ("id",), **{"sink.max-retries": "1000"})
    assert sink.write(0, batch((1, "Kenya"), (2, "China")))
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(sink.write(1, batch((1, "a"), (2, "b")))))
    waiting = "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    with contextlib.closing(server.connect("sunk")) as holder:
        holder.begin()
        holder.cursor().execute("UPDATE people SET country = 'held' WHERE id = 2")
        thread.start()
        first = until(lambda: server.execute(waiting))
        # After the lock's timeout it waits again, in another transaction.
        until(lambda: server.execute(waiting) not in ([], first))
        for (number,) in server.execute(
            f"SELECT id FROM information_schema.processlist WHERE user = '{USER}'"
        ):
            # The session may have ended meanwhile.
            with contextlib.suppress(pymysql.err.OperationalError):
                server.execute(f"KILL {number}")
    thread.join(DEADLINE_S)
    server.execute("SET GLOBAL innodb_lock_wait_timeout = 50")
    assert (done, rows(server, "people")) == ([True], [(1, "a"), (2, "b")])
    assert not sink.write(1, batch((1, "again")))
    assert not committer(server, "people", ("id",)).write(0, batch((1, "again")))
    assert committer(server, "people", ("id",), "r").write(0, batch((1, "other query")))
    assert rows(server, "people") == [(1, "other query"), (2, "b")]


def test_a_row_is_never_written_over_that_of_another_key(server: MariaDB) -> None:
    server.execute("ALTER TABLE sunk.people ADD UNIQUE by_country (country)")
    sink = committer(server, "people", ("id",))
    assert sink.write(0, batch((1, "Kenya"), (2, "China")))
    with pytest.raises(TableError, match="1 of 2 rows have the same value .*by_country"):
        sink.write(1, batch((1, "Chad"), (3, "China")))
    assert rows(server, "people") == [(1, "Kenya"), (2, "China")]
    assert sink.write(1, batch((1, "Chad"), (3, "Peru")))
    assert len(rows(server, "people")) == 3


def test_a_row_found_by_another_unique_index_keeps_its_text_key(server: MariaDB) -> None:
    server.execute(
        "CREATE TABLE sunk.codes (country VARCHAR(9), id INT UNIQUE, PRIMARY KEY (country))"
    )
    columns = (Column("country", "STRING", nullable=False), Column("id", "INT"))
    spec = SinkSpec("jdbc", options(server, "codes"), columns, primary_key=("country",))
    sink = opened(spec)
    assert sink.write(0, batch((1, "Kenya")))
    with pytest.raises(TableError, match="1 of 1 rows have the same value .*unique index"):
        sink.write(1, batch((1, "Chad")))
    assert sink.write(1, batch((1, "KENYA")))
    assert rows(server, "codes") == [("KENYA", 1)]


BIG = 10**19
KEYS: list[tuple[str, str, list[Any]]] = [
    ("DECIMAL(20, 0)", "DECIMAL(20, 0)", [Decimal(BIG + n) for n in range(1000)]),
    ("BIGINT UNSIGNED", "DECIMAL(20, 0)", [Decimal(BIG + n) for n in range(1000)]),
    ("DECIMAL(38, 10)", "DECIMAL(38, 10)", [Decimal(n) / 10**10 for n in range(4)]),
    ("DECIMAL(20, 0)", "STRING", [str(BIG + n) for n in range(1000)]),
    ("VARCHAR(30)", "BIGINT", [2**53 + n for n in range(1000)]),
    ("FLOAT", "FLOAT", [0.1, 0.5, 3e38]),
    ("DOUBLE", "DOUBLE", [0.1, 0.5, 1e300]),
    ("BINARY(4)", "BYTES", [b"\1", b"\1\2", b"'"]),
    ("BIT(12)", "BYTES", [b"\1\2", b"\1\3", b"\0\0"]),
    ("BIT(1)", "BOOLEAN", [True, False]),
]


@pytest.mark.parametrize(("into", "kind", "keys"), KEYS)
def test_the_rows_of_deleted_keys_are_deleted_and_no_others(
    server: MariaDB, into: str, kind: str, keys: list[Any]
) -> None:
    server.execute(f"CREATE TABLE sunk.keyed (k {into} PRIMARY KEY, n INT)")
    columns = (Column("k", kind, nullable=False), Column("n", "INT"))
    spec = SinkSpec("jdbc", options(server, "keyed"), columns, primary_key=("k",))
    sink = opened(spec)
    (field, _) = spec.arrow_schema

    def changes(kind: str, step: int) -> list[pa.RecordBatch]:
        values, numbers = pa.array(keys[::step], field.type), range(0, len(keys), step)
        return [pa.record_batch([values, list(numbers), [kind] * len(numbers)],
                                ["k", "n", "rowkind"])]  # fmt: skip

    sink.write(0, changes("+I", 1))
    sink.write(1, changes("-D", 2))
    kept = [n for (n,) in server.execute("SELECT n FROM sunk.keyed ORDER BY n")]
    assert kept == list(range(1, len(keys), 2))


@pytest.mark.parametrize(
    ("before", "key", "message"),
    [
        ("DROP PRIMARY KEY", ("id",), r"no unique index of exactly the PRIMARY KEY \(id\) .*none"),
        ("MODIFY country INT", ("id",), "Incorrect integer value: 'Kenya'"),
        ("MODIFY country DECIMAL(3, 1)", ("id",), "Incorrect decimal value"),
        ("MODIFY id DECIMAL(3, 1), ADD extra INT NOT NULL", ("id",), "doesn't have a default"),
        ("RENAME COLUMN country TO countries", (), "did you mean 'countries'"),
        ("DROP COLUMN country, ADD country INT AS (id + 1)", (), "is generated by the server"),
        ("MODIFY country POINT", (), "cannot be written; declare the table without it"),
        ("MODIFY country DATE", ("id",), "cannot hold a row: Incorrect date value: 'Kenya'"),
        ("ADD CHECK (id > 5)", ("id",), "cannot hold a row: "),
    ],
)
def test_what_does_not_fit_is_one_line(
    server: MariaDB, before: str, key: tuple[str, ...], message: str
) -> None:
    server.execute(f"ALTER TABLE sunk.people {before}")
    with pytest.raises(TableError, match=message) as raised:
        committer(server, "people", key).write(0, batch((1, "Kenya")))
    assert len(str(raised.value).splitlines()) == 1
    assert rows(server, "people") == []


def test_a_key_keeps_all_digits(server: MariaDB) -> None:
    server.execute("CREATE TABLE sunk.at (at DATETIME(3) PRIMARY KEY)")
    for digits in (3, 6):
        columns = (Column("at", f"TIMESTAMP({digits})", nullable=False),)
        spec = SinkSpec("jdbc", options(server, "at"), columns, primary_key=("at",))
        if digits == 3:
            spec.open().committer("q")
            continue
        with pytest.raises(TableError, match=r"does not hold all digits of TIMESTAMP\(6\)"):
            spec.open().committer("q")


def test_a_decimal_is_not_rounded(server: MariaDB) -> None:
    server.execute("CREATE TABLE sunk.prices (id INT PRIMARY KEY, price DECIMAL(9, 1))")
    columns = (Column("id", "INT", nullable=False), Column("price", "DECIMAL(9, 2)"))
    spec = SinkSpec("jdbc", options(server, "prices"), columns, primary_key=("id",))
    made = opened(spec)

    def price(text: str) -> list[pa.RecordBatch]:
        return [pa.RecordBatch.from_pylist([{"id": 1, "price": Decimal(text)}], spec.arrow_schema)]

    made.write(0, price("1.50"))
    with pytest.raises(TableError, match="Data truncated for column 'price'"):
        made.write(1, price("1.55"))
    assert rows(server, "prices") == [(1, Decimal("1.5"))]


@pytest.mark.parametrize(
    ("into", "kind", "value", "message"),
    [
        ("INT", "DECIMAL(9, 2)", Decimal("1.55"), "has no fractions, and MySQL would round 1.55"),
        ("INT", "DOUBLE", 1.5, "would round 1.5"),
        ("DOUBLE", "BIGINT", 2**53 + 1, "'v' .*does not hold all digits of 9007199254740993,"),
        ("FLOAT", "DECIMAL(10, 2)", Decimal("12345678.91"), "all digits of 12345678.91,"),
        ("DOUBLE(10, 2)", "DECIMAL(10, 3)", Decimal("1.555"), "all digits of 1.555,"),
        ("YEAR", "INT", 5, "would take 5 for another year"),
        ("YEAR", "STRING", "0", "would take 0 for another year"),
        ("ENUM('p', 'q')", "INT", 1, "has no member '1'"),
        ("ENUM('p', 'q')", "STRING", "2", "has no member '2'"),
        ("SET('p', 'q')", "BOOLEAN", True, "has no member 'true'"),
        ("TIMESTAMP NOT NULL DEFAULT '2024-01-01'", "TIMESTAMP(3)", None, "cannot be null"),
    ],
)
def test_a_value_that_mysql_would_change_is_an_error(
    server: MariaDB, into: str, kind: str, value: Any, message: str
) -> None:
    server.execute(f"CREATE TABLE sunk.narrow (id INT PRIMARY KEY, v {into})")
    columns = (Column("id", "INT", nullable=False), Column("v", kind))
    spec = SinkSpec("jdbc", options(server, "narrow"), columns, primary_key=("id",))
    sink = opened(spec)
    written = [pa.RecordBatch.from_pylist([{"id": 1, "v": value}], spec.arrow_schema)]
    with pytest.raises(TableError, match=message):
        sink.write(0, written)
    assert rows(server, "narrow") == []


def test_a_tiny_decimal_is_written_as_text_in_plain_digits(server: MariaDB) -> None:
    server.execute("CREATE TABLE sunk.texts (id INT PRIMARY KEY, v VARCHAR(40), d DOUBLE, y YEAR)")
    kinds = {"id": "INT", "v": "DECIMAL(38, 10)", "d": "DECIMAL(38, 18)", "y": "DECIMAL(4, 0)"}
    columns = tuple(Column(name, kind, nullable=name != "id") for name, kind in kinds.items())
    spec = SinkSpec("jdbc", options(server, "texts"), columns, primary_key=("id",))
    row = {"id": 1, "v": Decimal("1E-10"), "d": Decimal("19.99"), "y": Decimal(0)}
    opened(spec).write(0, [pa.RecordBatch.from_pylist([row], spec.arrow_schema)])
    assert rows(server, "texts") == [(1, "0.0000000001", 19.99, 0)]


def test_padding_is_read_as_the_server_returns_it(shop: Shop, server: MariaDB) -> None:
    server.execute(
        "CREATE TABLE sunk.padded (id INT PRIMARY KEY, b BINARY(4), c CHAR(4))",
        "INSERT INTO sunk.padded VALUES (1, 'a', 'a ')",
    )
    table = declared(server, "padded", "id INT, b BYTES, c STRING")
    select = "SET 'execution.runtime-mode' = 'batch'; SELECT HEX(b), '[' || c || ']' FROM "
    assert shop.printed(f"{table}{select} padded_sink;") == "61000000  [a]"


def test_a_time_is_cut_off_as_a_timestamp_is(server: MariaDB) -> None:
    server.execute("CREATE TABLE sunk.times (id INT PRIMARY KEY, v TIME)")
    columns = (Column("id", "INT", nullable=False), Column("v", "TIME(3)"))
    spec = SinkSpec("jdbc", options(server, "times"), columns, primary_key=("id",))
    sink = opened(spec)
    late = datetime.time(23, 59, 59, 900000)
    sink.write(0, [pa.RecordBatch.from_pylist([{"id": 1, "v": late}], spec.arrow_schema)])
    assert rows(server, "times") == [(1, datetime.timedelta(hours=23, minutes=59, seconds=59))]


def test_a_table_without_transactions_is_reported(
    server: MariaDB, caplog: pytest.LogCaptureFixture
) -> None:
    server.execute("ALTER TABLE sunk.people ENGINE = MyISAM")
    caplog.set_level(logging.WARNING)
    assert committer(server, "people", ("id",)).write(0, batch((1, "Kenya")))
    assert "storage engine MyISAM has no transactions; a batch that is interrupted" in caplog.text
    with pytest.raises(StreamhouseError, match="ALTER TABLE sunk.people ENGINE = InnoDB"):
        committer(server, "people", ("id",), **{"sink.delivery-guarantee": "exactly-once"})


def test_a_table_is_read_by_several_queries_at_once(shop: Shop, server: MariaDB) -> None:
    server.execute(
        "CREATE TABLE sunk.wide (id INT PRIMARY KEY, at DATETIME NULL, pad VARCHAR(2000))",
        "INSERT INTO sunk.wide SELECT seq, IF(seq % 7 = 0, NULL, '2024-01-01' + INTERVAL seq HOUR),"
        " REPEAT('x', 1000) FROM sunk.seq_1_to_20000",
    )
    columns = "id INT, at TIMESTAMP(0), pad STRING"
    batch = "SET 'execution.runtime-mode' = 'batch';"
    for more, found in (
        ({"column": "id", "num": "3"}, 20_000),
        ({"column": "at", "num": "12"}, 20_000),
        ({"column": "id", "num": "5", "lower-bound": "11", "upper-bound": "110"}, 100),
    ):
        split = {f"scan.partition.{key}": value for key, value in more.items()}
        table = declared(server, "wide", columns, **split)
        count = "SELECT COUNT(*), COUNT(DISTINCT id), SUM(CHAR_LENGTH(pad)) FROM wide_sink;"
        assert shop.printed(table + batch + count) == f"{found}  {found}  {1000 * found}"
    assert shop.printed(f"{table}{batch}SELECT id > 0 FROM wide_sink LIMIT 1;") == "True"
    until(lambda: not [t for t in threading.enumerate() if t.name == "read-ahead"])
    with pytest.raises(TableError, match="no column 'ids'; did you mean 'id'"):
        shop.printed(table.replace("'id'", "'ids'") + batch + count)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("YEAR", [None, 0, 1901, 1999, 2043, 2155]),
        ("DATE", [None, "0000-00-00", "2024-01-00", "2024-01-05", "9999-12-31"]),
        ("DATETIME(6)", [None, "0001-01-01 00:00:00", "2024-02-29 01:02:03.999999"]),
        ("DECIMAL(38, 10)", [None, "-0.0000000001", "9999999999999999999999999999", "-1.5"]),
        ("BIGINT UNSIGNED", [None, 0, 2**64 - 1, 5]),
    ],
)
def test_each_row_is_in_one_range(server: MariaDB, kind: str, values: list[Any]) -> None:
    given = ["NULL" if value is None else f"'{value}'" for value in values]
    server.execute(
        f"CREATE TABLE sunk.parts (id INT, p {kind} NULL)",
        "SET SESSION sql_mode = ''",
        *(f"INSERT INTO sunk.parts VALUES ({n}, {value})" for n, value in enumerate(given)),
    )
    columns = (Column("id", "INT"),)
    for number in (1, 2, 7, 50):
        split = {"scan.partition.column": "p", "scan.partition.num": str(number)}
        table = TableInfo(
            ("c", "d", "t"), columns, options=options(server, "parts", **split), connector="jdbc"
        )
        schema, read = connector("jdbc").scan(table, dict(table.options), ["id"])
        found = pa.Table.from_batches(read(), schema)["id"].to_pylist()
        assert sorted(found) == list(range(len(values)))


@pytest.mark.soak
def test_kills_of_driver_and_server_lose_and_double_nothing(
    shop: Shop, installed: Installed, tmp_path: Path
) -> None:
    rows_in_all = 1_500_000
    with Server(installed(tmp_path / "mariadb")) as server:
        server.execute(
            "CREATE DATABASE sunk",
            "CREATE TABLE sunk.log (id INT, what VARCHAR(40), KEY (id))",
            "CREATE TABLE sunk.people (id INT PRIMARY KEY, country VARCHAR(40))",
            f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'",
            f"GRANT ALL ON sunk.* TO {USER}",
        )
        script = (
            f"""CREATE TEMPORARY TABLE made (id INT) WITH ('connector' = 'datagen',
              'fields.id.kind' = 'sequence', 'fields.id.start' = '1',
              'fields.id.end' = '{rows_in_all}', 'rows-per-second' = '5000');"""
            + declared(server, "log", "id INT, what STRING")
            + declared(server, "people", "id INT, country STRING, PRIMARY KEY (id) NOT ENFORCED")
            + "INSERT INTO log_sink SELECT id, 'made' FROM made;"
            + "INSERT INTO people_sink SELECT id % 1000, CAST(id AS STRING) FROM made;"
        )

        def grown() -> bool:
            return bool(server.execute("SELECT COUNT(*) FROM sunk.log")[0][0] > before + 5_000)

        for kill in ("driver", "server", "driver", "server", "driver"):
            (before,) = server.execute("SELECT COUNT(*) FROM sunk.log")[0]
            if kill == "driver":
                run = shop.start(script, "--until-caught-up")
                run.until(grown)
                run.kill()
                continue
            run = shop.start(script, "--until-caught-up")
            run.until(grown)
            server.kill()
            server.start()
            run.until(grown)
            run.kill()
        shop.settle(script.replace("'5000'", "'1000000'"))
        counted = "SELECT COUNT(*), COUNT(DISTINCT id), MIN(id), MAX(id) FROM sunk.log"
        assert server.execute(counted) == [(rows_in_all, rows_in_all, 1, rows_in_all)]
        wanted = [(n % 1000, str(rows_in_all - 1000 + n)) for n in range(1, 1001)]
        assert rows(server, "people") == sorted(wanted)
