"""The stream against a table that changes all the while, across restarts of both sides."""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.integration.conftest import Installed
from tests.integration.mysql.history import (
    Database,
    apply,
    catch_up,
    rows_of,
)
from tests.mysql_server import Server
from tests.waiting import DEADLINE_S, until

from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.demo.mariadb import USER, MariaDB
from streamhouse.errors import DataLossError, SchemaChangeError, TableError
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column

_MANY = ", ".join(f"'m{number % 7}{number}'" for number in range(1200))
_BITS = ", ".join(f"'o{number}'" for number in range(64))
TABLES = {
    "numbers": ("CREATE TABLE t (id INT PRIMARY KEY, v INT)", ["id"]),
    "decimals": ("CREATE TABLE t (id DECIMAL(8,2) PRIMARY KEY, v INT)", ["id"]),
    "instants": ("CREATE TABLE t (id DATETIME(3) PRIMARY KEY, v INT)", ["id"]),
    "binaries": ("CREATE TABLE t (id VARBINARY(9) PRIMARY KEY, v INT)", ["id"]),
    "words": (
        "CREATE TABLE t (id VARCHAR(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, v INT)",
        ["id"],
    ),
    "composite": (
        "CREATE TABLE t (v INT, id VARCHAR(20) CHARACTER SET latin1, shop INT, "
        "PRIMARY KEY (shop, id))",
        ["shop", "id"],
    ),
    "unsigned": ("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, v INT)", ["id"]),
    "flags": ("CREATE TABLE t (id TINYINT(1), k INT, v INT, PRIMARY KEY (id, k))", ["id", "k"]),
    "enums": (
        "CREATE TABLE t (id ENUM('z','é','B','a b','0','1'), k INT, v INT, PRIMARY KEY (id, k))",
        ["id", "k"],
    ),
    "many_enums": (f"CREATE TABLE t (id ENUM({_MANY}) PRIMARY KEY, v INT)", ["id"]),
    "sets": (
        f"CREATE TABLE t (id SET({_BITS}) CHARACTER SET latin1 PRIMARY KEY, v INT)",
        ["id"],
    ),
    "times": ("CREATE TABLE t (id TIME(2) PRIMARY KEY, v INT)", ["id"]),
    "dates": ("CREATE TABLE t (id DATE PRIMARY KEY, v INT)", ["id"]),
    "bits": ("CREATE TABLE t (id BIT(40) PRIMARY KEY, v INT)", ["id"]),
    "padded": ("CREATE TABLE t (id BINARY(4) PRIMARY KEY, v INT)", ["id"]),
    "uuids": ("CREATE TABLE t (id UUID PRIMARY KEY, v INT)", ["id"]),
    "addresses": ("CREATE TABLE t (id INET6, k INET4, v INT, PRIMARY KEY (id, k))", ["id", "k"]),
    "kanji": ("CREATE TABLE t (id VARCHAR(20) CHARACTER SET sjis PRIMARY KEY, v INT)", ["id"]),
    "small_decimals": ("CREATE TABLE t (id DECIMAL(30,25) PRIMARY KEY, v INT)", ["id"]),
    "sparse": ("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)", ["id"]),
    "spaces": (
        "CREATE TABLE t (id VARCHAR(20) COLLATE utf8mb4_nopad_bin PRIMARY KEY, v INT)",
        ["id"],
    ),
    "unique": (
        "CREATE TABLE t (v INT, id INT NOT NULL, k INT, UNIQUE KEY maybe (k), UNIQUE KEY u (id))",
        ["id"],
    ),
    "invisible": (
        "CREATE TABLE t (id INT, v INT, row_id BIGINT NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY "
        "KEY)",
        ["row_id"],
    ),
    "unique_words": (
        "CREATE TABLE t (id VARCHAR(20) NOT NULL COLLATE utf8mb4_german2_ci, v INT, "
        "shop INT UNSIGNED NOT NULL, UNIQUE KEY (id, shop))",
        ["id", "shop"],
    ),
}
RELAYED = ("numbers", "words", "enums", "invisible")
"""Tables that `make test` reads through a relay, too: it passes on events of any key alike."""
_WORDS = ["a", "B", "ä", "Z", "ß", "o'", "%s", "\\", "é", "_"]


