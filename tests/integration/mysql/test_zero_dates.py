"""Zero dates, partial dates and days that do not exist, in keys and in other columns."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from tests.integration.mysql.history import Database, apply, catch_up, rows_of

from streamhouse.errors import SchemaChangeError, TableError
from streamhouse.mysql.values.dates import OPTION
from streamhouse.source import Offset
from streamhouse.sql.plan import Column

D = datetime.datetime
FIRST = D(1, 1, 1)
SESSION = "SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'"
ROUND = {OPTION: "ROUND"}
KINDS = ["DATE", "DATETIME", "DATETIME(3)", "TIMESTAMP", "TIMESTAMP(6)"]
INDEXES = ["PRIMARY KEY (k, id)", "UNIQUE KEY own (k, id)", "PRIMARY KEY (name, k, id)"]
"""The last one has a text, so that the server compares its keys."""
BROKEN = ["2023-00-00", "2023-05-00", "2023-02-31", "0000-05-01"]


def dates(kind: str, text: str) -> datetime.date:
    found = D.fromisoformat(text)
    if kind == "DATE":
        return found.date()
    return found.replace(tzinfo=datetime.UTC) if kind.startswith("TIMESTAMP") else found


def created(database: Database, kind: str, index: str, values: list[str]) -> None:
    rows = [f"('{value}', {number}, 'n', 'old')" for number, value in enumerate(values)]
    database.run(
        SESSION,
        f"CREATE TABLE t (k {kind} NOT NULL DEFAULT '2024-01-01', id INT NOT NULL, "
        f"name VARCHAR(9) NOT NULL, v VARCHAR(9), {index})",
        f"INSERT INTO t VALUES {', '.join(rows)}",
    )


def texts(database: Database) -> dict[tuple[str, int], str]:
    """MySQL's own texts."""
    found = database.run("SET time_zone = '+00:00'", "SELECT CONCAT(k), id, v FROM t")
    return {(str(k), int(id)): str(v) for k, id, v in found}


def declared(kind: str) -> list[Column]:
    return [Column("k", kind), Column("id", "INT"), Column("v", "STRING")]


