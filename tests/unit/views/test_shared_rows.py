"""Views that keep the same rows share the files of the one that was built first."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewBatches, ViewSession, change

from streamhouse.runtime.views import incremental

_JOINED = "FROM orders o JOIN customers c ON c.id = o.customer_id"
_QUERIES = {
    "sums": "SELECT c.country, SUM(CAST(o.amount AS BIGINT)) AS s, COUNT(*) AS n "
    f"{_JOINED} GROUP BY c.country",
    "most": f"SELECT c.country, MAX(o.price) AS most {_JOINED} GROUP BY c.country",
    "names": "SELECT c.name, v.page, o.amount FROM visits v JOIN customers c ON c.id = "
    "v.customer_id LEFT JOIN orders o ON o.customer_id = c.id AND o.amount > 0",
    "pages": "SELECT page, COUNT(DISTINCT customer_id) AS n FROM visits GROUP BY page",
    "recent": "SELECT c.name, COUNT(*) AS n FROM orders o JOIN customers c ON c.id = o.customer_id "
    "WHERE o.at_ > LOCALTIMESTAMP - INTERVAL '9000' DAY GROUP BY c.name",
}


def _linked(view: ViewBatches) -> set[str]:
    """The names of a view's files that another view has, too."""
    return {path.name for path in view.state.glob("*.arrow") if path.stat().st_nlink > 1}


def _views(folder: Path) -> ViewSession:
    session = ViewSession(folder / "warehouse", "incremental")
    session.execute(
        "INSERT INTO customers VALUES (1, 'x', 'DE', TRUE), (2, 'y', 'FR', FALSE); INSERT INTO "
        "visits VALUES (1, 'a', 3), (1, 'a', 3), (2, 'b', 4); INSERT INTO orders "
        "(id, customer_id, amount, price) VALUES (1, 1, 4, 1.5), (2, 1, 6, 2.5), (3, 2, 8, 3.5)"
    )
    return session


def _started(session: ViewSession, name: str, query: str) -> ViewBatches:
    session.view(name, query)
    session.refresh(name)
    return session.batches[name]


def test_a_view_computes_only_what_no_other_keeps(tmp_path: Path) -> None:
    session = _views(tmp_path)
    first = _started(session, "sums", _QUERIES["sums"])
    assert not _linked(first)
    # Both have all orders, all customers, and the joined rows, but not the same columns of them.
    second = _started(session, "most", _QUERIES["most"])
    assert len(_linked(second)) == 1
    same = _started(session, "again", _QUERIES["sums"])
    assert _linked(same) == {path.name for path in same.state.glob("*.arrow")}
    session.execute("DELETE FROM orders WHERE id = 1; UPDATE customers SET country = 'IT'")
    for name, query in (
        ("sums", _QUERIES["sums"]),
        ("most", _QUERIES["most"]),
        ("again", _QUERIES["sums"]),
    ):
        session.refresh(name)
        session.check(name, query)
        assert session.batches[name].strategies == {"recompute": 1, "incremental": 1}


def test_rows_of_other_columns_are_not_shared(tmp_path: Path) -> None:
    session, query = _views(tmp_path), "SELECT DISTINCT amount FROM orders"
    _started(session, "a", query)
    for sql in ("RENAME amount TO x", "ADD amount INT AFTER product", "DROP x"):
        session.execute(f"ALTER TABLE orders {sql}")
    session.restart()
    assert not _linked(_started(session, "b", query))


def test_rows_of_a_replaced_table_are_not_shared(tmp_path: Path) -> None:
    session = _views(tmp_path)
    _started(session, "a", _QUERIES["pages"])
    session.execute("DROP TABLE visits")
    session.execute("CREATE TABLE visits (customer_id INT, page STRING, seconds INT)")
    session.execute("INSERT INTO visits VALUES (5, 'c', 1)")
    session.restart()
    view = _started(session, "b", _QUERIES["pages"])
    assert not _linked(view)
    session.execute("INSERT INTO visits VALUES (6, 'c', 1)")
    session.refresh("b")
    session.check("b", _QUERIES["pages"])


def test_damaged_rows_are_not_shared(tmp_path: Path) -> None:
    session = _views(tmp_path)
    first = _started(session, "a", _QUERIES["pages"])
    for path in first.state.glob("*.arrow"):
        path.write_bytes(path.read_bytes()[:-1])
    view = _started(session, "c", _QUERIES["pages"])
    session.execute("INSERT INTO visits VALUES (6, 'c', 1)")
    session.refresh("c")
    session.check("c", _QUERIES["pages"])
    assert view.strategies == {"recompute": 1, "incremental": 1}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 60))]
)
def test_views_that_begin_at_any_time(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views begin while rows change, and builds end late."""
    monkeypatch.setattr(incremental, "SMALL_ROWS", 0)
    monkeypatch.setattr("streamhouse.runtime.views.shared_rows.LARGE_CHANGE", 9.0)
    rng, session = random.Random(seed), _views(tmp_path)
    queries: dict[str, str] = {}
    shared = 0
    for number in range(12):
        session.execute(change(rng, number))
        if number % 3 == 0:
            name, chosen = f"v{number}", rng.choice([*_QUERIES.values()])
            queries[name] = queries["v0"] if number == 9 else chosen
            session.view(name, queries[name])
        for name, query in queries.items():
            session.refresh(name)
            view = session.batches[name]
            view.builds_late = lambda: rng.random() < 0.5
            session.check(name, query)
            shared += len(_linked(view))
    assert shared
