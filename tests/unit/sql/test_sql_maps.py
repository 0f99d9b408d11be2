"""Equal maps are equal in any order of their entries; what groups or sorts maps is refused."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.views.view_session import ViewSession

from streamhouse.errors import UnsupportedSqlError


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> ViewSession:
    """Tables of random maps with their entries in random orders; `m` is null in some rows."""
    session = ViewSession(tmp_path_factory.mktemp("maps") / "warehouse")
    rng = random.Random(1)
    for table in "ab":
        session.execute(
            f"CREATE TABLE {table} (id INT, m MAP<STRING, INT>, l ARRAY<MAP<INT, INT>>)"
        )
        rows = [f"({number}, {_map(rng)}, ARRAY[{_list(rng)}])" for number in range(12)]
        session.execute(f"INSERT INTO {table} VALUES {', '.join(rows)}")
    return session


def _map(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return "CAST(NULL AS MAP<STRING, INT>)"
    value = rng.choice(("1", "2", "CAST(NULL AS INT)"))
    entries = [("'x'", "1"), ("'y'", value)]
    rng.shuffle(entries)
    return f"MAP[{', '.join(itertools.chain(*entries))}]"


def _list(rng: random.Random) -> str:
    return rng.choice(("MAP[1, 2, 3, 4]", "MAP[3, 4, 1, 2]", "MAP[1, 2]"))


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "SELECT a.id, b.id FROM a JOIN b ON a.m = b.m": lambda x, y: x == y and x is not None,
    "SELECT a.id, b.id FROM a, b WHERE a.m <> b.m": lambda x, y: x != y and None not in (x, y),
    "SELECT a.id, b.id FROM a JOIN b ON a.m IS NOT DISTINCT FROM b.m": lambda x, y: x == y,
    "SELECT a.id, b.id FROM a, b WHERE a.m IS DISTINCT FROM b.m": lambda x, y: x != y,
    "SELECT a.id, b.id FROM a, b WHERE a.m IN (b.m)": lambda x, y: x == y and x is not None,
    "SELECT a.id, b.id FROM a, b WHERE EXISTS (SELECT 1 FROM b c WHERE c.m = a.m AND c.id = b.id)":
        lambda x, y: x == y and x is not None,
    "SELECT a.id, b.id FROM a, b WHERE a.m IN (SELECT m FROM b c WHERE c.id = b.id)":
        lambda x, y: x == y and x is not None,
}  # fmt: skip


@pytest.mark.parametrize("query", _TESTS)
def test_maps_are_compared_without_the_order_of_their_entries(
    session: ViewSession, query: str
) -> None:
    values = {
        table: {
            number: None if pairs is None else dict(pairs)
            for number, pairs in session.exact_rows(f"SELECT id, m FROM {table}")
        }
        for table in "ab"
    }
    expected = {
        (one, other)
        for (one, x), (other, y) in itertools.product(values["a"].items(), values["b"].items())
        if _TESTS[query](x, y)
    }
    assert set(map(tuple, session.exact_rows(query))) == expected and expected


def test_maps_in_arrays(session: ViewSession) -> None:
    rows = session.exact_rows("SELECT a.l, b.l FROM a JOIN b ON a.l = b.l")
    assert any(left != right for left, right in rows)
    assert all(_plain(left) == _plain(right) for left, right in rows)


def _plain(maps: list[list[tuple[int, int]]]) -> list[dict[int, int]]:
    return [dict(pairs) for pairs in maps]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT m, COUNT(*) FROM a GROUP BY m", "SELECT DISTINCT id, m FROM a",
        "SELECT COUNT(DISTINCT m) FROM a", "SELECT m FROM a UNION SELECT m FROM b",
        "SELECT m FROM a EXCEPT ALL SELECT m FROM b", "SELECT id FROM a ORDER BY m",
        "SELECT MAX(m) FROM a",
        "SELECT id, COUNT(*) OVER (PARTITION BY m) FROM a", "SELECT l, COUNT(*) FROM a GROUP BY l",
        "SELECT DISTINCT * FROM (SELECT COLLECT(id) AS c FROM a)",
    ],
)  # fmt: skip
def test_what_groups_or_sorts_maps_is_refused(session: ViewSession, query: str) -> None:
    with pytest.raises(UnsupportedSqlError, match="MAP, whose entries have no order"):
        session.exact_rows(query)