class Followed:
    """A table that is followed by one source after another, batch by batch."""

    def __init__(self, database: Database, columns: list[Column] | None, size: int, **more: str):
        self._database, self._columns = database, columns
        self._options = {"scan.incremental.snapshot.chunk.size": str(size), **more}
        self.state: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._source = self._restarted()
        self._offset: Offset = self._source.initial_offset()

    def _restarted(self) -> Any:
        return self._database.source("t", self._columns, self._options)

    def one_batch(self) -> None:
        """Read one batch, and start again."""
        end = self._source.latest_offset(self._offset, 1)
        apply(self.state, rows_of(self._source, self._offset, end, 2), ["k", "id"])
        self._offset, self._source = end, self._restarted()

    def all(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Read all changes; returns the rows, which are those of a snapshot."""
        self._offset, rows = catch_up(self._source, self._offset)
        apply(self.state, rows, ["k", "id"])
        fresh = self._restarted()
        snapshot: dict[tuple[Any, ...], dict[str, Any]] = {}
        apply(snapshot, catch_up(fresh, fresh.initial_offset())[1], ["k", "id"])
        assert self.state == snapshot
        return self.state


def changed(database: Database, followed: Followed) -> None:
    """Change keys from and to the zero date, during the snapshot and after it."""
    followed.one_batch()
    followed.one_batch()
    database.run(
        SESSION,
        "UPDATE t SET v = 'new' WHERE id = 0",
        "UPDATE t SET k = '2024-06-01' WHERE id = 1",
        "UPDATE t SET k = 0 WHERE id = 3",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (0, 20, 'n', 'in'), ('2020-01-01', 21, 'n', 'in')",
    )
    followed.one_batch()
    database.run(
        SESSION,
        "UPDATE t SET k = '2024-06-02' WHERE id = 3",
        "UPDATE t SET k = 0 WHERE id = 21",
    )
    followed.all()
    more = ", ".join(f"(0, {id}, 'n', 'many')" for id in range(100, 1100))
    database.run(
        SESSION,
        f"INSERT INTO t VALUES {more}",
        "UPDATE t SET v = 'last' WHERE id >= 600",
        "UPDATE t SET k = '2024-07-01' WHERE id = 20",
        "UPDATE t SET k = 0 WHERE id = 1",
        "DELETE FROM t WHERE id = 0 OR id BETWEEN 200 AND 900",
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("size", [1, 3])
def test_rounded_zero_dates_are_keys(database: Database, kind: str, index: str, size: int) -> None:
    created(database, kind, index, ["0", "0", "0", "2024-01-01", "2024-01-02"])
    followed = Followed(database, None, size, **ROUND)
    changed(database, followed)
    expected = {
        (dates(kind, "0001-01-01" if k.startswith("0000") else k), id): v
        for (k, id), v in texts(database).items()
    }
    assert {key: row["v"] for key, row in followed.all().items()} == expected
    assert (dates(kind, "0001-01-01"), 1) in expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("behavior", ["CONVERT_TO_NULL", "ROUND"])
def test_keys_in_strings_have_mysqls_text(
    database: Database, kind: str, index: str, size: int, behavior: str
) -> None:
    broken = [] if kind.startswith("TIMESTAMP") else BROKEN
    created(database, kind, index, ["0", "0", "0", "2024-01-01", "2024-01-02", *broken])
    followed = Followed(database, declared("STRING"), size, **{OPTION: behavior})
    changed(database, followed)
    for number, value in enumerate(broken, 50):
        database.run(
            SESSION,
            f"INSERT INTO t VALUES ('{value}', {number}, 'n', 'late')",
            f"UPDATE t SET k = '{value}' WHERE id = {500 + number}",
            f"UPDATE t SET k = 0 WHERE k = '{value}' AND id < 10",
        )
    found = {key: row["v"] for key, row in followed.all().items()}
    assert found == texts(database)
    if broken:
        assert {k[:10] for k, _ in found} > {"0000-00-00", *broken}


@pytest.mark.parametrize("kind", ["DATE", "DATETIME(3)"])
def test_a_key_that_is_not_written_may_have_any_date(database: Database, kind: str) -> None:
    created(database, kind, "PRIMARY KEY (k, id)", ["0", "2024-01-01", "2023-02-31"])
    columns = [Column("id", "INT"), Column("v", "STRING")]
    source = database.source("t", columns, {"scan.incremental.snapshot.chunk.size": "1"})
    offset, rows = catch_up(source, source.initial_offset())
    assert sorted(row["id"] for row in rows) == [0, 1, 2]
    database.run(SESSION, "UPDATE t SET v = 'new'", "UPDATE t SET k = 0 WHERE id = 2")
    _, rows = catch_up(source, offset)
    assert [(row["rowkind"], row["id"]) for row in rows[-2:]] == [("-D", 2), ("+I", 2)]
    assert len(rows) == 8


@pytest.mark.parametrize("kind", ["DATE", "DATETIME"])
@pytest.mark.parametrize("value", [*BROKEN, "0001-01-01"])
@pytest.mark.parametrize("options", [{}, ROUND])
@pytest.mark.parametrize("count", [1, 1000])
def test_other_dates_in_a_key_are_errors(
    database: Database, kind: str, value: str, options: dict[str, str], count: int
) -> None:
    created(database, kind, "PRIMARY KEY (k, id)", ["2024-01-01"])
    source = database.source("t", options=options)
    offset, _ = catch_up(source, source.initial_offset())
    rows = ", ".join(f"('{value}', {id}, 'n', '')" for id in range(1, 1 + count))
    database.run(SESSION, f"INSERT INTO t VALUES {rows}")
    for start in (offset, source.initial_offset()):
        if value == "0001-01-01" and not options:
            assert len(catch_up(source, start)[1]) >= count
            continue
        match = f"column 'k' .* of the key has the value {value}.*declare the column as STRING"
        with pytest.raises(TableError, match=match):
            catch_up(source, start)


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
@pytest.mark.parametrize("count", [1, 1000])
def test_other_columns(database: Database, metadata: str, count: int) -> None:
    names = [f"c{number}" for number in range(len(KINDS))]
    kinds = ", ".join(
        f"{name} {kind} NOT NULL DEFAULT '2024-01-01', {name}n {kind} NULL"
        for name, kind in zip(names, KINDS, strict=True)
    )
    database.run(
        f"SET GLOBAL binlog_row_metadata = '{metadata}'",
        SESSION,
        f"CREATE TABLE t (id INT PRIMARY KEY, {kinds})",
        f"CREATE TABLE keyless (id INT, {kinds})",
    )
    inserts = []
    for number, value in enumerate(["0", "2024-02-29", "2023-05-00", "2023-02-31"]):
        row = [
            "'0'" if kind.startswith("TIMESTAMP") and number > 1 else f"'{value}'"
            for kind in KINDS
            for _ in (0, 1)
        ]
        ids = range(number * count, (number + 1) * count)
        every = ", ".join(f"({id}, {', '.join(row)})" for id in ids)
        inserts += [f"INSERT INTO {table} VALUES {every}" for table in ("t", "keyless")]
    inserts.append(f"INSERT INTO t (id, c0) VALUES ({9 * count}, 0)")
    try:
        sources = {
            (table, behavior): database.source(table, options={OPTION: behavior})
            for table in ("t", "keyless")
            for behavior in ("CONVERT_TO_NULL", "ROUND", "EXCEPTION")
        }
        starts = {key: catch_up(one, one.initial_offset())[0] for key, one in sources.items()}
        database.run(SESSION, *inserts)
        for (table, behavior), source in sources.items():
            if behavior == "EXCEPTION":
                for start in (starts[table, behavior], source.initial_offset()):
                    with pytest.raises(TableError, match="'c0' .date. has the value 0000-00-00"):
                        catch_up(source, start)
                continue
            _, binlog = catch_up(source, starts[table, behavior])
            _, snapshot = catch_up(source, source.initial_offset())
            assert sorted(map(str, binlog)) == sorted(map(str, snapshot))
            by_id = {row["id"]: row for row in snapshot}
            zero = None if behavior == "CONVERT_TO_NULL" else FIRST
            for name, kind in zip(names, KINDS, strict=True):
                first = None if zero is None else dates(kind, "0001-01-01")
                other = first if kind.startswith("TIMESTAMP") else None
                for own in (name, f"{name}n"):
                    found = [by_id[number * count][own] for number in range(4)]
                    assert found == [first, dates(kind, "2024-02-29"), other, other], own
            if table == "t":
                assert by_id[9 * count]["c0n"] is None
    finally:
        database.server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


@pytest.mark.parametrize("zone", ["+08:00", "-11:00", "Asia/Shanghai"])
def test_a_rounded_date_is_not_shifted_to_another_zone(database: Database, zone: str) -> None:
    columns = "d DATETIME(3) NOT NULL, s TIMESTAMP(3) NOT NULL DEFAULT '2024-01-01'"
    database.run(SESSION, f"CREATE TABLE t (id INT, {columns}, e DATETIME, PRIMARY KEY (id, d, s))")
    kinds = [
        ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP(3)"),
        ("STRING", "STRING"),
    ]
    for d, s in kinds:
        columns_of = [Column("id", "INT"), Column("d", d), Column("s", s), Column("e", "STRING")]
        source = database.source("t", columns_of, {"server-time-zone": zone, **ROUND})
        offset, _ = catch_up(source, source.initial_offset())
        database.run(SESSION, "DELETE FROM t", "INSERT INTO t VALUES (1, 0, 0, 0)")
        _, binlog = catch_up(source, offset)
        _, snapshot = catch_up(source, source.initial_offset())
        assert binlog[-1:] == snapshot
        found = tuple(
            one.replace(tzinfo=None) if isinstance(one, D) else one
            for one in list(snapshot[0].values())[1:4]
        )
        if d == "STRING":
            zero = "0000-00-00 00:00:00.000"
            assert found == (zero, zero, "0001-01-01 00:00:00")
        else:
            assert found == (FIRST, FIRST, "0001-01-01 00:00:00")
    # A value that the zone would make equal to the rounded one.
    if zone == "+08:00":
        columns_of = [Column("id", "INT"), Column("d", "TIMESTAMP_LTZ(3)")]
        source = database.source("t", columns_of, {"server-time-zone": zone, **ROUND})
        database.run(SESSION, "INSERT INTO t VALUES (1, '0001-01-01 08:00:00', 0, 0)")
        with pytest.raises(TableError, match="column 'd' .* makes equal to 0001-01-01"):
            catch_up(source, source.initial_offset())


def test_a_zero_date_with_a_time_is_no_zero_date(database: Database) -> None:
    database.run(
        SESSION,
        "CREATE TABLE t (k DATETIME(2) NOT NULL, id INT NOT NULL, v DATETIME, PRIMARY KEY (k, id))",
    )
    text = database.source("t", [Column("k", "STRING"), Column("id", "INT")], ROUND)
    rounded = database.source("t", options=ROUND)
    starts = [catch_up(one, one.initial_offset())[0] for one in (text, rounded)]
    database.run(SESSION, "INSERT INTO t VALUES ('0000-00-00 10:20:30.45', 1, 0)")
    stored = str(database.run("SELECT CONCAT(k) FROM t")[0][0])
    for start in (starts[0], text.initial_offset()):
        assert [row["k"] for row in catch_up(text, start)[1]] == [stored]
    for start in (starts[1], rounded.initial_offset()):
        if stored == "0000-00-00 00:00:00.00":
            assert [row["k"] for row in catch_up(rounded, start)[1]] == [FIRST]
        else:
            with pytest.raises(TableError, match=f"has the value {stored}, which is no date"):
                catch_up(rounded, start)


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_a_key_whose_text_gets_more_digits_is_an_error(database: Database, metadata: str) -> None:
    database.run(f"SET GLOBAL binlog_row_metadata = '{metadata}'")
    try:
        created(database, "DATETIME", "PRIMARY KEY (k, id)", ["0", "2024-01-01"])
        texts_of, rounded = (
            database.source("t", declared("STRING")),
            database.source("t", None, ROUND),
        )
        starts = [catch_up(one, one.initial_offset())[0] for one in (texts_of, rounded)]
        database.run(
            SESSION, "ALTER TABLE t MODIFY k DATETIME(3) NOT NULL", "UPDATE t SET v = 'new'"
        )
        with pytest.raises(SchemaChangeError, match="'k' is datetime.*another number of digits"):
            catch_up(texts_of, starts[0])
        assert len(catch_up(rounded, starts[1])[1]) == 4
    finally:
        database.server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


@pytest.mark.parametrize(("kind", "wide"), [("TIME", "TIME(3)"), ("DECIMAL(9,2)", "DECIMAL(9,3)")])
def test_other_texts_of_keys_that_get_more_digits(database: Database, kind: str, wide: str) -> None:
    database.run(f"CREATE TABLE t (k {kind} PRIMARY KEY, v INT)", "INSERT INTO t VALUES (3, 1)")
    source = database.source("t", [Column("k", "STRING"), Column("v", "INT")])
    offset, _ = catch_up(source, source.initial_offset())
    database.run(f"ALTER TABLE t MODIFY k {wide}", "UPDATE t SET v = 2")
    with pytest.raises(SchemaChangeError, match="'k' is .*another number of digits"):
        catch_up(source, offset)
