"""Refreshes in stages, by several tasks, write the rows of the query."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.views.generated_queries import Generator
from tests.unit.views.staged_refresh import staged_refresh
from tests.unit.views.view_session import ViewSession, change

from streamhouse.runtime.views.staged.planning import is_divisible

_VIEWS = 4


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 60))]
)
def test_generated_views(seed: int, tmp_path: Path) -> None:
    """As `test_generated_views`, by stages where several tasks can compute the view."""
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    views = {f"v{n}": Generator(seed * _VIEWS + n).query() for n in range(_VIEWS)}
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
