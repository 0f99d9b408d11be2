"""Writers wait while a bucket has too many level-0 files."""

from __future__ import annotations

import threading
import time

import pytest
from tests.waiting import DEADLINE_S

from streamhouse.errors import OptionError
from streamhouse.paimon.maintenance import backpressure as module
from streamhouse.paimon.maintenance.backpressure import Backpressure
from streamhouse.paimon.maintenance.policy import MaintenancePolicy, Pace


def never() -> bool:
    return False


def test_a_writer_waits_until_the_next_commit_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAIT_S", 3600.0)
    monkeypatch.setattr(module, "WAIT_PER_FILE_S", 3600.0)
    pressure = Backpressure()
    pressure.limit("t", 4)
    pressure.added("t", 2)
    pressure.wait("t", never)
    pressure.added("t", 1)
    began = time.monotonic()
    assert pressure.files("t") == 3
    done = threading.Event()

    def write() -> None:
        pressure.wait("t", never)
        done.set()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    assert not done.wait(0.2)
    pressure.added("t", 1)
    pressure.compacted("t", began)
    assert done.wait(DEADLINE_S)
    assert pressure.files("t") == 1
    thread.join(DEADLINE_S)


@pytest.mark.parametrize("way", ["unlimited", "ended", "stopped"])
def test_no_query_waits_for_a_compaction_that_will_not_run(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAIT_S", 3600.0)
    monkeypatch.setattr(module, "WAIT_PER_FILE_S", 3600.0)
    pressure = Backpressure()
    for _ in range(20):
        pressure.added("t", 1)
    if way == "unlimited":
        pressure.limit("t", None)
    elif way == "ended":
        pressure.end()
    pressure.wait("t", lambda: way == "stopped")


def test_a_wait_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAIT_S", 0.1)
    pressure = Backpressure()
    for _ in range(20):
        pressure.added("t", 1)
    pressure.wait("t", never)
    assert pressure.files("t") == 20


def test_each_file_above_the_limit_adds_to_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_PER_FILE_S", 0.3)
    pressure = Backpressure()
    pressure.limit("t", 4)
    for _ in range(4):
        pressure.added("t", 1)
    waits = []
    for _ in range(2):
        began = time.monotonic()
        pressure.wait("t", never)
        waits.append(time.monotonic() - began)
        pressure.added("t", 1)
    assert 0.3 <= waits[0] < module.MAX_WAIT_S
    assert 0.6 <= waits[1] < module.MAX_WAIT_S


def test_patience_ends_until_the_next_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAIT_S", 3600.0)
    monkeypatch.setattr(module, "WAIT_PER_FILE_S", 3600.0)
    monkeypatch.setattr(module, "MAX_TOTAL_WAIT_S", 0.1)
    pressure = Backpressure()
    for _ in range(20):
        pressure.added("t", 1)
    pressure.wait("t", never)
    monkeypatch.setattr(module, "_STEP_S", 3600.0)
    pressure.wait("t", never)


def test_it_is_known_ahead_when_level_0_will_be_full() -> None:
    pressure = Backpressure()
    pressure.limit("t", 8)
    assert not pressure.fills_within("t", 1000.0)
    for _ in range(4):
        pressure.added("t", 1)
    assert not pressure.fills_within("t", 0.0)
    assert pressure.fills_within("t", 1000.0)
    for _ in range(4):
        pressure.added("t", 1)
    assert pressure.fills_within("t", 0.0)
    pressure.limit("t", None)
    assert not pressure.fills_within("t", 1000.0)


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ({}, 8),
        ({"num-sorted-run.compaction-trigger": "3"}, 6),
        ({"num-sorted-run.stop-trigger": "20"}, 20),
        ({"num-sorted-run.stop-trigger": "2"}, 6),
        ({"changelog-producer": "lookup"}, 8),
        ({"changelog-producer": "lookup", "lookup-compact": "gentle"}, 11),
        ({"write-only": "true"}, None),
        ({"bucket": "-2"}, None),
    ],
)
def test_how_many_files_are_allowed(options: dict[str, str], files: int | None) -> None:
    assert MaintenancePolicy.of(True, options, Pace()).most_files == files


def test_tables_without_a_key_have_no_level_0() -> None:
    assert MaintenancePolicy.of(False, {}, Pace()).most_files is None


def test_a_trigger_is_a_number() -> None:
    with pytest.raises(OptionError, match=r"num-sorted-run\.stop-trigger"):
        MaintenancePolicy.of(True, {"num-sorted-run.stop-trigger": "many"}, Pace())


def test_added_files_end_a_wait_for_files() -> None:
    pressure = Backpressure()
    pressure.added("t", 1)
    began = time.monotonic()
    pressure.wait_for_files(DEADLINE_S)
    assert time.monotonic() - began < DEADLINE_S / 2
    began = time.monotonic()
    pressure.wait_for_files(0.05)
    assert time.monotonic() - began >= 0.05
