"""Offsets of another table are refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from streamhouse.errors import DataLossError
from streamhouse.paimon.changelog.offset_origin import OF, bare
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.source import Offset
from streamhouse.sql.schema_changes import SetTableOption

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab

PRODUCERS = ("none", "input", "lookup", "full-compaction")
SEEN_AT_COMMIT = ("none", "input")


def source(lab: Lab, name: str = "db.t") -> PaimonSource:
    return PaimonSource(lab.warehouse.options, name)


def read_to(lab: Lab, name: str = "db.t") -> Offset:
    """The offset after all of a table, as it comes back from a checkpoint."""
    return source(lab, name).latest_offset({})


def refused(lab: Lab, offset: Offset, why: str, name: str = "db.t") -> None:
    for method in (PaimonSource.check, PaimonSource.latest_offset, PaimonSource.caught_up):
        with pytest.raises(DataLossError, match=f"{why}.*--from-scratch"):
            method(source(lab, name), offset)


def produce(lab: Lab, producer: str) -> None:
    lab.warehouse.alter_table("db.t", SetTableOption("changelog-producer", producer))


@pytest.mark.parametrize("keyed", [True, False])
def test_a_table_that_was_dropped_and_created_again(lab: Lab, keyed: bool) -> None:
    table = lab.make("t", keyed=keyed)
    lab.write(table, 1, [(1, 1)])
    offset = read_to(lab)
    lab.warehouse.drop_table("db", "t")
    table = lab.make("t", keyed=keyed)
    for batch in (1, 2, 3):
        lab.write(table, batch, [(batch, 2)])
    refused(lab, offset, "of another table; db.t was dropped and created again")


def test_another_table(lab: Lab) -> None:
    for name in ("t", "other"):
        lab.write(lab.make(name), 1, [(1, 1)])
    refused(lab, read_to(lab), "the query read another table before", "db.other")


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_a_table_that_was_rolled_back_and_written_again(lab: Lab, rows: int) -> None:
    table = lab.make("t")
    for batch in (1, 2, 3):
        lab.write(table, batch, [(batch, 1)])
    offset = read_to(lab)
    lab.roll_back("db.t", 1)
    for batch in range(rows):
        lab.write(table, 10 + batch, [(batch, 7)], user="another")
    refused(lab, offset, "snapshot 3 was read.*rolled back")


def test_a_roll_back_that_leaves_what_was_read(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 1)])
    offset = read_to(lab)
    for batch in (2, 3):
        lab.write(table, batch, [(batch, 1)])
    lab.roll_back("db.t", 1)
    lab.write(table, 4, [(4, 4)], user="another")
    end = source(lab).latest_offset(offset)
    assert bare(end) == {"snapshot": 2}
    (partition,) = source(lab).partitions(offset, end)
    assert lab.rows(source(lab).read(partition)) == [(4, 4, "+I")]


def test_a_roll_back_under_a_reader(lab: Lab) -> None:
    table = lab.make("t")
    for batch in (1, 2, 3):
        lab.write(table, batch, [(batch, 1)])
    reader = source(lab)
    offset = reader.latest_offset({})
    assert reader.caught_up(offset)
    lab.roll_back("db.t", 1)
    for batch in (4, 5):
        lab.write(table, batch, [(batch, 7)], user="another")
    with pytest.raises(DataLossError, match="rolled back"):
        reader.caught_up(offset)


@pytest.mark.parametrize("before", PRODUCERS)
@pytest.mark.parametrize("after", PRODUCERS)
def test_another_changelog_producer(lab: Lab, before: str, after: str) -> None:
    table = lab.make("t", {"changelog-producer": before})
    lab.write(table, 1, [(1, 1)])
    offset = read_to(lab)
    produce(lab, after)
    if before == after or {before, after} <= set(SEEN_AT_COMMIT):
        source(lab).check(offset)
        return
    refused(lab, offset, re.escape("its 'changelog-producer' was changed"))


def test_a_producer_that_changes_under_a_reader(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 1)])
    reader = source(lab)
    offset = reader.latest_offset({})
    produce(lab, "lookup")
    with pytest.raises(DataLossError, match="'changelog-producer' was changed"):
        reader.latest_offset(offset)


def test_a_table_that_is_altered_or_renamed_is_the_same(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 1)])
    offset = read_to(lab)
    lab.warehouse.alter_table("db.t", SetTableOption("num-sorted-run.compaction-trigger", "7"))
    source(lab).check(offset)
    lab.warehouse.rename_table("db.t", "db.u")
    source(lab, "db.u").check(offset)


def test_an_empty_table_has_an_origin_too(lab: Lab) -> None:
    lab.make("t")
    latest = PaimonSource(lab.warehouse.options, "db.t", options={"scan.mode": "latest"})
    offset = latest.latest_offset({})
    assert offset["snapshot"] == 0 and set(offset[OF]) == {"table", "changes"}
    lab.warehouse.drop_table("db", "t")
    lab.write(lab.make("t"), 1, [(1, 1)])
    refused(lab, offset, "dropped and created again")
