"""Views refreshed from changes have the rows of their queries, whatever is killed or deleted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.views.generated_queries import Generator
from tests.unit.views.view_session import ViewBatches, ViewSession, change

_VIEWS = 8


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 100))]
)
def test_generated_views(seed: int, tmp_path: Path) -> None:
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    queries = {f"v{n}": Generator(seed * _VIEWS + n).query() for n in range(_VIEWS)}
    for name, query in queries.items():
        session.view(name, query)
    views = {name: ViewBatches(session, name, tmp_path, "incremental") for name in queries}
    for number in range(5):
        session.execute(change(rng, number))
        for name, query in queries.items():
            try:
                views[name].refresh()
                session.check(name, query)
                again = views[name].refresh()
            except Exception as error:
                raise AssertionError(f"{query}\n{error}") from error
            assert again == 0, f"nothing has changed, but a refresh writes: {query}"