def _key(name: str, chance: random.Random) -> dict[str, Any]:
    number = chance.randrange(400)
    word = _WORDS[number % 10] + str(number // 10)
    keys: dict[str, dict[str, Any]] = {
        "numbers": {"id": number},
        "decimals": {"id": f"{number - 200}.25"},
        "instants": {"id": f"2024-01-{number % 28 + 1:02d} 00:00:00.{number:03d}"},
        "binaries": {"id": bytes([number % 256, number // 256])},
        "words": {"id": word},
        "composite": {"id": word, "shop": number % 3},
        "unsigned": {"id": 2**64 - 1 - number * 2**54},
        "flags": {"id": number % 5 - 2, "k": number},
        "enums": {"id": number % 7 or "", "k": number},
        "many_enums": {"id": number * 3 + 1},
        "sets": {"id": (number * 0x1234_5678_9ABC_DEF1) % 2**64},
        "times": {"id": f"{'-' if number % 2 else ''}{number:02d}:00:{number % 60}.25"},
        "dates": {"id": f"{1000 + number * 22}-02-28"},
        "bits": {"id": number * 2**31},
        "padded": {"id": bytes([number % 256, 0, 0, number // 256])},
        "uuids": {"id": str(uuid.uuid5(uuid.NAMESPACE_DNS, word))},
        "addresses": {"id": f"::{number % 40:x}:{number:x}", "k": f"10.0.{number % 9}.0"},
        "kanji": {"id": "あソ表ｱ日a"[number % 6] + str(number // 6)},
        "small_decimals": {"id": f"{(number - 200) * 3}E-21"},
        "sparse": {"id": (number - 200) ** 7},
        "spaces": {"id": word[:1] + " " * (number % 4) + str(number // 40)},
        "unique": {"id": number - 200},
        "invisible": {"id": number},
        "unique_words": {"id": word, "shop": number % 3},
    }
    return keys[name]


def _change(cursor: Any, name: str, chance: random.Random) -> None:
    key = _key(name, chance)
    where = " AND ".join(f"{column} = %s" for column in key)
    kind = chance.random()
    if kind < 0.45:
        columns = ", ".join(key)
        marks = ", ".join(["%s"] * len(key))
        cursor.execute(
            f"INSERT INTO t ({columns}, v) VALUES ({marks}, %s) "
            "ON DUPLICATE KEY UPDATE v = VALUES(v)",
            [*key.values(), chance.randrange(1000)],
        )
    elif kind < 0.65:
        cursor.execute(f"UPDATE t SET v = v + 1 WHERE {where}", list(key.values()))
    elif kind < 0.8:
        new = _key(name, chance)
        assign = ", ".join(f"{column} = %s" for column in new)
        with contextlib.suppress(pymysql.err.IntegrityError):
            cursor.execute(f"UPDATE t SET {assign} WHERE {where}", [*new.values(), *key.values()])
    else:
        cursor.execute(f"DELETE FROM t WHERE {where}", list(key.values()))


class Writer:
    """Changes the table in random transactions until stopped."""

    def __init__(self, database: Database, name: str, seed: int) -> None:
        self._database, self._name, self._seed = database, name, seed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.transactions = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        chance = random.Random(self._seed)
        connection = self._database.server.connect(self._database.name)
        connection.autocommit(False)
        connection.query("SET sql_mode = ''")
        try:
            while not self._stop.is_set():
                with connection.cursor() as cursor:
                    for _ in range(chance.randrange(1, 6)):
                        _change(cursor, self._name, chance)
                if chance.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()
                self.transactions += 1
                if chance.random() < 0.02:
                    self._database.server.execute("FLUSH BINARY LOGS")
                self._stop.wait(chance.random() * 0.004)
        finally:
            connection.close()


def _held(source: MySqlSource, key: list[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The whole table, by a fresh snapshot of a table at rest."""
    _, rows = catch_up(source, source.initial_offset())
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    apply(state, rows, key)
    return state


@pytest.mark.parametrize(
    ("name", "relayed"),
    [
        pytest.param(
            name,
            relayed,
            id=f"{name}-{'relayed' if relayed else 'alone'}",
            marks=pytest.mark.soak if relayed and name not in RELAYED else (),
        )
        for name in TABLES
        for relayed in (False, True)
    ],
)
def test_the_changes_rebuild_a_table_that_changes_all_the_while(
    database: Database, tmp_path: Path, name: str, relayed: bool
) -> None:
    create, key = TABLES[name]
    chance = random.Random(name)
    database.run(create)
    connection = database.server.connect(database.name)
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for _ in range(600):
            _change(cursor, name, chance)
    connection.close()
    options = {"scan.incremental.snapshot.chunk.size": "7"}
    relay = tmp_path if relayed else None
    if relayed:
        # So small that what is still needed is dropped now and then.
        database.relay(tmp_path, "t", most_bytes=20_000)
    source = database.source("t", options=options, relay=relay)
    offset = source.initial_offset()
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    snapshot_steps = 0
    with Writer(database, name, seed=chance.randrange(1000)) as writer:
        rounds = 0
        while rounds < 30 or writer.transactions <= 10:
            rounds += 1
            if chance.random() < 0.2:
                source = database.source("t", options=options, relay=relay)
            end = source.latest_offset(offset, chance.choice([5, 20, 40]))
            if end == offset:
                continue
            snapshot_steps += "snapshot" in end
            rows = rows_of(source, offset, end, chance.choice([1, 3]))
            if chance.random() < 0.3:
                again = database.source("t", options=options, relay=relay)
                copy = pickle.loads(pickle.dumps(again))
                parts = again.partitions(offset, end)
                replay = [
                    row for one in parts for batch in copy.read(one) for row in batch.to_pylist()
                ]
                assert _sorted(replay) == _sorted(rows), "a replay gave other rows"
            apply(state, rows, key)
            offset = end
    offset, rows = catch_up(source, offset)
    apply(state, rows, key)
    assert snapshot_steps > 3
    expected = _held(database.source("t"), key)
    assert expected
    assert state == expected


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    """Chunks may be cut elsewhere on a replay, so rows of a snapshot can stand in another order."""
    return sorted(str(sorted(row.items())) for row in rows)


def test_a_new_source_reads_on_from_a_saved_offset(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)"
    )
    source = database.source("t")
    offset, rows = catch_up(source, source.initial_offset())
    assert [row["id"] for row in rows] == [1, 2]
    source.close()
    database.run(
        "UPDATE t SET v = 5 WHERE id = 2", "FLUSH BINARY LOGS", "DELETE FROM t WHERE id = 1"
    )
    database.run("UPDATE t SET id = 9 WHERE id = 2", "INSERT INTO t VALUES (3, NULL)")
    offset, rows = catch_up(database.source("t"), offset)
    assert [(row[ROW_KIND], row["id"], row["v"]) for row in rows] == [
        ("-U", 2, 2),
        ("+U", 2, 5),
        ("-D", 1, 1),
        ("-D", 2, 5),
        ("+I", 9, 5),
        ("+I", 3, None),
    ]


def test_other_tables_and_rolled_back_work_do_not_show(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE tt (id INT PRIMARY KEY)")
    source = database.source("t", options={"scan.startup.mode": "latest-offset"})
    offset, _ = catch_up(source, source.initial_offset())
    database.run("INSERT INTO tt VALUES (1)", "BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK")
    database.run("CREATE TABLE other (t INT)", "DROP TABLE other", "TRUNCATE tt")
    offset, rows = catch_up(source, offset)
    assert rows == []
    database.run("INSERT INTO t VALUES (4)")
    assert [row["id"] for row in catch_up(source, offset)[1]] == [4]


@pytest.fixture
def own_server(installed: Installed, tmp_path: Path) -> Iterator[MariaDB]:
    with Server(installed(tmp_path / "own")) as server:
        yield server


@pytest.mark.parametrize("crash", [False, True], ids=["restart", "crash"])
def test_the_stream_continues_after_a_server_outage(own_server: MariaDB, crash: bool) -> None:
    database = Database(own_server)
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    database.run("INSERT INTO t VALUES (2)")
    offset, rows = catch_up(source, offset)
    assert [row["id"] for row in rows] == [2]
    database.run("INSERT INTO t VALUES (3)")
    own_server.kill() if crash else own_server.stop()
    back = threading.Timer(0.5, own_server.start)
    back.start()
    offset, rows = catch_up(source, offset)
    assert [row["id"] for row in rows] == [3]
    back.join(DEADLINE_S)
    database.run("INSERT INTO t VALUES (4)")
    assert [row["id"] for row in catch_up(source, offset)[1]] == [4]
    database.close()


def test_a_purged_binlog_is_data_loss(own_server: MariaDB) -> None:
    database = Database(own_server)
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    database.run("INSERT INTO t VALUES (1)")
    end = source.latest_offset(offset)
    source.close()
    own_server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    database.purge()
    with pytest.raises(DataLossError, match=r"binlog.000001.*the oldest file is binlog.000003"):
        source.latest_offset(offset)
    with pytest.raises(DataLossError, match="has removed the binlog file"):
        rows_of(source, offset, end)
    own_server.execute("RESET MASTER")
    later = offset | {"file": "binlog.000009", "pos": 4}
    with pytest.raises(DataLossError, match="it was reset"):
        source.latest_offset(later)
    database.close()


def test_startup_modes(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    file, pos, *_ = database.run("SHOW MASTER STATUS")[0]
    database.run("INSERT INTO t VALUES (2)")

    def ids(**options: str) -> list[int]:
        source = database.source("t", options=options)
        return [row["id"] for row in catch_up(source, source.initial_offset())[1]]

    mode = "scan.startup.mode"
    assert ids() == [1, 2]
    assert ids(**{mode: "latest-offset"}) == []
    specific = "scan.startup.specific-offset"
    place = {f"{specific}.file": file, f"{specific}.pos": str(pos)}
    assert ids(**{mode: "specific-offset"}, **place) == [2]
    bounded = database.source("t", options={mode: "snapshot"})
    end, rows = catch_up(bounded, bounded.initial_offset())
    assert bounded.finished(end) and not bounded.finished(bounded.initial_offset())
    database.run("INSERT INTO t VALUES (3)")
    assert bounded.latest_offset(end) == end


def test_undeclared_columns_may_be_added_and_dropped(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
    source = database.source("t", [Column("b", "INT"), Column("id", "BIGINT")])
    offset, _ = catch_up(source, source.initial_offset())
    database.run(
        "INSERT INTO t VALUES (1, 2, 3)",
        "ALTER TABLE t ADD COLUMN c VARCHAR(500) FIRST, DROP COLUMN a",
        "INSERT INTO t VALUES ('c', 2, 4)",
    )
    offset, rows = catch_up(source, offset)
    assert [(row["id"], row["b"]) for row in rows] == [(1, 3), (2, 4)]
    database.run("ALTER TABLE t MODIFY b VARCHAR(9)", "INSERT INTO t VALUES ('c', 3, '5')")
    with pytest.raises(SchemaChangeError, match="column 'b' is int.*it was altered"):
        catch_up(source, offset)


_NARROW = (
    "n INT, d DECIMAL(8,2), s VARCHAR(20) CHARACTER SET latin1, f FLOAT, m DATETIME, b VARBINARY(2)"
)
_WIDE = """MODIFY n BIGINT, MODIFY d DECIMAL(12,4), MODIFY s TEXT CHARACTER SET utf8mb4,
    MODIFY f DOUBLE, MODIFY m DATETIME(3), MODIFY b VARBINARY(4)"""


def test_columns_that_are_widened_within_the_declared_types(database: Database) -> None:
    database.run(f"CREATE TABLE t (id SMALLINT PRIMARY KEY, {_NARROW})")
    types = {"n": "BIGINT", "d": "DECIMAL(12, 4)", "s": "STRING", "f": "DOUBLE"}
    columns = [
        Column("id", "INT"),
        *(Column(name, type) for name, type in types.items()),
        Column("m", "TIMESTAMP(3)"),
        Column("b", "BYTES"),
    ]
    source = database.source("t", columns)
    offset, _ = catch_up(source, source.initial_offset())
    database.run(
        "INSERT INTO t VALUES (1, 2, 3.25, 'é', 0.5, '2024-01-01', 'ab')",
        f"ALTER TABLE t MODIFY id INT, {_WIDE}",
        "INSERT INTO t VALUES "
        "(70000, 5000000000, 1.2345, 'é€', 0.1, '2024-01-01 00:00:00.125', 'c')",
    )
    offset, rows = catch_up(source, offset)
    expected = catch_up(fresh := database.source("t", columns), fresh.initial_offset())[1]
    assert [row["n"] for row in expected] == [2, 5_000_000_000]
    assert rows[1] == expected[1]
    assert rows[0] == expected[0]
    database.run("INSERT INTO t VALUES (3, 3, 12345678.1, '', 0, NULL, '')")
    assert len(catch_up(source, offset)[1]) == 1
    narrow = database.source("t", [Column("id", "INT"), Column("n", "INT")])
    with pytest.raises(TableError, match="'n'.*does not fit its declared type"):
        catch_up(narrow, narrow.initial_offset())


@pytest.mark.parametrize("statement", ["RENAME COLUMN v TO w", "DROP COLUMN v, ADD COLUMN w INT"])
def test_a_query_resumes_with_the_current_columns(
    database: Database, tmp_path: Path, statement: str
) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    database.relay(tmp_path, "t")
    source = database.source("t", [Column("id", "INT"), Column("v", "INT")], relay=tmp_path)
    offset, _ = catch_up(source, source.initial_offset())
    database.run(
        "INSERT INTO t VALUES (1, 10)", f"ALTER TABLE t {statement}", "INSERT INTO t VALUES (2, 20)"
    )
    seen: list[Any] = []
    with pytest.raises(
        SchemaChangeError, match="no column 'v'.*id, w.*the table's current columns"
    ):
        while True:
            end = source.latest_offset(offset)
            rows = rows_of(source, offset, end)
            seen += rows
            offset = end
    assert [(row["id"], row["v"]) for row in seen] == [(1, 10)]
    after = database.source("t", [Column("id", "INT"), Column("w", "INT")], relay=tmp_path)
    assert [(row["id"], row["w"]) for row in catch_up(after, offset)[1]] == [(2, 20)]


@pytest.mark.parametrize(
    "statement", ["TRUNCATE TABLE t", "DROP TABLE t", "RENAME TABLE t TO u", "TRUNCATE `{db}`.`t`"]
)
def test_a_statement_without_row_events_stops_the_stream(
    database: Database, statement: str
) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    database.run(statement.format(db=database.name))
    with pytest.raises(SchemaChangeError, match="start again with a new checkpoint"):
        catch_up(source, offset)


def test_changes_logged_as_statements_are_data_loss(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    database.run("SET SESSION binlog_format = STATEMENT", "INSERT INTO t VALUES (1)")
    with pytest.raises(DataLossError, match="logged as a statement"):
        catch_up(source, offset)


def test_a_large_range_is_bounded_between_transactions(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (0, 0)")
    source = database.source("t")
    offset, _ = catch_up(source, source.initial_offset())
    connection = database.server.connect(database.name)
    with connection.cursor() as cursor:
        for number in range(1, 301):
            cursor.execute("INSERT INTO t VALUES (%s, 0), (%s, 0)", (2 * number, 2 * number + 1))
            if number == 150:
                cursor.execute("FLUSH BINARY LOGS")
    connection.close()
    sizes = []
    ids: list[int] = []
    while (end := source.latest_offset(offset, 1)) != offset:
        rows = rows_of(source, offset, end)
        sizes.append(len(rows))
        ids += [row["id"] for row in rows]
        offset = end
    assert ids == list(range(2, 602))
    assert max(sizes) == 2 and all(size % 2 == 0 for size in sizes)


def test_a_source_that_does_not_plan_keeps_no_connection(database: Database) -> None:
    """Each task opens one, with which it only reads."""
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    planning = database.source("t")
    start = planning.initial_offset()
    (partition,) = planning.partitions(start, planning.latest_offset(start))
    planning.close()
    own = f"SELECT id FROM information_schema.processlist WHERE user = '{USER}'"
    before = {*database.run(own)}
    reading = database.source("t")
    until(lambda: {*database.run(own)} <= before)
    assert sum(rows.num_rows for rows in reading.read(partition)) == 2
    until(lambda: {*database.run(own)} <= before)
