"""Counters of a query."""

from __future__ import annotations

import pytest
from tests.unit.clock import Clock

from streamhouse.runtime.monitoring.metrics import (
    WINDOW_S,
    Commit,
    CountedBatch,
    QueryCounts,
    QueryMetrics,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_rate_is_over_the_last_seconds(clock: Clock) -> None:
    metrics = QueryMetrics(clock)
    for _ in range(30):
        clock.now += 1
        metrics.count_batch(CountedBatch(500), 0.2)
    snapshot = metrics.read()
    assert snapshot.rows_per_second == 500
    assert (snapshot.batches, snapshot.rows, snapshot.took_ms) == (30, 15_000, 200)
    clock.now += WINDOW_S / 2
    assert metrics.read().rows_per_second == 250
    clock.now += WINDOW_S
    assert metrics.read().rows_per_second == 0
    assert metrics.read().rows == 15_000


def test_a_query_that_has_just_started_is_not_reported_as_slow(clock: Clock) -> None:
    metrics = QueryMetrics(clock)
    assert metrics.read() == QueryCounts()
    clock.now += 60
    metrics.begin()
    clock.now += 2
    metrics.count_batch(CountedBatch(1_000), 0.1)
    assert metrics.read().rows_per_second == 500


def test_changes_and_the_last_commit_of_rows_are_kept(clock: Clock) -> None:
    metrics, commit = QueryMetrics(clock), Commit(3.5, 2, 40, 1, 2)
    metrics.count_view(10)
    metrics.count_batch(CountedBatch(3, changes={"+I": 2, "-U": 1, "+U": 1}, commit=commit), 0.1)
    metrics.count_batch(CountedBatch(1, changes={"-D": 1}), 0.1)
    counted = metrics.read()
    assert counted.changes == {"+I": 2, "-U": 1, "+U": 1, "-D": 1}
    assert counted.commit == commit
    assert counted.view_rows == 11
