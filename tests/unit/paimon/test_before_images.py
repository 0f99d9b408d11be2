"""An update to an older time has no effect; it must not remove the row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamhouse.paimon.write.merge_rules.unaccepted_retractions import BeforeImageFilter

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab

NEWEST = {"sequence.field": "v"}


def test_a_late_update_loses(lab: Lab) -> None:
    table = lab.make("t", NEWEST)
    lab.write(table, 1, [(1, 10, "+I"), (2, 10, "+I")])
    lab.write(table, 2, [(1, 10, "-U"), (1, 5, "+U"), (2, 10, "-U"), (2, 20, "+U")])
    assert lab.content(table) == [(1, 10), (2, 20)]


@pytest.mark.parametrize("first", [[], [(9, 1, "+I")]])
def test_it_loses_across_two_batches_of_rows(lab: Lab, first: list[tuple[int, int, str]]) -> None:
    table = lab.make("t", NEWEST)
    lab.write(table, 1, [(1, 10, "+I")])
    lab.write(table, 2, [*first, (1, 10, "-U")], [(1, 5, "+U")])
    assert (1, 10) in lab.content(table)


def test_a_row_whose_key_changes_is_removed(lab: Lab) -> None:
    table = lab.make("t", NEWEST)
    lab.write(table, 1, [(1, 10, "+I"), (2, 10, "+I"), (3, 10, "+I")])
    lab.write(table, 2, [(1, 10, "-U"), (7, 11, "+U"), (2, 12, "-D")], [(3, 13, "-U")])
    assert lab.content(table) == [(7, 11)]


def test_the_changelog_of_an_input_table_keeps_both(lab: Lab) -> None:
    table = lab.make("t", {**NEWEST, "changelog-producer": "input"})
    lab.write(table, 1, [(1, 10, "+I")])
    lab.write(table, 2, [(1, 10, "-U"), (1, 20, "+U")])
    read = list(table.read(splits=table.changes(1, 2, "changelog"), row_kind=True))
    assert [row["rowkind"] for batch in read for row in batch.to_pylist()] == ["-U", "+U"]


def test_rows_without_kinds_come_after_what_is_held(lab: Lab) -> None:
    held = BeforeImageFilter(lab.make("t", NEWEST))
    rows = {"k": [1], "v": [10]}
    assert held.take(pa.RecordBatch.from_pydict({**rows, "rowkind": ["-U"]})).num_rows == 0

    after = held.take(pa.RecordBatch.from_pydict({"k": [1], "v": [11]}))

    assert after.column("rowkind").to_pylist() == ["-U", "+I"]
    assert held.rest() is None
