"""The worker process that plans scripts: limits, timeouts and restarts."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.serve.conftest import start_worker
from tests.waiting import DEADLINE_S

from streamhouse.errors import BusyError
from streamhouse.serve.pipelines import checker as module
from streamhouse.serve.pipelines.checker import Checker

GOOD = "CREATE TABLE a (i INT); CREATE TABLE b (i INT); INSERT INTO b SELECT i FROM a;"


@pytest.fixture
def warehouse(tmp_path: Path) -> dict[str, str]:
    return {"warehouse": str(tmp_path)}


@pytest.fixture
def checker(warehouse: dict[str, str]) -> Iterator[Checker]:
    made = Checker(warehouse, plan_s=DEADLINE_S)
    yield made
    made.close()


def pid(checker: Checker) -> int:
    assert checker._worker is not None
    return checker._worker.pid


def test_one_process_plans_all_scripts(
    checker: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "start_worker", start_worker)
    found = checker.check(GOOD)
    assert found["ok"] and found["statements"] == 3
    first = pid(checker)
    bad = checker.check("CREAT TABLE a (i INT)")
    assert (bad["ok"], bad["error"]["line"], bad["error"]["column"]) == (False, 1, 1)
    large = "-- " + "x" * 1_000_000 + "\n" + GOOD
    assert checker.check(large)["ok"]
    drawn = checker.draw(GOOD)
    assert drawn["svg"].startswith("<svg") and drawn["graph"] == found["graph"]
    assert checker.draw(GOOD) is drawn
    assert pid(checker) == first
    assert list(tmp_path.iterdir()) == []


def test_worker_restarts_after_it_died(checker: Checker) -> None:
    assert checker.check(GOOD)["ok"]
    first = pid(checker)
    os.kill(first, signal.SIGKILL)
    found = checker.check(GOOD)
    if not found["ok"]:
        # The request was sent just before the process died.
        found = checker.check(GOOD)
    assert found["ok"] and pid(checker) != first


def test_planning_time_is_limited(warehouse: dict[str, str]) -> None:
    checker = Checker(warehouse, plan_s=0.0)
    try:
        found = checker.check(GOOD)
        assert not found["ok"] and "longer than 0 s" in found["error"]["message"]
        assert checker._worker is None
    finally:
        checker.close()


def test_waiting_time_is_limited(warehouse: dict[str, str]) -> None:
    checker = Checker(warehouse, wait_s=0.01)
    with checker._lock, pytest.raises(BusyError, match="other scripts are being checked"):
        checker.check(GOOD)
    checker.close()


def test_concurrent_threads(checker: Checker) -> None:
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(checker.check(GOOD)["ok"])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert answers == [True] * 4


def test_close_ends_the_worker(warehouse: dict[str, str]) -> None:
    checker = Checker(warehouse, plan_s=DEADLINE_S)
    assert checker.check(GOOD)["ok"]
    worker = checker._worker
    assert worker is not None
    checker.close()
    assert worker.returncode is not None
    assert not checker.check(GOOD)["ok"]
