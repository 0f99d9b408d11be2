"""Snapshots: rows streamed as columns, keys that are no primary keys, and what is refused."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest
from tests.integration.mysql.history import Database, apply, catch_up, rows_of
from tests.mysql_server import with_sequences
from tests.waiting import DEADLINE_S

from streamhouse.connectors.mysql_cdc.snapshot.chunk_reader import ChunkReader
from streamhouse.errors import DataLossError, SchemaChangeError, TableError
from streamhouse.mysql.connection import connect, run, run_raw
from streamhouse.mysql.options import parse
from streamhouse.mysql.values import result_rows
from streamhouse.mysql.values.result_rows import stream_columns
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column

_VALUES = (
    "SELECT seq, NULLIF(seq % 3, 0), REPEAT('ä', seq % 200), '', REPEAT('x', 249 + seq % 4), "
    "IF(seq % 50 = 0, REPEAT('y', 65534 + seq % 5), NULL), UNHEX('FEFFFB00'), NULL "
    "FROM {database}.seq_1_to_{rows}"
)


@contextmanager
def _connected(database: Database) -> Iterator[pymysql.Connection[Any]]:
    connection = connect(parse(database.options("t")))
    try:
        yield connection
    finally:
        connection.close()


def _rows(connection: pymysql.Connection[Any], statement: str) -> list[tuple[Any, ...]]:
    pieces = stream_columns(connection, statement)
    columns = [[column.to_pylist() for column in piece] for piece in pieces]
    return [row for piece in columns for row in zip(*piece, strict=True)]


@pytest.mark.parametrize("block", [1, 300, 70_000, 2 << 20])
def test_streamed_columns_are_the_rows(
    database: Database, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(result_rows, "BLOCK_BYTES", block)
    with _connected(database) as connection:
        for rows in (0, 1, 1000):
            statement = with_sequences(_VALUES.format(database=database.name, rows=rows or 1))
            statement += "" if rows else " WHERE seq > 1"
            assert _rows(connection, statement) == run_raw(connection, statement)


def test_rows_of_several_packets(database: Database) -> None:
    sizes = [(1 << 24) - 1 - 4 + delta for delta in (-1, 0, 1)]
    values = [*sizes, 1, 40_000_000, 0, 2 * ((1 << 24) - 1) - 4]
    statement = " UNION ALL ".join(f"SELECT REPEAT('z', {size}), 'end'" for size in values)
    allowed = database.run("SELECT @@global.max_allowed_packet")[0][0]
    database.run("SET GLOBAL max_allowed_packet = 134217728")
    try:
        with _connected(database) as connection:
            found = [
                (len(row[0]), row[0].strip(b"z"), row[1]) for row in _rows(connection, statement)
            ]
    finally:
        database.run(f"SET GLOBAL max_allowed_packet = {allowed}")
    assert found == [(size, b"", b"end") for size in values]


def test_an_error_between_rows_is_raised(database: Database) -> None:
    with _connected(database) as connection:
        run(connection, f"USE {database.name}")
        many = "(SELECT 1 FROM seq_1_to_2 b WHERE a.seq > 9000)"
        with pytest.raises(pymysql.err.OperationalError, match="more than 1 row"):
            _rows(connection, with_sequences(f"SELECT seq, {many} FROM seq_1_to_10000 a"))
        assert run(connection, "SELECT 1") == [("1",)]


def test_chunks_of_large_rows_have_fewer(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, body LONGBLOB)",
        "SET sql_log_bin = 0",
        "INSERT INTO t SELECT seq, REPEAT('x', 4000000) FROM seq_1_to_20",
        "ANALYZE TABLE t",
    )
    source = database.source("t")
    start = source.initial_offset()
    end = source.latest_offset(start)
    parts = source.partitions(start, end, 3)
    assert len(parts) == 3
    ids = [row["id"] for row in rows_of(source, start, end, 3)]
    assert sorted(ids) == list(range(1, 21))


_READ = """
import json, resource, sys
from streamhouse.connectors.mysql_cdc.source import MySqlSource
source = MySqlSource(json.loads(sys.argv[1]))
start = source.initial_offset()
end = source.latest_offset(start)
parts = source.partitions(start, end, 1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(batch.num_rows for part in parts for batch in source.read(part))
print(len(parts), rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_chunk_of_large_rows_takes_little_memory(database: Database) -> None:
    import json

    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, body LONGBLOB)",
        "SET sql_log_bin = 0",
        "INSERT INTO t SELECT seq, REPEAT(CHAR(seq % 256), 1000000) FROM seq_1_to_200",
    )
    command = [sys.executable, "-c", _READ, json.dumps(database.options("t"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    parts, rows, kilobytes = map(int, done.stdout.split())
    assert (parts, rows) == (1, 200)
    assert kilobytes < 60_000 < resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def test_a_snapshot_continues_where_its_connection_was_lost(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows change before and after the place that was reached; each is read once, as it was."""
    monkeypatch.setattr(result_rows, "BLOCK_BYTES", 1 << 18)
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, pad VARCHAR(1000))",
        "INSERT INTO t SELECT seq * 2, 0, REPEAT('x', 1000) FROM seq_1_to_50000",
    )
    options = {"scan.incremental.snapshot.chunk.size": "1000000", "connect.max-retries": "9"}
    source = database.source("t", options=options)
    start = source.initial_offset()
    end = source.latest_offset(start)
    (part,) = source.partitions(start, end, 1)
    rows: list[dict[str, Any]] = []
    lost = 0
    for batch in source.read(part):
        rows += batch.to_pylist()
        reader = _reader(database) if lost < 2 else None
        if reader is not None:
            low, high = rows[0]["id"], rows[-1]["id"]
            database.run(
                f"UPDATE t SET v = v + 1 WHERE id IN ({low}, {high}, {high + 2}, 90000)",
                f"DELETE FROM t WHERE id IN ({high - 2}, {high - 6}, {high + 20}, 80000)",
                f"INSERT INTO t (id, v) VALUES ({high - 1}, 9), ({high + 31}, 9)",
                f"KILL {reader}",
            )
            lost += 1
    assert lost == 2
    assert len(rows) == 50_000
    assert {row["id"]: row["v"] for row in rows} == {2 * i: 0 for i in range(1, 50_001)}
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    apply(state, rows, ["id"])
    _, changes = catch_up(source, end)
    apply(state, changes, ["id"])
    table = database.run("SELECT id, v FROM t")
    assert {row["id"]: row["v"] for row in state.values()} == dict(table)


def test_an_alter_as_the_transaction_begins(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """InnoDB does not show a transaction a table that was copied since it began."""
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    source = database.source("t")
    start = source.initial_offset()
    end = source.latest_offset(start)
    alters = ["ALTER TABLE t ADD COLUMN extra INT, ALGORITHM = COPY"]
    begin = ChunkReader._await_visible

    def altered(reader: ChunkReader, connection: Any, deadline: float) -> None:
        begin(reader, connection, deadline)
        if alters:
            database.run(alters.pop())

    monkeypatch.setattr(ChunkReader, "_await_visible", altered)
    rows = rows_of(source, start, end)
    assert not alters
    assert [row["id"] for row in rows] == [1, 2]


def _reader(database: Database) -> int | None:
    """The connection that sends rows of the table."""
    found = database.run(
        "SELECT id FROM information_schema.processlist WHERE user = 'streamhouse' "
        f"AND info LIKE '%{database.name}%FORCE INDEX%' AND info NOT LIKE '%OFFSET%'"
    )
    return found[0][0] if found else None


def test_names_with_percent_signs(database: Database) -> None:
    database.run(
        "CREATE TABLE `100%s %(a)` (`%d` INT, `é%s` VARCHAR(9) CHARACTER SET latin1, `%` INT, "
        "PRIMARY KEY (`%d`, `é%s`))",
        "INSERT INTO `100%s %(a)` SELECT seq, '%s', seq FROM seq_1_to_50",
        "CREATE TABLE `%u` (`a%` INT NOT NULL, UNIQUE KEY `%s%` (`a%`))",
        "INSERT INTO `%u` SELECT seq FROM seq_1_to_50",
    )
    for table, key in (("100%s %(a)", "%d"), ("%u", "a%")):
        options = {"scan.incremental.snapshot.chunk.size": "7"}
        source = database.source(table, options=options)
        start = source.initial_offset()
        middle = source.latest_offset(start, 21)
        assert middle["snapshot"][""][0] == 21
        database.run(f"DELETE FROM `{table}` WHERE `{key}` IN (3, 30)")
        rows = rows_of(source, start, middle)
        _, more = catch_up(source, middle)
        kinds = sorted((row[ROW_KIND], row[key]) for row in [*rows, *more] if row[key] in (3, 30))
        assert kinds == [("+I", 3), ("-D", 3)]
        assert len(rows) + len(more) == 50


def test_what_a_unique_key_must_stay(database: Database) -> None:
    database.run(
        "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, c INT, UNIQUE KEY both_of (a, b), "
        "UNIQUE KEY one (b))",
        "INSERT INTO t SELECT seq, 100 - seq, seq FROM seq_1_to_50",
    )
    options = {"scan.incremental.snapshot.chunk.size": "7"}
    source = database.source("t", options=options)
    assert source.keyed_by == ("b",)
    offset = source.latest_offset(source.initial_offset(), 7)
    assert offset["schemas"][0]["index"] == "one" and offset["snapshot"] == {"": [56]}
    database.run("CREATE UNIQUE INDEX a ON t (a)", "ALTER TABLE t DROP INDEX both_of")
    again = database.source("t", options=options)
    with pytest.raises(DataLossError, match=r"by|order of its key 'one', but its key is now 'a'"):
        again.latest_offset(offset)
    with pytest.raises(DataLossError, match="new checkpoint"):
        again.partitions(source.initial_offset(), offset)
    for table, statement, why in (
        ("u", "DROP INDEX one ON u", "drops the unique key 'one'"),
        ("v", "ALTER TABLE v MODIFY b INT NULL", "allows NULL in 'b'"),
    ):
        database.run(f"CREATE TABLE {table} (b INT NOT NULL, c INT, UNIQUE KEY one (b))")
        stopped = database.source(table)
        start, _ = catch_up(stopped, stopped.initial_offset())
        database.run(f"INSERT INTO {table} VALUES (1, 1)", statement)
        with pytest.raises((SchemaChangeError, DataLossError), match=why):
            catch_up(stopped, start)


@pytest.mark.parametrize(
    ("create", "message"),
    [
        ("CREATE VIEW t AS SELECT 1 AS id", r"cdc_\d+\.t is a view.*follow its base tables"),
        ("CREATE TABLE t (a FLOAT NOT NULL UNIQUE)", "key column 'a' has the type float"),
    ],
)
def test_tables_that_are_refused(database: Database, create: str, message: str) -> None:
    database.run(create)
    with pytest.raises(TableError, match=message):
        database.source("t")


def test_the_changes_of_a_table_without_a_key(database: Database) -> None:
    database.run("CREATE TABLE t (a INT, b VARCHAR(9))", "INSERT INTO t VALUES (1, 'x'), (1, 'x')")
    source = database.source("t", options={"scan.startup.mode": "latest-offset"})
    start = source.latest_offset(source.initial_offset())
    database.run(
        "INSERT INTO t VALUES (1, 'x'), (NULL, NULL)",
        "UPDATE t SET b = 'y' WHERE a = 1 LIMIT 2",
        "DELETE FROM t WHERE b IS NULL OR b = 'x'",
    )
    _, rows = catch_up(source, start)
    assert [tuple(row.values()) for row in rows] == [
        (1, "x", "+I"), (None, None, "+I"),
        (1, "x", "-U"), (1, "y", "+U"), (1, "x", "-U"), (1, "y", "+U"),
        (1, "x", "-D"), (None, None, "-D"),
    ]  # fmt: skip


def test_a_table_that_is_not_transactional_is_read_as_it_was(database: Database) -> None:
    """Its rows are selected at once, and corrected by the changes meanwhile."""
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE = MyISAM",
        "INSERT INTO t SELECT seq, 0 FROM seq_1_to_500",
    )
    source = database.source("t", options={"scan.incremental.snapshot.chunk.size": "50"})
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            database.run(f"UPDATE t SET v = v + 1 WHERE id = {number * 37 % 500 + 1}")
            time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    offset = source.initial_offset()
    try:
        while "snapshot" in offset:
            end = source.latest_offset(offset, 100)
            apply(state, rows_of(source, offset, end, 2), ["id"])
            offset = end
    finally:
        stop.set()
        writer.join(DEADLINE_S)
    _, rows = catch_up(source, offset)
    apply(state, rows, ["id"])
    table = dict(database.run("SELECT id, v FROM t"))
    assert {row["id"]: row["v"] for row in state.values()} == table


@pytest.mark.parametrize(
    ("kind", "wide", "declared", "keys"),
    [
        ("DATETIME", "DATETIME(3)", "TIMESTAMP(3)", ["20240101", "20250101", "20240101000000.5"]),
        (
            "TIMESTAMP(1)",
            "TIMESTAMP(3)",
            "TIMESTAMP(3)",
            ["20240101", "20250101", "20240101000000.25"],
        ),
        ("TIME", "TIME(3)", "TIME(3)", ["010000", "200000", "010000.5"]),
        ("DECIMAL(9,2)", "DECIMAL(10,3)", "DECIMAL(10, 3)", ["1.00", "99", "1.005"]),
    ],
)
@pytest.mark.parametrize("restart", [True, False])
def test_keys_that_get_more_digits_during_the_snapshot(
    database: Database, kind: str, wide: str, declared: str, keys: list[str], restart: bool
) -> None:
    strict = "SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES'"
    first, last, new = keys
    database.run(
        strict,
        f"CREATE TABLE t (k {kind} NOT NULL PRIMARY KEY, id INT, v VARCHAR(9))",
        f"INSERT INTO t VALUES ({first}, 1, 'old'), ({last}, 2, 'old')",
    )
    columns = [Column("k", declared), Column("id", "INT"), Column("v", "STRING")]
    options = {"scan.incremental.snapshot.chunk.size": "1"}
    source = database.source("t", columns, options)
    offset = source.initial_offset()
    end = source.latest_offset(offset, 1)
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    apply(state, rows_of(source, offset, end), ["k"])
    assert [row["id"] for row in state.values()] == [1]
    database.run(
        strict,
        "UPDATE t SET v = 'before'",
        f"ALTER TABLE t MODIFY k {wide} NOT NULL",
        "UPDATE t SET v = 'new' WHERE id = 1",
        f"INSERT INTO t VALUES ({new}, 3, 'in')",
    )
    if restart:
        source = database.source("t", columns, options)
    apply(state, catch_up(source, end)[1], ["k"])
    found = {row["id"]: row["v"] for row in state.values()}
    assert found == {1: "new", 2: "before", 3: "in"}
