"""When a lookup joins a newer version: by a clock that the test sets."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import OptionError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.options import ASYNC, PARTITION_ASYNC, PENDING, RefreshRule
from streamhouse.lookup.storage import changed_keys
from streamhouse.lookup.storage.changed_keys import Version, few_changes_between
from streamhouse.lookup.strategies.selection import Choice
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage.snapshots import Snapshot
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.streaming.dimensions.versions import (
    DimensionVersions,
    pinned_partitions,
    preloading_version,
)
from streamhouse.source import Offset
from streamhouse.sql.plan import Column, LookupJoin, TableInfo

BLACK = "lookup.refresh.time-periods-blacklist"
COLUMNS = (Column("day", "STRING"), Column("id", "INT"))


def at(text: str) -> int:
    instant = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
    return int(instant.timestamp() * 1000)


class Dimension:
    """A dimension with partitions, its lookups, and the offsets of batches that join it."""

    def __init__(self, folder: Path) -> None:
        self.options = {"warehouse": str(folder)}
        warehouse = Warehouse(self.options)
        warehouse.create_database("d")
        warehouse.create_table("d", "dim", COLUMNS, (), ("day",), {"bucket": "-1"})
        self.commits = 0

    def write(self, day: str, rows: int = 1) -> None:
        writer = TableWriter(self.options, "d.dim", "test")
        ids = pa.array([1] * rows, pa.int32())
        writer.write(pa.record_batch({"day": [day] * rows, "id": ids}))
        messages = writer.prepare(self.commits)
        writer.close()
        TableCommitter(self.options, "d.dim", "test").commit(self.commits, messages)
        self.commits += 1

    def pins(
        self, hint: dict[str, str], own: dict[str, str] | None = None, strategy: str = "full"
    ) -> DimensionVersions:
        info = TableInfo(("c", "d", "dim"), COLUMNS, partitioned_by=("day",), options=own or {})
        lookup = LookupJoin(info, "dim_0", ("id",), ("id",), False, options=hint)
        choice = Choice(strategy, "the test says so")
        spec = DimensionSpec(lookup, TableAddress(self.options, "d.dim"))
        return DimensionVersions([spec], [choice])


@pytest.fixture
def dimension(tmp_path: Path) -> Dimension:
    found = Dimension(tmp_path)
    found.write("a")
    return found


def snapshot(offset: Offset) -> Any:
    return offset["dims"]["dim_0"]


def test_without_rules_each_batch_joins_the_newest(dimension: Dimension) -> None:
    pins = dimension.pins({})
    assert pins.offset_keys({}, 1) == {"dims": {"dim_0": 1}}
    dimension.write("a")
    assert pins.offset_keys({"dims": {"dim_0": 1}}, 2) == {"dims": {"dim_0": 2}}


@pytest.mark.parametrize(
    "key", ["lookup.continuous.discovery-interval", "continuous.discovery-interval"]
)
def test_an_interval_keeps_the_snapshot_until_it_has_passed(dimension: Dimension, key: str) -> None:
    pins = dimension.pins({key: "10 s"})
    first = pins.offset_keys({}, 5_000)
    dimension.write("a")
    second = pins.offset_keys(first, 14_999)
    assert (snapshot(first), snapshot(second)) == (1, 1)
    # Another process, which knows nothing but the offset, goes on alike.
    assert dimension.pins({key: "10 s"}).offset_keys(second, 14_999) == second
    third = pins.offset_keys(second, 15_000)
    dimension.write("a")
    assert snapshot(third) == 2
    assert [snapshot(pins.offset_keys(third, ms)) for ms in (24_999, 25_000)] == [2, 3]


def test_a_black_out_keeps_the_snapshot_and_its_ends_belong_to_it(dimension: Dimension) -> None:
    text = "2026-03-01 08:00->2026-03-01 20:00, 2026-03-02 08:00->2026-03-02 20:00"
    pins = dimension.pins({}, own={BLACK: text})
    first = pins.offset_keys({}, at("2026-03-01 07:00"))
    dimension.write("a")
    assert snapshot(first) == 1
    # What has not been read at all is read, black-out or not.
    assert snapshot(pins.offset_keys({}, at("2026-03-01 12:00"))) == 2
    for instant, expected in {
        "2026-03-01 07:59:59.999": 2,
        "2026-03-01 08:00": 1,
        "2026-03-01 20:00": 1,
        "2026-03-01 20:00:00.001": 2,
        "2026-03-02 12:00": 1,
        "2026-03-03 12:00": 2,
    }.items():
        assert snapshot(pins.offset_keys(first, at(instant))) == expected, instant


def next_version(offset: Offset) -> Any:
    return preloading_version(offset, "dim_0")


def test_what_takes_long_to_read_is_joined_once_it_is_read(
    dimension: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "FEW_ROWS", 3)
    pins = dimension.pins({ASYNC: "true", PENDING: "3"})
    first = pins.offset_keys({}, 1)
    dimension.write("a")
    second = pins.offset_keys(first, 2)
    assert [(snapshot(one), next_version(one)) for one in (first, second)] == [(1, None), (2, None)]
    dimension.write("a", 4)
    third = pins.offset_keys(second, 3)
    assert (snapshot(third), next_version(third)) == (2, (3, None))
    dimension.write("a")
    # What is on its way goes on, also in another process; others are not waited for.
    fourth = dimension.pins({ASYNC: "true", PENDING: "3"}).offset_keys(third, 4)
    assert (snapshot(fourth), next_version(fourth)) == (2, (3, None))
    # Then it is joined, with the few changes after it.
    fifth = pins.offset_keys(fourth, 5, ["dim_0"])
    assert (snapshot(fifth), next_version(fifth)) == (4, None)
    dimension.write("a", 4)
    dimension.write("a", 4)
    sixth = pins.offset_keys(fifth, 6)
    assert (snapshot(sixth), next_version(sixth)) == (4, (6, None))
    dimension.write("a", 4)
    seventh = pins.offset_keys(sixth, 7, ["dim_0"])
    assert (snapshot(seventh), next_version(seventh)) == (6, (7, None))
    for _ in range(3):
        dimension.write("a")
    # Too far behind: the newest at once.
    eighth = pins.offset_keys(seventh, 8)
    assert (snapshot(eighth), next_version(eighth)) == (10, None)


def test_without_the_option_nothing_is_waited_for(
    dimension: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "FEW_ROWS", 0)
    interval = {"lookup.continuous.discovery-interval": "1 ms"}
    for pins in (
        dimension.pins(interval),
        dimension.pins({**interval, ASYNC: "false", PENDING: "9"}),
        # By key, only what is asked for is read.
        dimension.pins({**interval, ASYNC: "true"}, strategy="partial"),
    ):
        before = pins.offset_keys({}, 1)
        dimension.write("a", 4)
        after = pins.offset_keys(before, 2)
        assert (snapshot(after), next_version(after)) == (snapshot(before) + 1, None)


def test_few_changes_of_shuffled_buckets_are_joined_at_once(
    dimension: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "FEW_ROWS", 2)
    pins = dimension.pins({ASYNC: "true"}, strategy="bucket")
    dimension.write("a")
    first = pins.offset_keys(pins.offset_keys({}, 1), 2)
    assert (snapshot(first), next_version(first)) == (2, None)
    dimension.write("a")
    second = pins.offset_keys(first, 3)
    assert (snapshot(second), next_version(second)) == (3, None)


def test_after_a_long_pause_the_newest_is_joined(
    dimension: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "FEW_ROWS", 0)
    pins = dimension.pins({ASYNC: "true"})
    first = {**pins.offset_keys({}, 1), "now": 1}
    dimension.write("a")
    second = pins.offset_keys(first, 60_001)
    assert (snapshot(second), next_version(second)) == (1, (2, None))
    for before in (first, {**second, "now": 1}):
        late = pins.offset_keys(before, 60_002)
        assert (snapshot(late), next_version(late)) == (2, None)


def test_an_expired_next_version_is_not_waited_for(
    dimension: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "FEW_ROWS", 0)
    pins = dimension.pins({ASYNC: "true"})
    first = pins.offset_keys({}, 1)
    dimension.write("a")
    second = pins.offset_keys(first, 2)
    dimension.write("a")
    folder = Path(Warehouse(dimension.options).table("d.dim").location) / "snapshot"
    (folder / "snapshot-2").unlink()
    third = pins.offset_keys(second, 3, ["dim_0"])
    assert (next_version(second), snapshot(third), next_version(third)) == ((2, None), 1, (3, None))


def test_a_black_out_also_keeps_what_has_been_read(
    dimension: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "FEW_ROWS", 0)
    pins = dimension.pins({ASYNC: "true", BLACK: "2026-03-01 08:00->2026-03-01 20:00"})
    first = pins.offset_keys({}, at("2026-03-01 07:00"))
    dimension.write("a")
    second = pins.offset_keys(first, at("2026-03-01 07:59"))
    third = pins.offset_keys(second, at("2026-03-01 08:00"), ["dim_0"])
    assert (next_version(second), snapshot(third), next_version(third)) == ((2, None), 1, (2, None))
    fourth = pins.offset_keys(third, at("2026-03-01 20:01"), ["dim_0"])
    assert (snapshot(fourth), next_version(fourth)) == (2, None)


def test_new_partitions_are_waited_for_by_an_option_of_their_own(
    dimension: Dimension, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "FEW_ROWS", 0)
    newest = {"scan.partitions": "max_pt()"}
    rows, moves = (dimension.pins({**newest, key: "true"}) for key in (ASYNC, PARTITION_ASYNC))
    first = rows.offset_keys({}, 1), moves.offset_keys({}, 1)
    dimension.write("a")
    second = rows.offset_keys(first[0], 2), moves.offset_keys(first[1], 2)
    assert [snapshot(one) for one in second] == [1, 2]
    assert [next_version(one) for one in second] == [(2, [("a",)]), None]
    dimension.write("b")
    third = rows.offset_keys(second[0], 3), moves.offset_keys(second[1], 3)
    assert [(snapshot(one), next_version(one)) for one in third] == [(3, None), (2, (3, [("b",)]))]
    assert [pinned_partitions(one, "dim_0") for one in third] == [[("b",)], [("a",)]]
    dimension.write("c")
    fourth = moves.offset_keys(third[1], 4, ["dim_0"])
    assert (snapshot(fourth), pinned_partitions(fourth, "dim_0")) == (3, [("b",)])
    assert next_version(fourth) == (4, [("c",)])


HIDDEN = {"deletion-vectors.enabled": "true"}


@pytest.mark.parametrize(
    ("options", "kind", "delta", "changelog", "total", "expected"),
    [
        ({}, "APPEND", 10_000, None, 50_000, True),
        ({}, "APPEND", 10_001, None, 50_000, False),
        ({}, "COMPACT", 0, None, 50_000, True),
        ({}, "OVERWRITE", 1, None, 50_000, False),
        ({}, "OVERWRITE", 1, None, 10_000, True),
        (HIDDEN, "APPEND", 50_000, None, 50_000, True),
        (HIDDEN, "COMPACT", 0, None, 50_000, False),
        ({**HIDDEN, "changelog-producer": "lookup"}, "COMPACT", 0, 10_000, 50_000, True),
        ({**HIDDEN, "changelog-producer": "lookup"}, "COMPACT", 0, 10_001, 50_000, False),
    ],
)
def test_what_takes_long_to_read(
    dimension: Dimension,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    kind: str,
    delta: int,
    changelog: int | None,
    total: int,
    expected: bool,
) -> None:
    given = {"bucket": "1", **options}
    Warehouse(dimension.options).create_table("d", "t", COLUMNS, ("id",), options=given)
    table = Warehouse(dimension.options).table("d.t")
    first = Snapshot(1, "u", 1, "APPEND", 0, 50_000, 50_000, None, 0)
    second = Snapshot(2, "u", 2, kind, 0, total, delta, changelog, 0)
    monkeypatch.setattr(table.snapshots, "find", {1: first, 2: second}.get)
    assert few_changes_between(Version(table, first), Version(table, second)) is expected
    # Where what has changed cannot be taken in, only few rows in all are near.
    assert few_changes_between(Version(table, first), Version(table, second), False) is (
        total == 10_000
    )


def test_an_expired_snapshot_is_not_joined(dimension: Dimension) -> None:
    pins = dimension.pins({"lookup.continuous.discovery-interval": "1 h"})
    first = pins.offset_keys({}, 0)
    dimension.write("a")
    folder = Path(Warehouse(dimension.options).table("d.dim").location) / "snapshot"
    (folder / "snapshot-1").unlink()
    assert snapshot(pins.offset_keys(first, 1)) == 2


def test_another_table_or_choice_starts_again(dimension: Dimension) -> None:
    hour = {"lookup.continuous.discovery-interval": "1 h"}
    first = dimension.pins(hour).offset_keys({}, 0)
    dimension.write("b")
    other = {**first, "refreshed": {"dim_0": {**first["refreshed"]["dim_0"], "table": "d.old"}}}
    assert snapshot(dimension.pins(hour).offset_keys(other, 1)) == 2
    newest = dimension.pins({**hour, "scan.partitions": "max_pt()"}).offset_keys(first, 1)
    assert (snapshot(newest), pinned_partitions(newest, "dim_0")) == (2, [("b",)])


@pytest.mark.parametrize("key", ["scan.partitions", "lookup.dynamic-partition"])
def test_the_newest_partition_moves_with_the_table(dimension: Dimension, key: str) -> None:
    pins = dimension.pins({key: "max_pt()"})
    first = pins.offset_keys({}, 1)
    assert first == {"dims": {"dim_0": 1}, "partitions": {"dim_0": [["a"]]}}
    dimension.write("b")
    second = pins.offset_keys(first, 2)
    assert second == {"dims": {"dim_0": 2}, "partitions": {"dim_0": [["b"]]}}
    dimension.write("a")
    assert pins.offset_keys(second, 3) == {"dims": {"dim_0": 3}, "partitions": {"dim_0": [["b"]]}}
    assert pinned_partitions(second, "dim_1") is None


def test_partitions_have_an_interval_of_their_own(dimension: Dimension) -> None:
    pins = dimension.pins(
        {"scan.partitions": "max_pt()", "lookup.dynamic-partition.refresh-interval": "1 min"}
    )
    first = pins.offset_keys({}, 0)
    dimension.write("b")
    second = pins.offset_keys(first, 59_999)
    assert (snapshot(second), pinned_partitions(second, "dim_0")) == (2, [("a",)])
    third = pins.offset_keys(second, 60_000)
    assert (snapshot(third), pinned_partitions(third, "dim_0")) == (2, [("b",)])


def test_a_hint_overrides_the_tables_own_option(dimension: Dimension) -> None:
    dimension.write("b")
    own = {"scan.partitions": "day=a", "lookup.continuous.discovery-interval": "1 h"}
    hint = {"lookup.dynamic-partition": "max_two_pt()", "continuous.discovery-interval": "0 s"}
    chosen = dimension.pins(hint, own).offset_keys({}, 0)
    assert chosen == {"dims": {"dim_0": 2}, "partitions": {"dim_0": [["b"], ["a"]]}}
    assert dimension.pins({}, own).offset_keys({}, 0)["partitions"] == {"dim_0": [["a"]]}


def rule_of(options: Mapping[str, str], *partitioned_by: str) -> RefreshRule:
    """The rule of a lookup of a table with these options."""
    table = TableInfo(("c", "d", "t"), (), partitioned_by=partitioned_by, options=options)
    return RefreshRule.of(LookupJoin(table, "dim_0", (), (), False))


@pytest.mark.parametrize(
    "text",
    ["8:00->9:00", "2026-01-01 08:00", "2026-01-02 00:00->2026-01-01 00:00", "x->y", "2026,"],
)
def test_periods_that_cannot_be_read_are_reported(text: str) -> None:
    with pytest.raises(OptionError, match="is not a list of periods; write '2026-01-31 08:00->"):
        rule_of({BLACK: text})


def test_rules_are_described_as_text() -> None:
    options = {
        "scan.partitions": "max_pt()",
        "lookup.continuous.discovery-interval": "1 min",
        BLACK: "2026-03-01 08:00->2026-03-01 20:00",
    }
    assert rule_of(options, "day").describe() == (
        "partitions max_pt(), refreshed every 60000 ms, "
        "not refreshed 2026-03-01 08:00 to 2026-03-01 20:00"
    )
    assert RefreshRule().describe() == ""
    concurrent_commit = {
        "scan.partitions": "max_pt()",
        ASYNC: "TRUE",
        PARTITION_ASYNC: "true",
        PENDING: "2",
    }
    assert rule_of(concurrent_commit, "day").describe() == (
        "partitions max_pt(), reloaded in the background, at most 2 snapshots behind, "
        "new partitions loaded in the background"
    )
