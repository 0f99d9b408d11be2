"""Several tables that regular expressions name, read as one stream."""

from __future__ import annotations

import json
import pickle
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.mysql.history import Database, apply, catch_up, rows_of
from tests.waiting import looks

from streamhouse.connectors.mysql_cdc.source import MySqlSource, followed_tables
from streamhouse.errors import DataLossError, TableError
from streamhouse.mysql.options import parse
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column

COLUMNS = (
    Column("id", "INT"),
    Column("v", "STRING"),
    Column("of", "STRING", metadata="table_name"),
)


class Opened:
    """Opens sources over a database's tables, and closes them."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self.folder = database, folder
        self._all: list[MySqlSource] = []

    def __call__(
        self,
        table: str,
        columns: Sequence[Column] | None = COLUMNS,
        relay: Path | None = None,
        options: dict[str, str] | None = None,
    ) -> MySqlSource:
        given = self.database.options(table) | (options or {})
        source = MySqlSource(given, columns, relay)
        self._all.append(source)
        return source

    def close(self) -> None:
        for source in self._all:
            source.close()


@pytest.fixture
def opened(database: Database, tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(database, tmp_path)
    yield opened
    opened.close()


def create(database: Database, *names: str) -> None:
    for name in names:
        database.run(f"CREATE TABLE `{name}` (id INT PRIMARY KEY, v VARCHAR(20))")


def brief(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row[ROW_KIND], row["id"], row["v"], row["of"]) for row in rows]


def test_a_pickled_source_reads_partitions(database: Database, opened: Opened) -> None:
    """Spark sends a stream's source to executors while the driver uses its connections."""
    create(database, "t_1", "t_2")
    database.run("INSERT INTO t_1 VALUES (1, 'a')", "INSERT INTO t_2 VALUES (2, 'b')")
    source = opened(r"t_\d")
    start, _ = catch_up(source, source.initial_offset())
    database.run("UPDATE t_1 SET v = 'A'", "DELETE FROM t_2")
    end = source.latest_offset(start)
    copy = pickle.loads(pickle.dumps(source))
    parts = source.partitions(start, end)
    rows = [row for part in parts for batch in copy.read(part) for row in batch.to_pylist()]
    assert brief(rows) == [
        ("-U", 1, "a", "t_1"),
        ("+U", 1, "A", "t_1"),
        ("-D", 2, "b", "t_2"),
    ]


@pytest.mark.parametrize("relayed", [False, True])
def test_tables_are_read_as_one_in_the_order_of_their_changes(
    database: Database, opened: Opened, tmp_path: Path, relayed: bool
) -> None:
    create(database, "orders_1", "orders_2", "orders", "old_orders_3")
    database.run("CREATE VIEW orders_9 AS SELECT * FROM orders")
    database.run("INSERT INTO orders_1 VALUES (1, 'a')", "INSERT INTO orders_2 VALUES (2, 'b')")
    if relayed:
        database.relay(tmp_path, "orders_1", "orders_2")
    source = opened(r"ORDERS_\d+", relay=tmp_path if relayed else None)
    offset, rows = catch_up(source, source.initial_offset())
    assert sorted(brief(rows)) == [("+I", 1, "a", "orders_1"), ("+I", 2, "b", "orders_2")]
    database.run(
        "DELETE FROM orders_2 WHERE id = 2",
        "INSERT INTO orders_1 VALUES (2, 'moved')",
        "UPDATE orders_1 SET v = 'A' WHERE id = 1",
        "INSERT INTO orders_2 VALUES (3, 'c')",
        "INSERT INTO old_orders_3 VALUES (4, 'd')",
    )
    offset = json.loads(json.dumps(offset))
    again = opened(r"ORDERS_\d+", relay=tmp_path if relayed else None)
    offset, rows = catch_up(again, offset)
    assert brief(rows) == [
        ("-D", 2, "b", "orders_2"),
        ("+I", 2, "moved", "orders_1"),
        ("-U", 1, "a", "orders_1"),
        ("+U", 1, "A", "orders_1"),
        ("+I", 3, "c", "orders_2"),
    ]
    assert again.latest_offset(offset) == offset


def test_expressions_of_databases(database: Database, opened: Opened) -> None:
    other = Database(database.server)
    for one in (database, other):
        one.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
        one.run(f"INSERT INTO t VALUES ({len(one.name)}, '{one.name}')")
    names = f"({database.name}|{other.name})"
    columns = (Column("v", "STRING"), Column("db", "STRING", metadata="database_name"))
    source = opened("t", columns, options={"database-name": names})
    _, rows = catch_up(source, source.initial_offset())
    assert {(row["v"], row["db"]) for row in rows} == {(one.name,) * 2 for one in (database, other)}
    other.close()


