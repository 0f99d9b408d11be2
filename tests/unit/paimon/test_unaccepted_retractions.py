"""Tables without retractions get only the new rows of updates, and refuse deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamhouse import execute
from streamhouse.errors import TableError

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab

FILLED = {"merge-engine": "partial-update"}
FIRST = [(1, 10, "+I"), (2, 10, "+I")]
UPDATE = [(1, 10, "-U"), (1, 5, "+U"), (2, 10, "-U"), (2, 20, "+U")]


def test_an_update_is_the_new_row(lab: Lab) -> None:
    table = lab.make("t", FILLED)
    lab.write(table, 1, FIRST)
    lab.write(table, 2, UPDATE)
    assert lab.content(table) == [(1, 5), (2, 20)]


def test_what_is_replaced_further_on_is_no_removal(lab: Lab) -> None:
    table = lab.make("t", FILLED)
    lab.write(table, 1, FIRST)
    lab.write(table, 2, [(1, 10, "-U"), (2, 10, "-U"), (1, 5, "+U"), (2, 20, "+U")])
    assert lab.content(table) == [(1, 5), (2, 20)]


@pytest.mark.parametrize("engine", ["partial-update", "first-row"])
@pytest.mark.parametrize("kind", ["-D", "-U"])
def test_a_removal_is_an_error_before_it_is_written(lab: Lab, engine: str, kind: str) -> None:
    table = lab.make("t", {"merge-engine": engine})
    with pytest.raises(
        TableError, match=r"has 'merge-engine' = .* SET \('ignore-delete' = 'true'\)"
    ):
        lab.write(table, 1, [*FIRST, (2, 10, kind)])
    assert table.latest_snapshot_id() is None


@pytest.mark.parametrize("key", ["ignore-delete", "partial-update.ignore-delete"])
def test_removals_are_left_out_by_a_table_option(lab: Lab, key: str) -> None:
    table = lab.make("t", {**FILLED, key: "true"})
    lab.write(table, 1, FIRST)
    lab.write(table, 2, [(1, 10, "-D"), (2, 10, "-U"), (3, 1, "+U")])
    assert lab.content(table) == [(1, 10), (2, 10), (3, 1)]


def test_removals_are_accepted_by_a_table_option(lab: Lab) -> None:
    table = lab.make("t", {**FILLED, "partial-update.remove-record-on-delete": "true"})
    lab.write(table, 1, [*FIRST, (3, 1, "+I")])
    lab.write(table, 2, [(1, 10, "-D"), (2, 10, "-U"), (9, 9, "+U"), (3, 1, "-U"), (3, 2, "+U")])
    assert lab.content(table) == [(3, 2), (9, 9)]


ACROSS = {"bucket": "-1", "partition": "v"}


def test_a_key_that_moves_to_another_partition_is_the_new_row(lab: Lab) -> None:
    table = lab.make("t", ACROSS)
    lab.write(table, 1, FIRST)
    lab.write(table, 2, UPDATE)
    lab.write(table, 3, [(3, 1, "+I")], [(1, 5, "-U"), (1, 6, "+U")])
    assert lab.content(table) == [(1, 6), (2, 20), (3, 1)]


def _across(lab: Lab, function: str) -> None:
    execute(
        lab.warehouse,
        "CREATE TABLE db.t (k INT PRIMARY KEY NOT ENFORCED, p STRING, v INT) PARTITIONED BY (p) "
        f"WITH ('merge-engine' = 'aggregation', 'fields.v.aggregate-function' = '{function}')",
    )
    execute(lab.warehouse, "INSERT INTO db.t VALUES (1, 'a', 5), (1, 'b', 6)")


def test_a_sum_is_not_updated_where_keys_move(lab: Lab) -> None:
    """The core takes no `-U` there: the new value would be added to the old one."""
    _across(lab, "sum")
    with pytest.raises(TableError, match=r"1 row\(s\) are retracted.*in its primary key$"):
        execute(lab.warehouse, "UPDATE db.t SET v = 1 WHERE k = 1")
    assert lab.content(lab.warehouse.table("db.t")) == [(1, "a", 11)]


def test_a_last_value_is_updated_where_keys_move(lab: Lab) -> None:
    _across(lab, "last_value")
    execute(lab.warehouse, "UPDATE db.t SET v = 1 WHERE k = 1")
    assert lab.content(lab.warehouse.table("db.t")) == [(1, "a", 1)]


def test_no_row_is_removed_where_keys_move(lab: Lab) -> None:
    table = lab.make("t", ACROSS)
    with pytest.raises(TableError, match=r"primary key \(id\) without its partition \(v\)"):
        lab.write(table, 1, [*FIRST, (2, 10, "-D")])
    assert table.latest_snapshot_id() is None


def test_removals_are_left_out_where_keys_keep_their_partition(lab: Lab) -> None:
    table = lab.make("t", {**ACROSS, **FILLED, "ignore-delete": "true"})
    lab.write(table, 1, FIRST)
    lab.write(table, 2, [(1, 10, "-D"), (2, 10, "-U"), (2, 20, "+U")])
    assert lab.content(table) == [(1, 10), (2, 10)]
