"""Options of Flink CDC against a real server: they work, or have the effect of their notice."""

from __future__ import annotations

import pytest
from tests.integration.mysql.history import Database, catch_up

from streamhouse.errors import StreamhouseError

APPEND_ONLY = {"scan.read-changelog-as-append-only.enabled": "true"}


def _change(database: Database) -> None:
    database.run(
        "UPDATE t SET v = 20 WHERE id = 2",
        "UPDATE t SET id = 4 WHERE id = 3",
        "DELETE FROM t WHERE id = 1",
    )


@pytest.fixture
def table(database: Database) -> Database:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)"
    )
    return database


def test_append_only_reads_each_change_as_a_row(table: Database) -> None:
    source, plain = table.source("t", options=APPEND_ONLY), table.source("t")
    assert (source.changelog, plain.changelog) == (False, True)
    offset, rows = catch_up(source, source.initial_offset())
    assert rows == [{"id": id, "v": id} for id in (1, 2, 3)]
    _change(table)
    _, rows = catch_up(source, offset)
    _, changes = catch_up(plain, offset)
    assert len(rows) == 5 and rows == [{"id": change["id"], "v": change["v"]} for change in changes]


def _swap(table: Database, copy: str, old: str, change: str) -> None:
    """What gh-ost and pt-online-schema-change do at the end."""
    table.run(
        f"CREATE TABLE {copy} LIKE t",
        f"INSERT INTO {copy} SELECT * FROM t",
        f"ALTER TABLE {copy} {change}",
        f"RENAME TABLE t TO {old}, {copy} TO t",
    )


def test_a_swap_is_followed_if_it_is_allowed(table: Database) -> None:
    name = "scan.parse.online.schema.changes.enabled"
    plain, source = table.source("t"), table.source("t", options={name: "true"})
    offset, rows = catch_up(source, source.initial_offset())
    _swap(table, "_t_gho", "_t_del", "ADD COLUMN w INT DEFAULT 5 FIRST")
    table.run("INSERT INTO t VALUES (5, 9, 9)", "DELETE FROM t WHERE id = 1")
    with pytest.raises(StreamhouseError, match=f"RENAME TABLE.*{name}"):
        catch_up(plain, offset)
    swapped, changes = catch_up(source, offset)
    assert changes == [
        {"id": 9, "v": 9, "rowkind": "+I"}, {"id": 1, "v": 1, "rowkind": "-D"}
    ]  # fmt: skip
    _swap(table, "_t_new", "_t_old", "MODIFY v BIGINT AFTER id")
    table.run("UPDATE t SET v = 10 WHERE id = 9")
    swapped, changes = catch_up(source, swapped)
    assert [row["v"] for row in changes] == [9, 10]
    _swap(table, "__t_new", "__t_old", "DROP COLUMN v")
    table.run("INSERT INTO t (id) VALUES (11)")
    with pytest.raises(StreamhouseError, match="has no column 'v'"):
        catch_up(source, swapped)


def test_another_swap_ends_the_query(table: Database) -> None:
    source = table.source("t", options={"scan.parse.online.schema.changes.enabled": "true"})
    offset, _ = catch_up(source, source.initial_offset())
    _swap(table, "mine", "_t_del", "ADD COLUMN w INT")
    with pytest.raises(StreamhouseError, match="RENAME TABLE") as caught:
        catch_up(source, offset)
    assert f"{table.name}.t" in str(caught.value)