@pytest.mark.parametrize("name", ["a.b", "t%", "t$1", "x+", "p(1)", "a|b", "w?"])
def test_names_that_a_table_has_are_that_table(
    database: Database, opened: Opened, name: str
) -> None:
    create(database, name, "aXb", "a", "b", "xx", "p1", "w")
    database.run(f"INSERT INTO `{name}` VALUES (1, 'a')", "INSERT INTO aXb VALUES (2, 'b')")
    source = opened(name)
    offset, rows = catch_up(source, source.initial_offset())
    assert brief(rows) == [("+I", 1, "a", name)]
    database.run(f"UPDATE `{name}` SET v = 'c'", "DELETE FROM aXb")
    _, rows = catch_up(source, offset)
    assert brief(rows) == [("-U", 1, "a", name), ("+U", 1, "c", name)]


def test_a_table_without_a_column_that_is_not_null_is_named(
    database: Database, opened: Opened
) -> None:
    create(database, "s_1", "s_2")
    database.run("CREATE TABLE s_3 (id INT PRIMARY KEY, w VARCHAR(20))")
    source = opened("s_.*", (Column("id", "INT"), Column("v", "STRING", nullable=False)))
    with pytest.raises(TableError, match=rf"{database.name}\.s_3 has no column 'v'.*'v'|w"):
        source.check_start()
    with pytest.raises(TableError, match=r"s_3 has no column 'v'"):
        source.latest_offset(source.initial_offset())
    narrow = opened("s_[12]")
    narrow.latest_offset(narrow.initial_offset())


def test_undeclared_columns_must_be_the_same(database: Database, opened: Opened) -> None:
    create(database, "s_1", "s_2")
    database.run("ALTER TABLE s_2 ADD COLUMN w INT")
    source = opened("s_.*", None)
    with pytest.raises(TableError, match="s_2 has other columns than .*s_1.*w \\(int32\\)"):
        source.latest_offset(source.initial_offset())


def test_expressions_that_match_nothing(database: Database, opened: Opened) -> None:
    create(database, "s_1")
    with pytest.raises(
        TableError, match="no table 'q_.*' in .*whole name matches as a regular expression"
    ):
        opened("q_.*")
    with pytest.raises(TableError, match="has no database that matches 'nowhere_.*'"):
        opened("s_1", options={"database-name": "nowhere_.*"})


@pytest.mark.parametrize("mode", ["latest-offset", "earliest-offset", "snapshot"])
def test_startup_modes(own_database: Database, tmp_path: Path, mode: str) -> None:
    database, opened = own_database, Opened(own_database, tmp_path)
    create(database, "s_1", "s_2")
    database.run("INSERT INTO s_1 VALUES (1, 'a')", "INSERT INTO s_2 VALUES (2, 'b')")
    source = opened("s_.", options={"scan.startup.mode": mode})
    offset = source.latest_offset(source.initial_offset())
    database.run("DELETE FROM s_1")
    if mode == "snapshot":
        rows = rows_of(source, source.initial_offset(), offset)
        while not source.finished(offset):
            end = source.latest_offset(offset)
            rows += rows_of(source, offset, end)
            offset = end
        assert {row["v"] for row in rows} <= {"a", "b"}
        assert source.latest_offset(offset) == offset
    else:
        _, rows = catch_up(source, offset)
        before = [("+I", 1, "a", "s_1"), ("+I", 2, "b", "s_2")]
        deleted = [("-D", 1, "a", "s_1")]
        assert brief(rows) == (deleted if mode == "latest-offset" else before + deleted)
    opened.close()


@pytest.mark.parametrize("table", ["s_1", "s_."])
@pytest.mark.parametrize("mode", ["initial", "latest-offset"])
def test_the_whole_table_has_all_rows_in_any_startup_mode(
    database: Database, opened: Opened, mode: str, table: str
) -> None:
    create(database, "s_1")
    database.run("INSERT INTO s_1 VALUES (1, 'a'), (2, 'b')")
    source = opened(table, options={"scan.startup.mode": mode})
    parts = source.whole_table(2)
    rows = [row for part in parts for batch in source.read(part) for row in batch.to_pylist()]
    assert brief(rows) == [("+I", 1, "a", "s_1"), ("+I", 2, "b", "s_1")]


