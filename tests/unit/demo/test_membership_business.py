"""The seed determines all changes of the membership business."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from streamhouse.demo.membership import business
from streamhouse.demo.membership.business import ACTOR, DESK, Business, BusinessStep, Steps

NOON = 1_767_268_800_000
KINDS = {"order", "correct", "move", "late", "cancel", "together", "level"}


def history(seed: int, steps: int = 2_000) -> tuple[Steps, list[BusinessStep]]:
    made = Steps(seed, NOON, 2.3)
    return made, [*made.beginning(400), *(made.next() for _ in range(steps))]


def orders(step: BusinessStep) -> list[int]:
    """The orders that a step inserts, updates or deletes."""
    if step.kind == "level":
        return []
    own = [
        statement
        for statement in step.statements
        if not statement.sql.startswith("INSERT INTO member_event")
    ]
    return [one.parameters[0 if step.kind == "order" else -1] for one in own]


def test_the_same_seed_makes_the_same_history() -> None:
    assert history(3)[1] == history(3)[1]
    assert history(3)[1] != history(4)[1]


def test_all_kinds_of_changes_happen() -> None:
    _, steps = history(1)
    assert {step.kind for step in steps} == KINDS
    assert sum(step.changes for step in steps[400:]) / 2_000 == pytest.approx(1.15, abs=0.1)


def test_nothing_happens_to_an_order_once_it_is_cancelled() -> None:
    _, steps = history(2)
    cancelled: set[int] = set()
    for step in steps:
        assert not cancelled & set(orders(step)), step
        if step.kind == "cancel":
            mark, journal, delete = step.statements
            assert "event_time" in mark.sql and delete.sql.startswith("DELETE")
            cancelled.add(journal.parameters[0])
    assert len(cancelled) > 50


def test_nothing_happens_to_orders_of_closed_days() -> None:
    made, steps = history(5)
    days = {order: step.statements[0].parameters[1] for step in steps for order in orders(step)
            if step.kind == "order"}  # fmt: skip
    touched = {days[order] for step in steps if step.kind != "order" for order in orders(step)}
    assert made.closed_day in days.values()
    assert touched and min(touched) > made.closed_day


def test_late_events_are_late_by_up_to_an_hour() -> None:
    _, steps = history(6)
    corrected, late = "", 0
    for step in steps[400:]:
        if step.kind == "correct":
            assert step.statements[0].parameters[1] > corrected
            corrected = step.statements[0].parameters[1]
        elif step.kind == "late" and corrected:
            late += 1
            assert step.statements[0].parameters[1] < corrected
    assert late > 100


def test_only_the_desk_sells_for_the_desk() -> None:
    made, steps = history(7)
    agents = {step.statements[0].parameters[3] for step in steps if step.kind == "order"}
    assert not agents & {DESK, ACTOR}
    assert made.desk().statements[0].parameters[3] == DESK


@pytest.mark.parametrize(("rate", "desk"), [(1, 10), (9, 90), (19, 190), (20, 200), (100, 200)])
def test_the_desk_takes_at_most_half_of_the_changes(
    rate: int, desk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MagicMock()
    cursor = server.connect().__enter__().cursor().__enter__()
    cursor.mogrify.return_value, cursor.nextset.return_value = "", False
    made, now = Business(server, rate), 0.0
    monkeypatch.setattr(business, "time", MagicMock(monotonic=lambda: now, time=lambda: now))
    # Twenty seconds.
    for pause_s in made._commits():
        now += pause_s
        if now > 20:
            break
    assert len(made.desk_ms) == pytest.approx(desk, abs=1)
    assert made.changes == pytest.approx(20 * rate, abs=5)
