"""When views are refreshed: their progress, and the time as an input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession

from streamhouse.runtime.state import batch_logs
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views import task as refresh_task
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.refresh import refresh
from streamhouse.source import Offset


@pytest.fixture
def session(tmp_path: Path) -> ViewSession:
    made = ViewSession(tmp_path / "warehouse")
    made.execute("INSERT INTO visits VALUES (1, 'a', 1), (1, 'b', 2), (2, 'c', 3)")
    return made


def test_the_first_refresh_says_how_many_rows_are_left(
    session: ViewSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh_task, "_NOTED_EVERY_S", 0.0)
    session.view("v", "SELECT page, MAX(seconds) AS most FROM visits GROUP BY page")
    spec = replace(session.spec("v"), query_id="q", progress=str(tmp_path / "rows_read"))
    planner = ViewPlanner(spec)
    assert planner.rows_left({}) == 3
    end = planner.latest_offset({})
    list(refresh_task.run(spec, TaskInput(0, {}, end)))
    assert planner.rows_left({}) == 0
    assert planner.rows_left(end) is None


def test_rows_leave_as_time_passes_once_a_tick(
    session: ViewSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(batch_logs, "time", type("Time", (), {
        "time_ns": staticmethod(lambda: int(now[0] * 1e9))
    }))  # fmt: skip
    session.view(
        "v",
        "SELECT page FROM visits WHERE TIMESTAMPADD(SECOND, seconds, TIMESTAMP '1970-01-01 "
        "00:00:00') > LOCALTIMESTAMP",
    )
    spec = session.spec("v")
    planner = ViewPlanner(spec)
    offset: Offset = {}
    seen, refreshes = [], 0
    for tenth in range(0, 45, 5):
        now[0] = tenth / 10
        end = planner.latest_offset(offset)
        if end == offset:
            continue
        changes = refresh(spec, end).total()
        assert not refresh(spec, end), "a replay writes nothing more"
        if changes:
            seen.append((int(now[0]), changes))
        offset, refreshes = end, refreshes + 1
    assert refreshes <= 5
    assert seen == [(0, 3), (1, 1), (2, 1), (3, 1)]
