"""Schema changes of MySQL that a sync follows while it runs."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.mysql.schema_changes import (
    KEPT,
    Altering,
    FewNames,
    SchemaChanges,
    check,
    mysql_rows,
    paimon_rows,
    replayed,
)
from tests.integration.runtime.conftest import Run
from tests.integration.runtime.test_sync import Sync, fresh, mysql_conf

from streamhouse.demo.mariadb import MariaDB
from streamhouse.runtime.streaming.query import QueryFailed
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn


@pytest.fixture
def evolving(mariadb: MariaDB, tmp_path: Path, in_threads: None) -> Sync:
    return Sync(mariadb, tmp_path)


def same(sync: Sync, mysql: str, paimon: str) -> bool:
    return paimon_rows(sync.warehouse, paimon) == mysql_rows(sync.server, mysql)


def counts(sync: Sync, table: str, count: int) -> bool:
    return len(paimon_rows(sync.warehouse, f"ods.{table}")) == count


ALTERS = [
    "ADD COLUMN extra VARCHAR(10)",
    "ADD COLUMN first_one INT DEFAULT 7 FIRST",
    "ADD COLUMN made DATETIME(3) NOT NULL DEFAULT '2024-01-31 12:00:00' AFTER id",
    "RENAME COLUMN name TO label",
    "CHANGE v amount BIGINT NOT NULL",
    "MODIFY extra VARCHAR(40) AFTER id",
    "MODIFY amount BIGINT FIRST",
    "DROP COLUMN first_one",
    "ADD COLUMN computed INT AS (id * 2) STORED",
    "ADD COLUMN a INT, DROP COLUMN extra, ADD COLUMN b DECIMAL(6,2) DEFAULT 1.5 AFTER label",
    "DROP COLUMN a, ADD COLUMN a INT DEFAULT 3",
    "CONVERT TO CHARACTER SET latin1",
    "RENAME COLUMN a TO c, ADD COLUMN a INT",
    "DROP COLUMN made, CHANGE c made2 INT",
    "ADD COLUMN seen TIMESTAMP DEFAULT CURRENT_TIMESTAMP",
    "DROP COLUMN computed",
    "MODIFY b DECIMAL(8,2) NULL",
    "ADD COLUMN label INT, RENAME COLUMN label TO text",
    "ADD COLUMN b INT DEFAULT 4, CHANGE b b2 DECIMAL(9,2)",
    "ADD COLUMN text VARCHAR(9), DROP COLUMN text",
]


def test_alters_are_followed_while_it_runs(evolving: Sync, mariadb: MariaDB) -> None:
    sync = evolving
    fresh(mariadb, "evolve_live")
    mariadb.execute(
        "CREATE TABLE evolve_live.t (id INT PRIMARY KEY, name VARCHAR(20), v INT NOT NULL)",
        "INSERT INTO evolve_live.t VALUES (1, 'a', 10), (2, 'b', 20), (3, NULL, 30)",
    )
    with sync.running("evolve_live", table_conf=KEPT) as until:
        until(lambda: sync.warehouse.exists("ods", "t"))
        until(lambda: same(sync, "evolve_live.t", "ods.t"))
        for number, alter in enumerate(ALTERS):
            mariadb.execute(f"ALTER TABLE evolve_live.t {alter}")
            v = "amount" if number >= 4 else "v"
            mariadb.execute(
                f"INSERT INTO evolve_live.t (id, {v}) VALUES ({100 + number}, {number})",
                f"UPDATE evolve_live.t SET {v} = {v} + 1 WHERE id = 1",
                f"DELETE FROM evolve_live.t WHERE id = {98 + number}",
            )
            if number % 2:
                until(lambda: same(sync, "evolve_live.t", "ods.t"))
        until(lambda: same(sync, "evolve_live.t", "ods.t"))
    there = mysql_rows(mariadb, "evolve_live.t")
    assert [column.name for column in sync.warehouse.table("ods.t").columns] == [*there[0]]
    assert replayed(sync.warehouse, "ods.t") == there


@pytest.mark.parametrize(
    ("seed", "pause_s"), [(1, 0.05), pytest.param(0, 0.3, marks=pytest.mark.soak)]
)
def test_random_schema_changes(evolving: Sync, mariadb: MariaDB, seed: int, pause_s: float) -> None:
    sync, name = evolving, f"evolve_random_{seed}"
    fresh(mariadb, name)
    changes = SchemaChanges(mariadb, name, random.Random(seed))
    with sync.running(name, table_conf=KEPT, excluding_tables="_.*") as until:
        until(lambda: sync.warehouse.exists("ods", "t2"))
        with Altering(changes, pause_s):
            until(lambda: len(changes.statements) > 150)
        for table in changes.tables:
            until(partial(same, sync, f"{name}.{table}", f"ods.{table}"))
    check(sync.warehouse, changes)


SWAP = [
    "ALTER TABLE t MODIFY s INT",
    "ALTER TABLE t ADD COLUMN n INT",
    "UPDATE t SET n = 5",
    "ALTER TABLE t RENAME COLUMN s TO n, RENAME COLUMN n TO s",
    "INSERT INTO t VALUES (9, 8, 7)",
]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 8))]
)
def test_columns_that_take_each_others_names(evolving: Sync, mariadb: MariaDB, seed: int) -> None:
    """Between two runs, many tables at once; the second time while it runs."""
    sync, name = evolving, f"evolve_names_{seed}"
    fresh(mariadb, name)
    changes = FewNames(mariadb, name, random.Random(seed), tables=6)
    changes.run(
        "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20))", "INSERT INTO t VALUES (1, '1')"
    )
    sync.database(name, table_conf=KEPT)
    changes.run(*SWAP)
    for _ in range(80):
        changes.step()
    sync.database(name, table_conf=KEPT)
    check(sync.warehouse, changes)
    assert same(sync, f"{name}.t", "ods.t")
    with sync.running(name, table_conf=KEPT) as until:
        with Altering(changes, 0.05):
            until(lambda: len(changes.statements) > 350)
        for table in changes.tables:
            until(partial(same, sync, f"{name}.{table}", f"ods.{table}"))
    check(sync.warehouse, changes)


def test_what_paimon_cannot_have_is_left_out(evolving: Sync, mariadb: MariaDB) -> None:
    sync, name = evolving, "evolve_odd"
    fresh(mariadb, name)
    for table, column in (("a", "v"), ("odd", "rowkind"), ("b", "v")):
        mariadb.execute(
            f"CREATE TABLE {name}.{table} (id INT PRIMARY KEY, {column} INT)",
            f"INSERT INTO {name}.{table} VALUES (1, 1)",
        )
    sync.database(name, table_conf=KEPT)
    assert sync.warehouse.tables("ods") == ["a", "b"]
    mariadb.execute(
        f"ALTER TABLE {name}.a ADD COLUMN _KEY_id INT, ADD COLUMN w INT",
        f"INSERT INTO {name}.a VALUES (2, 2, 2, 2)",
        f"CREATE TABLE {name}.new (id INT PRIMARY KEY, _LEVEL INT)",
        f"INSERT INTO {name}.b VALUES (3, 3)",
        f"ALTER TABLE {name}.a ADD COLUMN x INT DEFAULT 5",
        f"INSERT INTO {name}.a VALUES (4, 4, 4, 4, 4)",
    )
    sync.database(name, table_conf=KEPT)
    assert sync.warehouse.tables("ods") == ["a", "b"]
    assert same(sync, f"{name}.b", "ods.b")
    rows = [
        {k: v for k, v in row.items() if k != "_KEY_id"} for row in mysql_rows(mariadb, f"{name}.a")
    ]
    assert paimon_rows(sync.warehouse, "ods.a") == rows
    for text in ("odd: not followed, since table ods.odd: column 'rowkind'", "'_LEVEL': the name",
                 "left out: ods.a cannot have column '_KEY_id'"):  # fmt: skip
        assert any(text in notice for notice in sync.notices), (text, sync.notices)


GONE = [
    "TRUNCATE TABLE a",
    "INSERT INTO a VALUES (1, 1), (7, 7)",
    "DROP TABLE b",
    "CREATE TABLE b (id INT PRIMARY KEY, other VARCHAR(9))",
    "INSERT INTO b VALUES (1, 'x'), (5, 'y')",
    "RENAME TABLE c TO gone_c",
    "CREATE TABLE copy_d (id INT PRIMARY KEY, v INT, w INT)",
    "INSERT INTO copy_d VALUES (2, 2, 2), (3, 33, 3), (4, 4, 4)",
    "RENAME TABLE d TO old_d, copy_d TO d",
    "UPDATE d SET v = 34 WHERE id = 3",
    "ALTER TABLE e CHANGE v w BIGINT, ADD COLUMN at_ TIMESTAMP NOT NULL DEFAULT '2024-01-01'",
    "INSERT INTO e (id, w) VALUES (9, 9000000000)",
    "ALTER TABLE f DROP PARTITION p1",
    "DELETE FROM f WHERE id = 1",
]


def test_tables_that_are_emptied_dropped_and_swapped(evolving: Sync, mariadb: MariaDB) -> None:
    """First while it runs, then all of it between two runs."""
    sync = evolving
    for name in ("evolve_run", "evolve_rest"):
        fresh(mariadb, name)
        for table in "abcde":
            mariadb.execute(
                f"CREATE TABLE {name}.{table} (id INT PRIMARY KEY, v INT)",
                f"INSERT INTO {name}.{table} VALUES (1, 1), (2, 2), (3, 3)",
            )
        mariadb.execute(
            f"CREATE TABLE {name}.f (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
            " (PARTITION p0 VALUES LESS THAN (3), PARTITION p1 VALUES LESS THAN (9))",
            f"INSERT INTO {name}.f VALUES (1), (2), (3), (4)",
        )
    how = {"table_conf": KEPT, "excluding_tables": "copy_.*|old_.*|gone_.*"}
    sync.database("evolve_rest", table_prefix="rest_", name="rest", **how)
    with sync.running("evolve_run", **how) as until:
        until(lambda: sync.warehouse.exists("ods", "f"))
        until(lambda: same(sync, "evolve_run.f", "ods.f"))
        for statement in GONE:
            mariadb.execute(statement, database="evolve_run")
            mariadb.execute(statement, database="evolve_rest")
            if statement.startswith(("DROP", "RENAME TABLE d", "TRUNCATE")):
                table = "d" if "copy_d" in statement else "a"
                until(partial(same, sync, f"evolve_run.{table}", f"ods.{table}"))
        for table in "abdef":
            until(partial(same, sync, f"evolve_run.{table}", f"ods.{table}"))
        until(lambda: paimon_rows(sync.warehouse, "ods.c") == [])
        mariadb.execute("RENAME TABLE gone_c TO c", database="evolve_run")
        until(partial(same, sync, "evolve_run.c", "ods.c"))
    sync.database("evolve_rest", table_prefix="rest_", name="rest", **how)
    for prefix, name in (("", "evolve_run"), ("rest_", "evolve_rest")):
        for table in "abdef":
            there = mysql_rows(mariadb, f"{name}.{table}")
            assert paimon_rows(sync.warehouse, f"ods.{prefix}{table}") == there
            assert replayed(sync.warehouse, f"ods.{prefix}{table}") == there
    assert replayed(sync.warehouse, "ods.rest_c") == []
    ids = {
        name: [field["id"] for field in sync.warehouse.table(f"ods.{name}").schema["fields"]]
        for name in ("e", "rest_e")
    }
    assert ids == {"e": [0, 1, 2], "rest_e": [0, 1, 2]}  # 'v' was renamed


def test_shards_change_one_by_one(evolving: Sync, mariadb: MariaDB) -> None:
    sync = evolving
    fresh(mariadb, "evolve_s1", "evolve_s2")
    for number in (1, 2):
        mariadb.execute(
            f"CREATE TABLE evolve_s{number}.t (id INT PRIMARY KEY, v SMALLINT NOT NULL, x INT)",
            f"INSERT INTO evolve_s{number}.t VALUES ({number}, 1, 1), ({number + 10}, 2, 2)",
        )

    def follow(**how: Any) -> list[dict[str, Any]]:
        sync.database(r"evolve_s\d", table_conf=KEPT, metadata_column=["database_name"], **how)
        rows = paimon_rows(sync.warehouse, "ods.t")
        assert rows == replayed(sync.warehouse, "ods.t")
        return [{key: one for key, one in row.items() if one is not None} for row in rows]

    follow()
    mariadb.execute(
        "ALTER TABLE evolve_s1.t MODIFY v BIGINT NOT NULL, ADD COLUMN extra INT DEFAULT 4",
        "INSERT INTO evolve_s1.t VALUES (3, 5000000000, 3, 3)",
        "ALTER TABLE evolve_s2.t RENAME COLUMN x TO y",
        "DELETE FROM evolve_s2.t WHERE id = 2",
        "ALTER TABLE evolve_s1.t DROP COLUMN x",
    )
    one, two = {"database_name": "evolve_s1"}, {"database_name": "evolve_s2"}
    assert follow() == [
        {"id": 1, "v": 1, "extra": 4, **one}, {"id": 11, "v": 2, "extra": 4, **one},
        {"id": 12, "v": 2, "y": 2, **two}, {"id": 3, "v": 5000000000, "extra": 3, **one},
    ]  # fmt: skip
    names = [column.name for column in sync.warehouse.table("ods.t").columns]
    assert sorted(names) == ["database_name", "extra", "id", "v", "y"]
    fresh(mariadb, "evolve_s3")
    mariadb.execute(
        "CREATE TABLE evolve_s3.t (id INT PRIMARY KEY, z DATE)",
        "INSERT INTO evolve_s3.t VALUES (30, '2024-02-29')",
        "TRUNCATE evolve_s1.t",
    )
    assert [row["id"] for row in follow()] == [12, 30]
    mariadb.execute("DROP DATABASE evolve_s3", "INSERT INTO evolve_s1.t VALUES (1, 9, NULL)")
    assert [row["id"] for row in follow()] == [1, 12]


HISTORY = [
    "ALTER TABLE t ADD COLUMN a INT DEFAULT 5 FIRST",
    "INSERT INTO t VALUES (50, 4, 40, 'four')",
    "ALTER TABLE t RENAME COLUMN v TO w",
    "ALTER TABLE t DROP COLUMN name",
    "INSERT INTO t VALUES (51, 5, 50)",
    "TRUNCATE TABLE t",
    "INSERT INTO t VALUES (52, 6, 60)",
    "DROP TABLE t",
]


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        (
            "lenient",
            [(1, 10, "one", 5, 10), (4, 40, "four", 50, 40), (5, None, None, 51, 50),
             (6, None, None, 52, 60)],
        ),
        ("ignore", [(1, 10, "one"), (4, 40, "four"), (5, None, None), (6, None, None)]),
    ],
)  # fmt: skip
def test_modes_that_lose_nothing(
    evolving: Sync, mariadb: MariaDB, mode: str, rows: list[Any]
) -> None:
    sync, database = evolving, f"evolve_{mode}"
    fresh(mariadb, database)
    mariadb.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT NOT NULL, name VARCHAR(9))",
        f"CREATE TABLE {database}.u (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.t VALUES (1, 10, 'one')",
    )
    with sync.running(database, table_conf=KEPT, schema_change_behavior=mode) as until:
        until(lambda: sync.warehouse.exists("ods", "t"))
        until(partial(counts, sync, "t", 1))
        count = 1
        for statement in HISTORY:
            mariadb.execute(statement, database=database)
            if statement.startswith("INSERT"):
                count += 1
                until(partial(counts, sync, "t", count))
        mariadb.execute(f"INSERT INTO {database}.u VALUES (1)")
        until(partial(counts, sync, "u", 1))
    found = [tuple(row.values()) for row in paimon_rows(sync.warehouse, "ods.t")]
    assert sorted(found) == rows


def test_modes_that_end_it(evolving: Sync, mariadb: MariaDB) -> None:
    sync = evolving
    fresh(mariadb, "evolve_ends")
    mariadb.execute(
        "CREATE TABLE evolve_ends.t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO evolve_ends.t VALUES (1, 1)",
    )
    sync.database("evolve_ends")
    mariadb.execute(
        "INSERT INTO evolve_ends.t VALUES (2, 2)",
        "ALTER TABLE evolve_ends.t ADD COLUMN w INT",
        "INSERT INTO evolve_ends.t VALUES (3, 3, 3)",
        "ALTER TABLE evolve_ends.t MODIFY v SMALLINT",
        "INSERT INTO evolve_ends.t VALUES (4, 4, 4)",
        "ALTER TABLE evolve_ends.t MODIFY v VARCHAR(9)",
    )
    with pytest.raises(QueryFailed, match="ods.t cannot follow 'ALTER TABLE .* ADD COLUMN w INT'"):
        sync.database("evolve_ends", schema_change_behavior="exception")
    assert [row["id"] for row in paimon_rows(sync.warehouse, "ods.t")] == [1, 2]
    with pytest.raises(QueryFailed, match="ods.t cannot follow 'ALTER TABLE .* MODIFY v SMALLINT"):
        sync.database("evolve_ends", schema_change_behavior="evolve")
    assert [row["id"] for row in paimon_rows(sync.warehouse, "ods.t")] == [1, 2, 3]
    sync.database("evolve_ends", exclude_schema_changes=["drop"])
    rows = [tuple(row.values()) for row in paimon_rows(sync.warehouse, "ods.t")]
    assert rows == [(1, "1", None), (2, "2", None), (3, "3", 3), (4, "4", 4)]


@pytest.mark.parametrize("mode", ["try_evolve", "evolve", "lenient", "ignore"])
def test_a_swap_with_a_table_whose_key_has_another_type(
    evolving: Sync, mariadb: MariaDB, mode: str
) -> None:
    """Paimon cannot change the key: as a number, '01' would become the row of '1'."""
    sync, database = evolving, f"evolve_swapped_{mode}"
    fresh(mariadb, database)
    mariadb.execute(
        f"CREATE TABLE {database}.a (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE {database}.b (id VARCHAR(9) PRIMARY KEY, v INT)",
        f"CREATE TABLE {database}.other (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.a VALUES (1, 1), (2, 2)",
        f"INSERT INTO {database}.b VALUES ('1', 10), ('01', 20)",
    )
    how: dict[str, Any] = {"table_conf": KEPT, "schema_change_behavior": mode}
    sync.database(database, **how)
    before = paimon_rows(sync.warehouse, "ods.a")
    mariadb.execute("RENAME TABLE a TO tmp, b TO a, tmp TO b", database=database)
    mariadb.execute("INSERT INTO other VALUES (1)", database=database)
    message = r"ods.[ab] cannot follow 'RENAME TABLE a TO .* part of its key.* exclude the table"
    with pytest.raises(QueryFailed, match=message):
        sync.database(database, **how)
    assert paimon_rows(sync.warehouse, "ods.a") == before
    # What the message says.
    sync.database(database, **how, excluding_tables="a|b")
    assert same(sync, f"{database}.other", "ods.other")
    for table in "ab":
        sync.warehouse.drop_table("ods", table)
    sync.database(database, **how, including_tables="a|b", name="again")
    assert same(sync, f"{database}.a", "ods.a")
    assert same(sync, f"{database}.b", "ods.b")


def test_keys_of_other_types_never_merge(evolving: Sync, mariadb: MariaDB) -> None:
    """A wider key goes on while its values fit; a finer one would be cut off."""
    sync, database = evolving, "evolve_keys"
    fresh(mariadb, database)
    alters = {
        "n": ("INT", "BIGINT", "7", "7000000000"),
        "s": ("VARCHAR(3)", "VARCHAR(9)", "'a'", "'longer'"),
        "d": ("DECIMAL(6,2)", "DECIMAL(10,3)", "1.25", "1.001"),
        "t": ("DATETIME(3)", "DATETIME(6)", "'2024-01-01 00:00:00.001'", None),
    }
    for name, (before, _, first, _) in alters.items():
        mariadb.execute(
            f"CREATE TABLE {database}.{name} (id {before} PRIMARY KEY)",
            f"INSERT INTO {database}.{name} VALUES ({first})",
        )
    for name, (_, after, _, second) in alters.items():
        how: dict[str, Any] = {"table_conf": KEPT, "including_tables": name, "name": name}
        sync.database(database, **how)
        mariadb.execute(f"ALTER TABLE {database}.{name} MODIFY id {after}")
        if second is not None:
            sync.database(database, **how)
            assert same(sync, f"{database}.{name}", f"ods.{name}")
            mariadb.execute(f"INSERT INTO {database}.{name} VALUES ({second})")
        if name == "s":
            sync.database(database, **how)
            assert same(sync, f"{database}.{name}", f"ods.{name}")
            continue
        with pytest.raises(QueryFailed, match="does not fit" if second else "part of its key"):
            sync.database(database, **how)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_temporary_table_hides_a_table_from_statements(
    evolving: Sync, mariadb: MariaDB, restarts: bool
) -> None:
    sync, database = evolving, f"evolve_hidden_{restarts}"
    fresh(mariadb, database)
    mariadb.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    session = mariadb.connect(database)

    def run(*statements: str) -> None:
        with session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def write(number: int, until: Any) -> None:
        mariadb.execute(f"INSERT INTO {database}.t VALUES ({number})")
        if restarts:
            sync.database(database)
        else:
            until(partial(same, sync, f"{database}.t", "ods.t"))

    def steps(until: Any) -> None:
        write(1, until)
        run("SET SESSION binlog_format = STATEMENT", "CREATE TEMPORARY TABLE t (id INT)")
        write(2, until)
        run("INSERT INTO t VALUES (10), (11)")
        write(3, until)
        run("UPDATE t SET id = 12", "ALTER TABLE t ADD COLUMN v INT")
        write(4, until)
        run("DROP TEMPORARY TABLE t", "SET SESSION binlog_format = ROW")
        write(5, until)

    if restarts:
        steps(None)
    else:
        with sync.running(database) as until:
            until(lambda: sync.warehouse.exists("ods", "t"))
            steps(until)
    assert same(sync, f"{database}.t", "ods.t")
    run("SET SESSION binlog_format = STATEMENT", "INSERT INTO t VALUES (6)")
    session.close()
    with pytest.raises(QueryFailed, match="was logged as a statement, not as rows, and changes it"):
        sync.database(database)


def test_many_statements_behind_take_few_connections(evolving: Sync, mariadb: MariaDB) -> None:
    """The server keeps a connection that has read the binlog for a second after its end."""
    sync = evolving
    fresh(mariadb, "evolve_far")
    create = "CREATE TABLE evolve_far.t (id INT PRIMARY KEY, name VARCHAR(20))"
    mariadb.execute(create, "INSERT INTO evolve_far.t VALUES (1, 'a')")
    sync.database("evolve_far", table_conf=KEPT)
    # Compared with MySQL once all statements up to then were followed.
    mariadb.execute("DROP TABLE evolve_far.t", create)
    for number in range(60):
        mariadb.execute(
            f"ALTER TABLE evolve_far.t ADD COLUMN c{number} INT DEFAULT {number}",
            f"INSERT INTO evolve_far.t (id) VALUES ({number})",
        )
    before = connections(mariadb)
    sync.database("evolve_far", table_conf=KEPT)
    assert same(sync, "evolve_far.t", "ods.t")
    assert connections(mariadb) - before < 40


def connections(server: MariaDB) -> int:
    """How many connections the server has had."""
    ((_, count),) = server.execute("SHOW GLOBAL STATUS LIKE 'Connections'")
    return int(count)


def test_columns_of_a_reload_that_was_killed(
    mariadb: MariaDB, tmp_path: Path, spark_here: None
) -> None:
    """MySQL drops columns that a reload has added, before the reload is repeated."""
    fresh(mariadb, "evolve_killed")
    sync = Sync(mariadb, tmp_path)
    create = "CREATE TABLE evolve_killed.t (id INT PRIMARY KEY, {})"
    mariadb.execute(create.format("name VARCHAR(20)"))
    sync.database("evolve_killed", table_conf=KEPT)
    sync.warehouse.alter_table("ods.t", AddColumn(Column("own", "DATE")))
    mariadb.execute(
        "DROP TABLE evolve_killed.t",
        create.format("a INT, b INT, c INT"),
        "INSERT INTO evolve_killed.t VALUES (1, 2, 3, 4)",
    )
    command = ["sync", "mysql-database", "--warehouse", str(sync.folder / "warehouse")]
    command += ["--database", "ods"]
    for key, value in mysql_conf(mariadb, "evolve_killed").items():
        command += [f"--mysql-conf={key}={value}"]
    for key, value in KEPT.items():
        command += [f"--table-conf={key}={value}"]
    # The planner's process ends by itself, and the driver before it has started another.
    killed = Run(tmp_path, command, {"STREAMHOUSE_FAILPOINT": "target-altered:0"}, spark=False)
    killed.until(lambda: "a" in sync.warehouse.table("ods.t").arrow_schema.names)
    killed.kill()
    assert "compared" not in killed.err
    mariadb.execute(
        "ALTER TABLE evolve_killed.t DROP COLUMN a",
        "ALTER TABLE evolve_killed.t RENAME COLUMN b TO d",
        "ALTER TABLE evolve_killed.t DROP COLUMN c, ADD COLUMN c DATE DEFAULT '2024-05-06'",
        "UPDATE evolve_killed.t SET d = 7",
    )
    sync.database("evolve_killed", table_conf=KEPT)
    assert sync.warehouse.table("ods.t").arrow_schema.names == ["id", "d", "c", "own"]
    (row,) = paimon_rows(sync.warehouse, "ods.t")
    (there,) = mysql_rows(mariadb, "evolve_killed.t")
    assert row == {**there, "own": None}
