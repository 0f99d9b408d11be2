"""Refreshes in stages, by several tasks, write the rows of the query."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.views.generated_queries import queries_of
from tests.unit.views.staged_refresh import committed, staged_refresh, staged_results
from tests.unit.views.view_session import ViewSession, change

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.execute import execute
from streamhouse.runtime.streaming.spark_job import records
from streamhouse.runtime.views.planner import ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.runtime.views.staged.planning import STAGED, inputs_of, is_divisible, tasks_of
from streamhouse.runtime.views.task import run
from streamhouse.source import Offset

_VIEWS = 4


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 60))]
)
def test_generated_views(seed: int, tmp_path: Path) -> None:
    """As `test_generated_views`, by stages where several tasks can compute the view."""
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    views = queries_of(seed, _VIEWS)
    for name, query in views.items():
        session.view(name, query)
    staged = [name for name in views if is_divisible(session.spec(name).plan)]
    assert staged
    for number in range(2):
        session.execute(change(rng, number))
        for name in staged:
            spec = replace(session.spec(name), query_id=str(uuid.uuid4()))
            staged_refresh(spec, rng)
            session.check(name, views[name])
            again = staged_refresh(replace(spec, query_id=str(uuid.uuid4())), rng).total()
            assert again == 0, f"nothing has changed, but a refresh writes: {views[name]}"


@pytest.fixture
def spec(tmp_path: Path) -> ViewSpec:
    """A view of a few orders, which three tasks compute."""
    session = ViewSession(tmp_path / "warehouse")
    session.execute("INSERT INTO visits VALUES (1, 'a', 2), (2, 'b', 3), (3, 'a', 4)")
    session.view("pages", "SELECT page, COUNT(*) AS n FROM visits GROUP BY page")
    return replace(
        session.spec("pages"), query_id=str(uuid.uuid4()), parallel_rows=3, parallelism=3
    )


def test_which_refreshes_are_staged(spec: ViewSpec) -> None:
    def count(start: Offset, **changed: Any) -> int:
        return int(ViewPlanner(replace(spec, **changed)).latest_offset(start).get(STAGED, 0))

    first = ViewPlanner(spec).latest_offset({})
    assert first[STAGED] == 3 and tasks_of(spec, first) == 3
    assert [count({}, parallel_rows=rows) for rows in (None, 4)] == [0, 0]
    assert count({}, parallelism=1) == 0
    execute(spec.target.warehouse, "INSERT INTO shop.visits VALUES (4, 'c', 5)")
    assert [count(first, strategy=each) for each in ("recompute", "auto")] == [3, 3]
    assert count(first, strategy="incremental") == 0, "it may be refreshed from changes"
    more = ", ".join(f"({n}, 'c', 5)" for n in range(40))
    execute(spec.target.warehouse, f"INSERT INTO shop.visits VALUES {more}")
    second = ViewPlanner(spec).latest_offset(first)
    execute(spec.target.warehouse, "INSERT INTO shop.visits VALUES (5, 'c', 5)")
    assert count(second) == 0, "little has changed"


def test_one_task_computes_what_was_planned_if_a_snapshot_is_gone(spec: ViewSpec) -> None:
    end = ViewPlanner(spec).latest_offset({})
    (key,) = end["vector"]
    other = {**end, "vector": {key: {**end["vector"][key], "time": 1}}}
    assert len(ViewPlanner(spec).tasks({}, end)) == 3
    assert len(ViewPlanner(spec).tasks({}, other)) == 1
    committed(spec, staged_results(spec, end, 3, random.Random(0)))
    assert len(ViewPlanner(spec).tasks({}, end)) == 1, "the batch is committed"


def test_rows_that_have_not_arrived_are_an_error(spec: ViewSpec) -> None:
    end = ViewPlanner(spec).latest_offset({})
    tasks = ViewPlanner(spec).tasks({}, end)[:2]
    sent = [record for task in tasks for record in records(run(spec, task))]
    own = [record for record in sent if record["task"] == 0]
    task = inputs_of(spec, {}, end, 3, 1)[0]
    with pytest.raises(StreamhouseError, match="rows of other tasks are missing"):
        list(run(spec, task, own))