def test_new_tables_are_read_if_requested(
    database: Database, opened: Opened, tmp_path: Path
) -> None:
    enabled = {"scan.newly-added-table.enabled": "true"}
    create(database, "n_1")
    database.run("INSERT INTO n_1 VALUES (1, 'a')")
    database.relay(tmp_path, "n_1")
    source = opened("n_.", relay=tmp_path, options=enabled)
    offset, _ = catch_up(source, source.initial_offset())
    create(database, "n_2")
    database.run("INSERT INTO n_2 VALUES (2, 'b')", "UPDATE n_1 SET v = 'c'")
    closed = opened("n_.", relay=tmp_path)
    closed.check(offset)
    _, rows = catch_up(closed, offset)
    assert brief(rows) == [("-U", 1, "a", "n_1"), ("+U", 1, "c", "n_1")]
    # While it runs.
    rows = []
    for _ in looks():
        end = source.latest_offset(offset)
        rows += rows_of(source, offset, end)
        offset = end
        if len(rows) >= 3:
            break
    assert brief(rows) == [
        ("-U", 1, "a", "n_1"),
        ("+U", 1, "c", "n_1"),
        ("+I", 2, "b", "n_2"),
    ]
    database.run("UPDATE n_2 SET v = 'd'", "DELETE FROM n_1")
    offset, rows = catch_up(source, offset)
    assert brief(rows) == [
        ("-U", 2, "b", "n_2"),
        ("+U", 2, "d", "n_2"),
        ("-D", 1, "c", "n_1"),
    ]
    names = followed_tables(parse(database.options("n_.")), offset)
    assert [name for _, name in names] == ["n_1", "n_2"]


def test_tables_that_are_missing_later(database: Database, opened: Opened) -> None:
    create(database, "m_1", "m_2", "m_3")
    source = opened("m_.")
    offset, _ = catch_up(source, source.initial_offset())
    narrow = opened("m_[12]")
    narrow.check(offset)
    database.run("INSERT INTO m_1 VALUES (1, 'a')", "INSERT INTO m_3 VALUES (3, 'a')")
    end, rows = catch_up(narrow, offset)
    assert brief(rows) == [("+I", 1, "a", "m_1")]
    database.run("DROP TABLE m_2")
    with pytest.raises(TableError, match=r"m_2, which .*m_\[12\] has read so far, is missing"):
        opened("m_[12]").check(end)


def test_offsets_of_one_table_are_not_those_of_several(database: Database, opened: Opened) -> None:
    create(database, "o_1")
    one, several = opened("o_1"), opened("o_.")
    offset, _ = catch_up(one, one.initial_offset())
    with pytest.raises(DataLossError, match="one table"):
        several.latest_offset(offset)
    offset, _ = catch_up(several, several.initial_offset())
    with pytest.raises(DataLossError, match="several tables"):
        one.latest_offset(offset)


@pytest.mark.parametrize("relayed", [False, True])
def test_random_moves_between_tables(
    database: Database, opened: Opened, tmp_path: Path, relayed: bool
) -> None:
    """A key is in one table at a time, and moves while the snapshots are read."""
    names = [f"r_{number}" for number in range(4)]
    create(database, *names)
    chance = random.Random(5)
    where = {id: chance.choice(names) for id in range(400)}
    database.run(*(f"INSERT INTO {name} VALUES ({id}, 'x')" for id, name in where.items()))
    if relayed:
        database.relay(tmp_path, *names)
    stopped = threading.Event()

    def move() -> None:
        while not stopped.is_set():
            id, to = chance.randrange(400), chance.choice(names)
            if where[id] == to:
                continue
            old = where[id]
            database.run(
                "BEGIN", f"DELETE FROM {old} WHERE id = {id}",
                f"INSERT INTO {to} VALUES ({id}, '{chance.random():.6f}')", "COMMIT",
            )  # fmt: skip
            where[id] = to

    mover = threading.Thread(target=move)
    mover.start()
    try:
        state: dict[tuple[Any, ...], dict[str, Any]] = {}
        options = {"scan.incremental.snapshot.chunk.size": "7"}
        source = opened("r_.", relay=tmp_path if relayed else None, options=options)
        offset = source.initial_offset()
        for step in range(60):
            end = source.latest_offset(offset, 40)
            apply(state, rows_of(source, offset, end, 2), ["id"])
            offset = json.loads(json.dumps(end))
            if step % 20 == 10:
                source = opened("r_.", relay=tmp_path if relayed else None, options=options)
    finally:
        stopped.set()
        mover.join()
    offset, rows = catch_up(source, offset)
    apply(state, rows, ["id"])
    wanted = {(id, v, name) for name in names for id, v in database.run(f"SELECT * FROM {name}")}
    assert {(row["id"], row["v"], row["of"]) for row in state.values()} == wanted


