"""A refresh waits a little for inputs that change together, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.clock import Clock
from tests.unit.views.view_session import ViewSession

from streamhouse.runtime.views.planner import JOINT_WAIT_S, JointChanges, ViewPlanner

SLOW_S = 1.0
"""A refresh after which the next one waits as long as any."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _refresh(joint: JointChanges, clock: Clock, seconds: float, *changed: str) -> None:
    joint.planned(set(changed))
    clock.now += seconds


def test_the_rest_of_a_joint_change_is_waited_for(clock: Clock) -> None:
    joint = JointChanges(clock)
    _refresh(joint, clock, SLOW_S, "orders")
    # The others have changed meanwhile; nothing is known about them yet.
    assert not joint.awaited(1, {"customers", "products"})
    _refresh(joint, clock, SLOW_S, "customers", "products")
    assert not joint.awaited(2, set())
    clock.now += 5
    assert joint.awaited(2, {"orders"})
    assert joint.awaited(2, {"orders", "customers"})
    assert not joint.awaited(2, {"orders", "customers", "products"})
    _refresh(joint, clock, SLOW_S, "orders", "customers", "products")
    assert joint.awaited(3, {"products"})


def test_the_wait_has_an_end(clock: Clock) -> None:
    for seconds, limit in ((SLOW_S, JOINT_WAIT_S), (0.04, 0.02)):
        joint = JointChanges(clock)
        _refresh(joint, clock, seconds, "a", "b")
        assert not joint.awaited(1, set())
        clock.now += 60
        assert joint.awaited(1, {"a"})
        clock.now += limit * 0.9
        assert joint.awaited(1, {"a"})
        clock.now += limit * 0.2
        assert not joint.awaited(1, {"a"})
        _refresh(joint, clock, seconds, "a")
        assert not joint.awaited(2, {"a"}), "after one that came alone"


def test_inputs_that_change_at_other_times_are_not_waited_for(clock: Clock) -> None:
    joint = JointChanges(clock)
    for batch, name in enumerate(("a", "b", "a", "b"), start=1):
        _refresh(joint, clock, SLOW_S, name)
        assert not joint.awaited(batch, set())
        clock.now += 5
        assert not joint.awaited(batch, {"b" if name == "a" else "a"})


def test_one_refresh_reads_all_inputs_of_a_joint_change(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    session.view("v", "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer_id = c.id")
    plans = ViewPlanner(session.spec("v"))
    session.execute("INSERT INTO customers VALUES (1, 'a', 'DE', TRUE)")
    first = plans.latest_offset({})
    both = "INSERT INTO orders (id, customer_id) VALUES (1, 1); {}"
    customer = "INSERT INTO customers VALUES (1, 'b', 'FR', TRUE)"
    session.execute(both.format(customer))
    start = plans.latest_offset(first)
    session.execute(customer)
    assert plans.latest_offset(start) == start
    session.execute("INSERT INTO orders (id, customer_id) VALUES (2, 1)")
    end = plans.latest_offset(start)
    assert [at["snapshot"] for at in end["vector"].values()] == [2, 3]
    assert end["batch"] == first["batch"] + 2
