"""How a backlog of an append table is spread over tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamhouse.paimon.changelog.stream_source import PaimonSource

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab

FILES = 8


@pytest.mark.parametrize(
    ("table_options", "scan_options", "pieces"),
    [
        ({}, {}, 2),
        ({"source.split.target-size": "128 mb"}, {}, 1),
        ({}, {"source.split.target-size": "128 mb"}, 1),
    ],
)
def test_a_backlog_is_split_for_many_tasks_by_default(
    lab: Lab, table_options: dict[str, str], scan_options: dict[str, str], pieces: int
) -> None:
    table = lab.make("t", table_options, keyed=False)
    for batch in range(FILES):
        lab.write(table, batch, [(batch, batch)])
    source = PaimonSource(lab.warehouse.options, table.identifier, options=scan_options)
    end = source.latest_offset({})
    found = source.partitions({}, end, parallelism=2)
    assert len(found) == pieces
    rows = [row for partition in found for row in lab.rows(source.read(partition))]
    assert sorted(rows) == [(batch, batch) for batch in range(FILES)]


def test_the_cut_follows_the_table_when_it_is_altered(lab: Lab) -> None:
    table = lab.make("t", keyed=False)
    lab.write(table, 0, [(1, 1)])
    source = PaimonSource(lab.warehouse.options, table.identifier)
    assert source.table is source.table
    lab.warehouse.drop_table("db", "t")
    again = lab.make("t", {"source.split.target-size": "1 mb"}, keyed=False)
    assert source.table.options["source.split.target-size"] == "1 mb"
    assert source.table.schema_stamp() == again.schema_stamp()


@pytest.mark.parametrize("keyed", [False, True])
def test_snapshot_0_is_the_table_before_its_first_rows(lab: Lab, keyed: bool) -> None:
    table = lab.make("t", keyed=keyed)
    assert table.rows().num_rows == table.rows(snapshot=0).num_rows == 0
    lab.write(table, 0, [(1, 1)])
    assert (table.rows().num_rows, table.rows(snapshot=1).num_rows) == (1, 1)
    assert table.rows(snapshot=0).num_rows == table.rows(["id"], 0).num_rows == 0