def test_columns_that_a_table_lacks_are_null(database: Database) -> None:
    database.run(
        "CREATE TABLE user_1 (id BIGINT PRIMARY KEY, name VARCHAR(9), email VARCHAR(20))",
        "CREATE TABLE user_2 (name VARCHAR(9), id BIGINT PRIMARY KEY)",
        "CREATE TABLE user_3 (id BIGINT PRIMARY KEY, age INT, name VARCHAR(9))",
        "INSERT INTO user_1 VALUES (1, 'a', 'a@x')",
        "INSERT INTO user_2 VALUES ('b', 2)",
        "INSERT INTO user_3 VALUES (3, 18, 'c')",
    )
    names = ["id", "name", "email", "age", "of"]
    columns = [
        Column("id", "DECIMAL(20, 0)"), Column("name", "STRING"), Column("email", "STRING"),
        Column("age", "INT"), Column("of", "STRING", metadata="table_name"),
    ]  # fmt: skip
    source = MySqlSource(database.options("user_.*"), columns)
    assert source.schema.names == names
    offset, rows = catch_up(source, source.initial_offset())
    first = sorted(tuple(row[name] for name in names) for row in rows)
    assert [(int(row[0]), *row[1:]) for row in first] == [
        (1, "a", "a@x", None, "user_1"), (2, "b", None, None, "user_2"),
        (3, "c", None, 18, "user_3"),
    ]  # fmt: skip
    database.run(
        "UPDATE user_1 SET email = 'b@x'", "UPDATE user_3 SET age = 20", "DELETE FROM user_2"
    )
    _, rows = catch_up(source, offset)
    assert [(row[ROW_KIND], int(row["id"]), row["email"], row["age"]) for row in rows] == [
        ("-U", 1, "a@x", None), ("+U", 1, "b@x", None), ("-U", 3, None, 18), ("+U", 3, None, 20),
        ("-D", 2, None, None),
    ]  # fmt: skip
    source.close()
    with pytest.raises(TableError, match="has no column 'agee'; did you mean 'age'|has no column"):
        MySqlSource(database.options("user_.*"), [Column("id", "INT"), Column("agee", "INT")])


def test_shards_with_zero_dates_as_keys(database: Database, tmp_path: Path) -> None:
    session = "SET sql_mode = 'ALLOW_INVALID_DATES'"
    for name in ("z_1", "z_2"):
        database.run(
            session,
            f"CREATE TABLE {name} (k DATE NOT NULL, v VARCHAR(9), PRIMARY KEY (k))",
            f"INSERT INTO {name} VALUES (0, 'a'), ('2024-01-01', 'b')",
        )
    of = Column("of", "STRING", metadata="table_name")
    round_ = {"jdbc.properties.zeroDateTimeBehavior": "ROUND"}
    options = {"scan.incremental.snapshot.chunk.size": "1"}
    opened = Opened(database, tmp_path)
    rounded = opened("z_.", (Column("k", "DATE"), of), options=options | round_)
    texts = opened("z_.", (Column("k", "STRING"), of), options=options)
    starts = [catch_up(source, source.initial_offset()) for source in (rounded, texts)]
    keys = [sorted(str(row["k"]) for row in rows) for _, rows in starts]
    assert keys == [
        ["0001-01-01"] * 2 + ["2024-01-01"] * 2,
        ["0000-00-00"] * 2 + ["2024-01-01"] * 2,
    ]
    database.run(
        session, "UPDATE z_1 SET k = '2024-05-05' WHERE k = 0", "DELETE FROM z_2 WHERE k = 0"
    )
    for source, (start, _), zero in zip((rounded, texts), starts, ("0001", "0000"), strict=True):
        rows = [(row[ROW_KIND], str(row["k"]), row["of"]) for row in catch_up(source, start)[1]]
        assert sorted(rows) == [
            ("+I", "2024-05-05", "z_1"),
            ("-D", f"{zero}-{'00-00' if zero == '0000' else '01-01'}", "z_1"),
            ("-D", f"{zero}-{'00-00' if zero == '0000' else '01-01'}", "z_2"),
        ]
        source.close()
