"""How long queries and compactions leave each other alone."""

from __future__ import annotations

import pytest

from streamhouse.paimon.maintenance.policy import MaintenancePolicy, Pace
from streamhouse.paimon.maintenance.service import Maintenance, _State
from streamhouse.runtime.pipeline import least_pause
from streamhouse.runtime.streaming.query import rest_s


def test_only_many_queries_pause_between_their_batches() -> None:
    assert [least_pause(queries) for queries in (1, 4, 8)] == [0.0, 0.0, 0.5]
    assert [least_pause(queries, looked_up=True) for queries in (1, 4, 8)] == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(("took", "pause"), [(None, 0.5), (0.02, 0.1), (0.3, 0.3), (4.0, 0.5)])
def test_quick_compactions_follow_each_other_quickly(took: float | None, pause: float) -> None:
    care = MaintenancePolicy.of(True, {"changelog-producer": "lookup"}, Pace())
    state = _State(care=care, took={} if took is None else {"compact": took})
    assert Maintenance({}, tuple)._pause(state, care) == pause


def test_compactions_that_nobody_waits_for_keep_their_distance() -> None:
    care = MaintenancePolicy.of(True, {}, Pace())
    assert Maintenance({}, tuple)._pause(_State(care=care, took={"compact": 0.02}), care) == 1.0


def test_a_query_rests_as_long_as_its_batch_took_but_not_for_long() -> None:
    assert [rest_s(took, 0.0) for took in (0.0, 0.5, 9.0)] == [0.0, 0.0, 0.0]
    assert [rest_s(took, 0.5) for took in (0.0, 0.1, 0.3, 0.8, 9.0)] == [0.5, 0.4, 0.3, 0.8, 1.0]
