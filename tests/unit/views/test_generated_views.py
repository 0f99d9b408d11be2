"""Generated views over generated histories have the rows of their queries after each refresh."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.views.generated_queries import queries_of
from tests.unit.views.view_session import ViewSession, change

from streamhouse.errors import StreamhouseError

_VIEWS = 8


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 100))]
)
def test_generated_views(seed: int, tmp_path: Path) -> None:
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    views = queries_of(seed, _VIEWS)
    for name, query in views.items():
        session.view(name, query)
    for number in range(3):
        session.execute(change(rng, number))
        for name, query in views.items():
            try:
                session.refresh(name)
                session.check(name, query)
                again = session.refresh(name)
            except StreamhouseError as error:
                raise AssertionError(f"{query}\n{error}") from error
            assert again == 0, f"nothing has changed, but a refresh writes: {query}"
