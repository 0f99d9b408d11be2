"""A reader resumes where the last one with its `consumer-id` stopped."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamhouse.errors import DataLossError, OptionError
from streamhouse.paimon.changelog.consumers import Consumers
from streamhouse.paimon.changelog.offset_origin import bare
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.read.table import Table
from streamhouse.source import Offset

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab


def reader(lab: Lab, table: Table, **more: str) -> PaimonSource:
    options = {"consumer-id": "c1", **{key.replace("__", "-"): v for key, v in more.items()}}
    options = {key.replace("_", "."): value for key, value in options.items()}
    return PaimonSource(lab.warehouse.options, table.identifier, options=options)


def step(
    lab: Lab, source: PaimonSource, start: Offset, max_rows: int | None = None
) -> tuple[Offset, list[Any]]:
    end = source.latest_offset(start, max_rows)
    partitions = source.partitions(start, end)
    return end, [row for partition in partitions for row in lab.rows(source.read(partition))]


def drain(lab: Lab, source: PaimonSource, start: Offset | None = None) -> list[Any]:
    """All that is there, each step taken in."""
    at: Offset = start or {}
    rows: list[Any] = []
    for _ in range(50):
        end, found = step(lab, source, at)
        if end == at:
            return rows
        rows += found
        source.store_progress(end)
        at = end
    raise AssertionError("the source never came to rest")


def positions(table: Table) -> dict[str, int]:
    return {one.id: one.next_snapshot for one in Consumers(table).all()}


@pytest.mark.parametrize("kind", ["append", "input", "computed"])
def test_a_new_reader_starts_where_the_old_one_stopped(lab: Lab, kind: str) -> None:
    raw = kind == "input"
    options = {"changelog-producer": "input"} if raw else {}
    table = lab.make("t", options, keyed=kind != "append")

    def reader(lab: Lab, table: Table) -> PaimonSource:
        given = {"consumer-id": "c1", **({"scan.remove-normalize": "true"} if raw else {})}
        return PaimonSource(lab.warehouse.options, table.identifier, options=given)

    lab.write(table, 1, [(1, 1)])
    assert [row[:2] for row in drain(lab, reader(lab, table))] == [(1, 1)]
    assert positions(table)["c1"] == 2
    lab.write(table, 2, [(2, 2)])
    lab.write(table, 3, [(3, 3)])
    later = drain(lab, reader(lab, table))
    assert [row[:2] for row in later] == [(2, 2), (3, 3)]
    assert drain(lab, reader(lab, table)) == []
    assert positions(table)["c1"] == 4
    # What was there before the next change is needed where changes are computed.
    assert positions(table).get("streamhouse-before-c1") == (3 if kind == "computed" else None)


def test_paimon_reads_the_position_from_its_own_file(lab: Lab) -> None:
    table = lab.make("t", keyed=False)
    lab.write(table, 1, [(1, 1)])
    drain(lab, reader(lab, table, consumer_expiration__time="1 h"))
    path = Path(table.location.removeprefix("file://")) / "consumer" / "consumer-c1"
    record = json.loads(path.read_text())
    assert record == {"nextSnapshot": 2, "expiresMs": 3_600_000}
    # As another program leaves it.
    path.write_text('{\n  "nextSnapshot" : 1\n}')
    assert drain(lab, reader(lab, table)) == [(1, 1)]


def test_a_replayed_batch_ignores_the_consumers_new_position(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 1)])
    source = reader(lab, table)
    first, rows = step(lab, source, {})
    source.store_progress(first)
    again = reader(lab, table)
    assert [row for p in again.partitions({}, first) for row in lab.rows(again.read(p))] == rows
    # The same for a reader that went on from a consumer, once that one is gone.
    resumed, rows = step(lab, reader(lab, table), {})
    assert bare(resumed) == {"snapshot": 1, "resumed": True} and rows == []
    Consumers(table).drop("c1")
    assert list(reader(lab, table).partitions({}, resumed)) == []


def test_a_snapshot_half_read_is_read_again_as_a_whole(lab: Lab) -> None:
    table = lab.make("t", {"bucket": "2", "changelog-producer": "input"})
    lab.write(table, 1, [(key, 1) for key in range(20)])
    source = reader(lab, table, scan_remove__normalize="true")
    half, _ = step(lab, source, {}, max_rows=5)
    source.store_progress(half)
    assert "split" in half and positions(table) == {}
    drain(lab, source, half)
    lab.write(table, 2, [(key, 2) for key in range(20)])
    half, some = step(lab, source, {"snapshot": 1}, max_rows=5)
    source.store_progress(half)
    assert half["changes"] and 0 < len(some) < 20
    assert positions(table) == {"c1": 2}
    assert len(drain(lab, reader(lab, table, scan_remove__normalize="true"))) == 20


def test_at_least_once_writes_progress_now_and_then(lab: Lab) -> None:
    table = lab.make("t", keyed=False)
    lab.write(table, 1, [(1, 1)])
    source = reader(lab, table, consumer_mode="at-least-once")
    drain(lab, source)
    assert positions(table) == {}
    source.close()
    assert positions(table) == {"c1": 2}


def test_progress_can_be_ignored_and_is_then_set_back(lab: Lab) -> None:
    table = lab.make("t", keyed=False)
    for batch in (1, 2, 3):
        lab.write(table, batch, [(batch, batch)])
    drain(lab, reader(lab, table))
    source = reader(lab, table, consumer_ignore__progress="true")
    end, rows = step(lab, source, {})
    assert rows == [(1, 1), (2, 2), (3, 3)]
    Consumers(table).hold("c1", 9)
    source.store_progress(end)
    assert positions(table) == {"c1": 4}


def test_a_consumer_that_outlived_its_time_starts_again(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 1)])
    drain(lab, reader(lab, table, consumer_expiration__time="1 min"))
    path = Path(table.location.removeprefix("file://")) / "consumer" / "consumer-c1"
    assert Consumers(table).drop_expired() == []
    old = time.time() - 120
    os.utime(path, (old, old))
    assert len(drain(lab, reader(lab, table))) == 1
    drain(lab, reader(lab, table, consumer_expiration__time="1 min"))
    lab.write(table, 2, [(2, 2)])
    drain(lab, reader(lab, table, consumer_expiration__time="1 min"))
    os.utime(path, (old, old))
    assert Consumers(table).drop_expired() == ["c1", "streamhouse-before-c1"]


def test_a_position_that_is_not_there_is_reported(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 1, [(1, 1)])
    Consumers(table).hold("c1", 7)
    with pytest.raises(
        DataLossError, match=r"snapshot 7 next, but the table has 1 to 1; CALL sys\."
    ):
        reader(lab, table).latest_offset({})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"consumer-id": "a/b"}, "becomes a file name"),
        ({"consumer-id": "streamhouse-x"}, "choose another"),
        ({"consumer-id": ""}, "becomes a file name"),
        ({"consumer.mode": "at-least-once"}, "'consumer.mode' needs 'consumer-id'"),
        ({"consumer-id": "c", "consumer.mode": "once"}, "is not one of exactly-once"),
        ({"consumer-id": "c", "consumer.expiration-time": "soon"}, "is not a duration"),
        (
            {"consumer-id": "c", "consumer.expiration-time": "5"},
            "the least is '1000ms'",
        ),
        ({"consumer-id": "c", "consumer.ignore-progress": "1"}, "neither 'true' nor 'false'"),
    ],
)
def test_wrong_options_are_reported(lab: Lab, options: dict[str, str], message: str) -> None:
    table = lab.make("t")
    with pytest.raises(OptionError, match=message):
        PaimonSource(lab.warehouse.options, table.identifier, options=options)
