"""Rows are cast and inserted field by field in their order, whatever the names of the fields."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession


def _fields(rng: random.Random, names: list[str]) -> str:
    return ", ".join(f"{name} BIGINT" for name in rng.sample(names, len(names)))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 30))]
)
def test_fields_keep_their_places(seed: int, tmp_path: Path) -> None:
    rng, session = random.Random(seed), ViewSession(tmp_path / "warehouse")
    names = rng.sample(["a", "b", "c", "d", "k"], rng.randint(2, 4))
    session.execute(
        f"CREATE TABLE stored (id INT, r ROW<{_fields(rng, names)}>, x ARRAY<ROW<"
        f"{_fields(rng, names)}>>, n ROW<m ROW<{_fields(rng, names)}>, z INT>)"
    )
    row = f"CAST(ROW({', '.join(map(str, range(len(names))))}) AS ROW<{_fields(rng, names)}>)"
    session.execute(f"INSERT INTO stored SELECT 1, {row}, ARRAY[{row}], ROW({row}, 7)")
    other = f"ROW<{_fields(rng, names)}>"
    query = (
        f"SELECT r, x[1], n.m, CAST(r AS {other}), CAST(x AS ARRAY<{other}>)[1], "
        f"CAST(n AS ROW<q {other}, y INT>).q FROM stored"
    )
    (found,) = session.exact_rows(query)
    assert [list(row.values()) for row in found] == [list(range(len(names)))] * 6
