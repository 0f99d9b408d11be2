"""Views of every kind of SELECT stay equal to the bounded query while their tables change."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession, change

from streamhouse.errors import StreamhouseError

QUERIES = {
    name: query
    for name, query in re.findall(
        r"-- name: (\w+)\n(.*?);\n", (Path(__file__).parent / "queries.sql").read_text(), re.DOTALL
    )
}
"""Queries by name."""


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[ViewSession, dict[str, str]]:
    """A session with all views, after two rounds of changes; and what was wrong, by view."""
    session = ViewSession(tmp_path_factory.mktemp("views") / "warehouse", "incremental")
    for name, query in QUERIES.items():
        session.view(f"v_{name}", query)
    wrong: dict[str, str] = {}
    rng = random.Random(7)
    for number in range(2):
        session.execute(change(rng, number))
        for name, query in QUERIES.items():
            try:
                session.refresh(f"v_{name}")
                session.check(f"v_{name}", query)
            except (AssertionError, StreamhouseError) as error:
                wrong.setdefault(name, f"round {number}: {error}")
    return session, wrong


@pytest.mark.parametrize("name", QUERIES)
def test_a_view_has_the_rows_of_its_query_after_each_change(
    name: str, history: tuple[ViewSession, dict[str, str]]
) -> None:
    session, wrong = history
    assert name not in wrong, wrong[name]
    assert session.refresh(f"v_{name}") == 0, "nothing has changed, but a refresh writes"
