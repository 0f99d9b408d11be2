"""Options of Flink CDC against a real server: what works, and what a notice promises."""

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
    assert len(rows) == 5 and rows == [{"id": one["id"], "v": one["v"]} for one in changes]


def test_a_table_that_is_swapped_ends_the_query(table: Database) -> None:
    """As the reason for `scan.parse.online.schema.changes.enabled` says; gh-ost does this."""
    source = table.source("t", options={"scan.parse.online.schema.changes.enabled": "true"})
    offset, _ = catch_up(source, source.initial_offset())
    table.run(
        "CREATE TABLE _t_gho LIKE t",
        "ALTER TABLE _t_gho ADD COLUMN w INT",
        "INSERT INTO _t_gho SELECT id, v, 0 FROM t",
        "RENAME TABLE t TO _t_del, _t_gho TO t",
        "INSERT INTO t VALUES (9, 9, 9)",
    )
    with pytest.raises(StreamhouseError, match="RENAME TABLE") as caught:
        catch_up(source, offset)
    assert f"{table.name}.t" in str(caught.value)
