"""Pauses of queries and compactions."""

from __future__ import annotations

import pytest
from tests.unit.clock import Clock

from streamhouse.paimon.maintenance.policy import MaintenancePolicy, Pace
from streamhouse.paimon.maintenance.table_schedule import Kind, TableSchedule
from streamhouse.runtime.streaming.pacing import Pacing, Role


@pytest.mark.parametrize(("took", "pause"), [(None, 0.5), (0.02, 0.05), (0.4, 0.1), (4.0, 0.5)])
def test_quick_compactions_follow_each_other_quickly(took: float | None, pause: float) -> None:
    policy = MaintenancePolicy.of(True, {"changelog-producer": "lookup"}, Pace())
    durations: dict[Kind, float] = {} if took is None else {"compact": took}
    assert TableSchedule("t", Pace(), policy=policy, durations=durations).pause() == pause


def test_compactions_without_waiting_queries_pause() -> None:
    policy = MaintenancePolicy.of(True, {}, Pace())
    assert TableSchedule("t", Pace(), policy=policy, durations={"compact": 0.02}).pause() == 1.0


@pytest.mark.parametrize(
    ("queries", "took", "pause"), [(1, 5.0, 0.0), (2, 5.0, 5.0), (9, 60.0, 10.0)]
)
def test_a_refresh_leaves_half_of_the_time_to_other_queries(
    queries: int, took: float, pause: float
) -> None:
    assert Pacing(queries).refresh_pause_s(took) == pause


def test_few_queries_never_pause() -> None:
    pacing = Pacing(4, processors=2)
    assert [pacing.pause_s("a", role, 5.0) for role in Role] == [0.0, 0.0, 0.0]


def test_sources_pause_until_the_batches_of_all_queries_fit_the_processors() -> None:
    pacing = Pacing(8, processors=2)
    assert pacing.pause_s("ods", Role.SOURCE, 0.3) == pytest.approx(0.0)
    for name in ("dwd", "dws", "app"):
        assert pacing.pause_s(name, Role.DOWNSTREAM, 0.3) == 0.0
    # 1.2 s of batches on 1.5 processors: one round every 0.8 s.
    assert pacing.pause_s("ods", Role.SOURCE, 0.3) == pytest.approx(0.5)
    assert pacing.pause_s("dimension", Role.LOOKUP, 0.3) == pytest.approx(2 * 1.5 / 1.5 - 0.3)


def test_more_processors_mean_shorter_pauses() -> None:
    few, many = Pacing(8, processors=2), Pacing(8, processors=4)
    for pacing in (few, many):
        pacing.pause_s("dwd", Role.DOWNSTREAM, 1.2)
    assert few.pause_s("ods", Role.SOURCE, 0.3) == pytest.approx(0.7)
    assert many.pause_s("ods", Role.SOURCE, 0.3) == pytest.approx(0.2)


def test_a_backlog_does_not_make_pauses_long() -> None:
    pacing = Pacing(8, processors=2)
    pacing.pause_s("dwd", Role.DOWNSTREAM, 600.0)
    assert pacing.pause_s("ods", Role.SOURCE, 0.3) == pytest.approx(1.0)
    assert pacing.pause_s("dimension", Role.LOOKUP, 0.3) == pytest.approx(2.0)


def test_idle_queries_do_not_count() -> None:
    clock = Clock()
    pacing = Pacing(8, processors=2, clock=clock)
    pacing.pause_s("dwd", Role.DOWNSTREAM, 1.2)
    clock.now += 60
    assert pacing.pause_s("ods", Role.SOURCE, 0.3) == 0.0


def test_one_slow_batch_changes_the_pauses_only_a_little() -> None:
    pacing = Pacing(8, processors=2)
    for took in (0.3, 0.3, 1.3):
        pacing.pause_s("dwd", Role.DOWNSTREAM, took)
    assert pacing.pause_s("ods", Role.SOURCE, 0.3) == pytest.approx((0.6 + 0.3) / 1.5 - 0.3)


def test_queries_that_commits_wake_poll_rarely() -> None:
    pacing = Pacing(8)
    assert pacing.poll_s(Role.DOWNSTREAM) == pacing.poll_s(Role.LOOKUP) == 0.05


@pytest.mark.parametrize(("queries", "seconds"), [(1, 0.01), (4, 0.01), (8, 0.02)])
def test_the_more_queries_poll_the_less_often_does_each(queries: int, seconds: float) -> None:
    assert Pacing(queries).poll_s(Role.SOURCE) == pytest.approx(seconds)
