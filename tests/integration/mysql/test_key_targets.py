"""Keys whose declared types or time zone could make two of them one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.integration.mysql.history import Database, apply, catch_up

from streamhouse.errors import TableError
from streamhouse.sql.plan import Column

UTC = "SET time_zone = '+00:00', sql_mode = ''"
BERLIN = {"server-time-zone": "Europe/Berlin"}
WINTER = {"server-time-zone": "+01:00"}


def created(database: Database, kind: str, values: list[str]) -> None:
    rows = ", ".join(f"({value}, 1, 'old')" for value in values)
    database.run(
        UTC,
        f"CREATE TABLE t (k {kind} NOT NULL, id INT, v VARCHAR(9), PRIMARY KEY (k, id))",
        *([f"INSERT INTO t VALUES {rows}"] if rows else []),
    )


class Followed:
    """The keys of a table, by a snapshot and then by the binlog."""

    def __init__(
        self, database: Database, declared: str | None, options: dict[str, str] | None = None
    ) -> None:
        chunks = {"scan.incremental.snapshot.chunk.size": "2"}
        columns = None
        if declared is not None:
            columns = [Column("k", declared), Column("id", "INT"), Column("v", "STRING")]
        self._source = database.source("t", columns, chunks | (options or {}))
        assert self._source.keyed_by == ("k", "id")
        self.again()

    def again(self) -> None:
        """Start with a snapshot."""
        self._state: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._offset = self._source.initial_offset()

    def keys(self) -> set[tuple[Any, ...]]:
        """Read all changes; returns the keys that there are."""
        self._offset, rows = catch_up(self._source, self._offset)
        apply(self._state, rows, ["k", "id"])
        return set(self._state)


@pytest.mark.parametrize("size", [1, 600], ids=["few", "many"])
@pytest.mark.parametrize(
    ("kind", "declared", "first", "second", "message"),
    [
        (
            "TIMESTAMP",
            "TIMESTAMP(0)",
            "'2024-10-27 00:30:00'",
            "'2024-10-27 01:30:00'",
            "the value 2024-10-27 01:30:00 UTC, whose local time 2024-10-27 02:30:00 in the zone "
            "Europe/Berlin another instant has, too",
        ),
        (
            "TIMESTAMP(6)",
            "STRING",
            "'2024-10-27 00:30:00.5'",
            "'2024-10-27 01:30:00.5'",
            r"the value 2024-10-27 01:30:00.5 UTC, whose local time 2024-10-27 02:30:00.5",
        ),
        (
            "DATETIME",
            "TIMESTAMP_LTZ(0)",
            "'2024-03-31 03:00:00'",
            "'2024-03-31 02:30:00'",
            "the value 2024-03-31 02:30:00, a local time that the zone Europe/Berlin skips",
        ),
    ],
)
def test_summer_time_makes_no_keys_equal(
    database: Database, kind: str, declared: str, first: str, second: str, message: str, size: int
) -> None:
    created(database, kind, [first, "'2024-05-01'"])
    followed = Followed(database, declared, BERLIN)
    assert len(followed.keys()) == 2
    # A change of the key in the binlog, of few rows and of so many that they are decoded together.
    more = ", ".join(f"('2024-07-01', {id}, 'more')" for id in range(2, 2 + size))
    database.run(UTC, f"INSERT INTO t VALUES {more}")
    assert len(followed.keys()) == 2 + size
    database.run(UTC, f"UPDATE t SET k = {second} WHERE v = 'more'")
    whole = rf"column 'k' \({re.escape(kind.lower())}\) of the key has {message}"
    with pytest.raises(TableError, match=whole):
        followed.keys()
    followed.again()
    with pytest.raises(TableError, match=whole):
        followed.keys()
    # The ways out.
    exact = "TIMESTAMP_LTZ(6)" if kind.startswith("TIMESTAMP") else "TIMESTAMP(6)"
    for target, options in ((declared, WINTER), (exact, BERLIN)):
        other = Followed(database, target, options)
        found = other.keys()
        assert len(found) == 2 + size
        database.run(UTC, f"UPDATE t SET k = {first} WHERE v = 'more'")
        changed = other.keys()
        assert len(changed) == len(found)
        assert len(changed & found) == 2
        database.run(UTC, f"UPDATE t SET k = {second} WHERE v = 'more'")


@pytest.mark.parametrize(
    ("kind", "declared", "instead"),
    [
        ("DATETIME(6)", "TIMESTAMP(3)", r"TIMESTAMP\(6\)"),
        ("TIMESTAMP(4)", "TIMESTAMP_LTZ(3)", r"TIMESTAMP_LTZ\(6\)"),
        ("TIME(6)", "TIME(3)", "STRING"),
        ("BIT(8)", "BOOLEAN", "BYTES"),
        ("DECIMAL(5,2)", "BOOLEAN", r"DECIMAL\(5, 2\)"),
        ("VARCHAR(9)", "BOOLEAN", "STRING"),
    ],
)
def test_a_type_that_keeps_no_keys_apart_is_refused(
    database: Database, kind: str, declared: str, instead: str
) -> None:
    created(database, kind, [])
    with pytest.raises(TableError, match=rf"\.t: column 'k' .* declare it as {instead}"):
        Followed(database, declared)


@pytest.mark.parametrize(
    ("kind", "declared", "good", "bad"),
    [
        ("DATETIME", "DATE", "'2024-01-01'", "'2024-01-01 10:00:00'"),
        ("DECIMAL(20,2)", "DOUBLE", "1.25", "123456789012345678.25"),
        ("DECIMAL(5,2)", "DECIMAL(5,1)", "1.5", "1.55"),
        ("DECIMAL(5,2)", "INT", "1", "1.55"),
        ("BIGINT", "INT", "1", "4294967297"),
        ("BIGINT UNSIGNED", "BIGINT", "1", "18446744073709551615"),
        ("BIGINT", "FLOAT", "1", "16777217"),
        ("VARCHAR(20)", "BIGINT", "'1'", "'01'"),
        ("VARCHAR(20)", "TIME", "'01:02:03'", "'01:02:03.0'"),
        ("VARCHAR(20)", "TIMESTAMP(3)", "'2024-01-01 00:00:00'", "'2024-01-01'"),
        ("VARBINARY(20)", "INT", "'1'", "'01'"),
        ("ENUM('1','01')", "INT", "'1'", "'01'"),
        ("SET('1','01')", "INT", "'1'", "'01'"),
        ("TINYINT(1)", "BOOLEAN", "1", "2"),
    ],
)
def test_a_key_that_its_type_does_not_hold_is_an_error(
    database: Database, kind: str, declared: str, good: str, bad: str
) -> None:
    created(database, kind, [good])
    followed = Followed(database, declared)
    assert len(followed.keys()) == 1
    database.run(UTC, f"INSERT INTO t VALUES ({bad}, 1, 'new')")
    for _ in range(2):
        with pytest.raises(TableError, match="column 'k' "):
            followed.keys()
        followed.again()


def test_a_key_that_gets_more_digits_is_an_error(database: Database) -> None:
    created(database, "DATETIME(3)", ["'2024-01-01 10:00:00.123'"])
    followed = Followed(database, "TIMESTAMP(3)")
    assert len(followed.keys()) == 1
    database.run(UTC, "ALTER TABLE t MODIFY k DATETIME(6) NOT NULL")
    database.run(UTC, "INSERT INTO t VALUES ('2024-01-01 10:00:00.123', 2, 'same')")
    assert len(followed.keys()) == 2
    database.run(UTC, "INSERT INTO t VALUES ('2024-01-01 10:00:00.123456', 1, 'new')")
    with pytest.raises(TableError, match=r"2024-01-01 10:00:00\.123456, .* TIMESTAMP\(6\)"):
        followed.keys()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("CHAR(4)", ["'a'", "'a b'", "'b'", "''"]),
        ("VARCHAR(4) COLLATE utf8mb4_bin", ["'a'", "'A'", "'ä'", "''"]),
        ("BINARY(3)", ["'a'", r"'a '", "'abc'", r"'\0'"]),
        ("VARBINARY(3)", ["'a'", r"'a\0'", "'a '", "''"]),
        ("ENUM('a','b')", ["'a'", "'b'"]),
        ("SET('a','b')", ["''", "'a'", "'b'", "'a,b'"]),
        ("BIT(1)", ["b'0'", "b'1'"]),
        ("BIT(9)", ["0", "1", "256", "257"]),
        ("YEAR", ["0", "1901", "2024", "2155"]),
        ("TINYINT(1)", ["-1", "0", "1", "2"]),
        ("DECIMAL(20,2) ZEROFILL", ["0.10", "0.01", "1.00"]),
        ("TIME(6)", ["'-00:00:01'", "'00:00:01'", "'100:00:00.000001'", "'100:00:00'"]),
        ("DATETIME(6)", ["'2024-10-27 02:30:00'", "'2024-10-27 02:30:00.000001'"]),
        ("TIMESTAMP(6)", ["'2024-10-27 00:30:00'", "'2024-10-27 01:30:00'"]),
    ],
)
def test_types_of_mysql_keep_keys_apart(database: Database, kind: str, values: list[str]) -> None:
    created(database, kind, values)
    texts = ["BYTES"] if "BINARY" in kind else ["STRING"]
    all_followed = [Followed(database, None, BERLIN)]
    all_followed += [Followed(database, declared, WINTER) for declared in texts]
    snapshots = [followed.keys() for followed in all_followed]
    database.run(UTC, "DELETE FROM t")
    assert [followed.keys() for followed in all_followed] == [set(), set()]
    rows = ", ".join(f"({value}, 1, 'new')" for value in values)
    database.run(UTC, f"INSERT INTO t VALUES {rows}")
    assert [followed.keys() for followed in all_followed] == snapshots
    assert [len(found) for found in snapshots] == [len(values)] * 2
