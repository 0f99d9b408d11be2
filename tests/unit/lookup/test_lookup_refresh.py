"""When a lookup joins a newer version: by a clock that the test sets."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import OptionError
from streamhouse.lookup.refresh import RefreshRule
from streamhouse.paimon.catalog import Warehouse
from streamhouse.paimon.commit import TableCommitter, TableWriter
from streamhouse.runtime.pins import Pins, pinned_partitions
from streamhouse.runtime.spec import TableAddress
from streamhouse.source import Offset
from streamhouse.sql.plan import Column, LookupJoin, TableInfo

BLACK = "lookup.refresh.time-periods-blacklist"
COLUMNS = (Column("day", "STRING"), Column("id", "INT"))


def at(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


class Dimension:
    """A dimension with partitions, its lookups, and the offsets of batches that join it."""

    def __init__(self, folder: Path) -> None:
        self.options = {"warehouse": str(folder)}
        warehouse = Warehouse(self.options)
        warehouse.create_database("d")
        warehouse.create_table("d", "dim", COLUMNS, (), ("day",), {"bucket": "-1"})
        self.commits = 0

    def write(self, day: str) -> None:
        writer = TableWriter(self.options, "d.dim", "test")
        writer.write(pa.record_batch({"day": [day], "id": pa.array([1], pa.int32())}))
        messages = writer.prepare(self.commits)
        writer.close()
        TableCommitter(self.options, "d.dim", "test").commit(self.commits, messages)
        self.commits += 1

    def pins(self, hint: dict[str, str], own: dict[str, str] | None = None) -> Pins:
        info = TableInfo(("c", "d", "dim"), COLUMNS, partitioned_by=("day",), options=own or {})
        lookup = LookupJoin(info, "dim_0", ("id",), ("id",), False, options=hint)
        return Pins([lookup], [TableAddress(self.options, "d.dim")])


@pytest.fixture
def dimension(tmp_path: Path) -> Dimension:
    found = Dimension(tmp_path)
    found.write("a")
    return found


def snapshot(offset: Offset) -> Any:
    return offset["dims"]["dim_0"]


def test_without_rules_each_batch_joins_the_newest(dimension: Dimension) -> None:
    pins = dimension.pins({})
    assert pins.chosen({}, 1) == {"dims": {"dim_0": 1}}
    dimension.write("a")
    assert pins.chosen({"dims": {"dim_0": 1}}, 2) == {"dims": {"dim_0": 2}}


@pytest.mark.parametrize(
    "key", ["lookup.continuous.discovery-interval", "continuous.discovery-interval"]
)
def test_an_interval_keeps_the_snapshot_until_it_has_passed(dimension: Dimension, key: str) -> None:
    pins = dimension.pins({key: "10 s"})
    first = pins.chosen({}, 5_000)
    dimension.write("a")
    second = pins.chosen(first, 14_999)
    assert (snapshot(first), snapshot(second)) == (1, 1)
    # Another process, which knows nothing but the offset, goes on alike.
    assert dimension.pins({key: "10 s"}).chosen(second, 14_999) == second
    third = pins.chosen(second, 15_000)
    dimension.write("a")
    assert snapshot(third) == 2
    assert [snapshot(pins.chosen(third, ms)) for ms in (24_999, 25_000)] == [2, 3]


def test_a_black_out_keeps_the_snapshot_and_its_ends_belong_to_it(dimension: Dimension) -> None:
    text = "2026-03-01 08:00->2026-03-01 20:00, 2026-03-02 08:00->2026-03-02 20:00"
    pins = dimension.pins({}, own={BLACK: text})
    first = pins.chosen({}, at("2026-03-01 07:00"))
    dimension.write("a")
    assert snapshot(first) == 1
    # What has not been read at all is read, black-out or not.
    assert snapshot(pins.chosen({}, at("2026-03-01 12:00"))) == 2
    for moment, expected in {
        "2026-03-01 07:59:59.999": 2,
        "2026-03-01 08:00": 1,
        "2026-03-01 20:00": 1,
        "2026-03-01 20:00:00.001": 2,
        "2026-03-02 12:00": 1,
        "2026-03-03 12:00": 2,
    }.items():
        assert snapshot(pins.chosen(first, at(moment))) == expected, moment


def test_a_snapshot_that_is_gone_is_not_kept(dimension: Dimension) -> None:
    pins = dimension.pins({"lookup.continuous.discovery-interval": "1 h"})
    first = pins.chosen({}, 0)
    dimension.write("a")
    folder = Path(Warehouse(dimension.options).table("d.dim").location) / "snapshot"
    (folder / "snapshot-1").unlink()
    assert snapshot(pins.chosen(first, 1)) == 2


def test_another_table_or_choice_starts_anew(dimension: Dimension) -> None:
    hour = {"lookup.continuous.discovery-interval": "1 h"}
    first = dimension.pins(hour).chosen({}, 0)
    dimension.write("b")
    other = {**first, "refreshed": {"dim_0": {**first["refreshed"]["dim_0"], "table": "d.old"}}}
    assert snapshot(dimension.pins(hour).chosen(other, 1)) == 2
    newest = dimension.pins({**hour, "scan.partitions": "max_pt()"}).chosen(first, 1)
    assert (snapshot(newest), pinned_partitions(newest, "dim_0")) == (2, [("b",)])


@pytest.mark.parametrize("key", ["scan.partitions", "lookup.dynamic-partition"])
def test_the_newest_partition_moves_with_the_table(dimension: Dimension, key: str) -> None:
    pins = dimension.pins({key: "max_pt()"})
    first = pins.chosen({}, 1)
    assert first == {"dims": {"dim_0": 1}, "partitions": {"dim_0": [["a"]]}}
    dimension.write("b")
    second = pins.chosen(first, 2)
    assert second == {"dims": {"dim_0": 2}, "partitions": {"dim_0": [["b"]]}}
    dimension.write("a")
    assert pins.chosen(second, 3) == {"dims": {"dim_0": 3}, "partitions": {"dim_0": [["b"]]}}
    assert pinned_partitions(second, "dim_1") is None


def test_partitions_have_an_interval_of_their_own(dimension: Dimension) -> None:
    pins = dimension.pins(
        {"scan.partitions": "max_pt()", "lookup.dynamic-partition.refresh-interval": "1 min"}
    )
    first = pins.chosen({}, 0)
    dimension.write("b")
    second = pins.chosen(first, 59_999)
    assert (snapshot(second), pinned_partitions(second, "dim_0")) == (2, [("a",)])
    third = pins.chosen(second, 60_000)
    assert (snapshot(third), pinned_partitions(third, "dim_0")) == (2, [("b",)])


def test_a_hint_goes_before_the_tables_own_option(dimension: Dimension) -> None:
    dimension.write("b")
    own = {"scan.partitions": "day=a", "lookup.continuous.discovery-interval": "1 h"}
    hint = {"lookup.dynamic-partition": "max_two_pt()", "continuous.discovery-interval": "0 s"}
    chosen = dimension.pins(hint, own).chosen({}, 0)
    assert chosen == {"dims": {"dim_0": 2}, "partitions": {"dim_0": [["b"], ["a"]]}}
    assert dimension.pins({}, own).chosen({}, 0)["partitions"] == {"dim_0": [["a"]]}


@pytest.mark.parametrize(
    "text",
    ["8:00->9:00", "2026-01-01 08:00", "2026-01-02 00:00->2026-01-01 00:00", "x->y", "2026,"],
)
def test_periods_that_cannot_be_read_are_told(text: str) -> None:
    with pytest.raises(OptionError, match="is not a list of periods; write '2026-01-31 08:00->"):
        RefreshRule.parse({BLACK: text}, (), "lookup of t")


def test_rules_are_told_in_words() -> None:
    options = {
        "scan.partitions": "max_pt()",
        "lookup.continuous.discovery-interval": "1 min",
        BLACK: "2026-03-01 08:00->2026-03-01 20:00",
    }
    assert RefreshRule.parse(options, ("day",), "t").words() == (
        "partitions max_pt(), refreshed every 60000 ms, "
        "not refreshed 2026-03-01 08:00 to 2026-03-01 20:00"
    )
    assert RefreshRule().words() == ""
