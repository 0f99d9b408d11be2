"""Work over an object store is repeated while the store fails, for a while."""

from __future__ import annotations

import logging

import pytest

from streamhouse.errors import StoreError, TableError
from streamhouse.paimon.storage.object_store import store_retries
from streamhouse.paimon.storage.object_store.store_retries import retried


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(store_retries, "time", made)
    return made


def failing_until(clock: Clock, end: float) -> int:
    attempts = 0

    def work() -> int:
        nonlocal attempts
        attempts += 1
        if clock.now < end:
            raise StoreError("500")
        return attempts

    return retried(work)


def test_one_fault_costs_a_tenth_of_a_second(clock: Clock) -> None:
    assert failing_until(clock, 0.05) == 2
    assert clock.now == 0.1


def test_an_outage_is_waited_for_with_one_warning(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert failing_until(clock, 40.0) < 30
    assert 40.0 <= clock.now <= 42.0
    assert [record.message for record in caplog.records] == ["500; trying again for up to 60 s"]


def test_an_unreachable_store_is_an_error_after_a_minute(clock: Clock) -> None:
    with pytest.raises(StoreError):
        failing_until(clock, 1_000.0)
    assert 55.0 < clock.now <= 60.0


def test_nested_repetitions_do_not_multiply(clock: Clock) -> None:
    with pytest.raises(StoreError):
        retried(lambda: failing_until(clock, 1_000.0))
    assert clock.now <= 62.0


def test_long_work_is_repeated_although_its_attempts_take_long(clock: Clock) -> None:
    attempts: list[float] = []

    def work() -> int:
        clock.sleep(100.0)
        attempts.append(clock.now)
        if len(attempts) < 5:
            raise StoreError("500")
        return len(attempts)

    assert retried(work) == 5


def test_other_errors_are_not_repeated(clock: Clock) -> None:
    def work() -> None:
        raise TableError("no")

    with pytest.raises(TableError):
        retried(work)
    assert clock.now == 0.0


def test_a_number_of_tries(clock: Clock) -> None:
    attempts: list[int] = []

    def work() -> None:
        attempts.append(1)
        raise StoreError("torn")

    with pytest.raises(StoreError):
        retried(work, tries=3)
    assert len(attempts) == 3
