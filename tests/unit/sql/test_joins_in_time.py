"""Joins with one row as of a time: FOR SYSTEM_TIME AS OF a column, and ASOF JOIN."""

from __future__ import annotations

import operator
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.errors import SqlError
from streamhouse.sql.plan import Name, ViewInfo

Row = dict[str, Any]
_START = datetime(2026, 1, 1)
_COMPARISONS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}
_NEWEST = (
    "SELECT {} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM "
    "quotes) WHERE n = 1"
)


class _Views(Catalog):
    """A catalog with views of the newest quote of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.add("CREATE TABLE trades (id INT, k STRING, ts TIMESTAMP(3), now_ AS PROCTIME())")
        self.add("CREATE TABLE quotes (k STRING, ts TIMESTAMP(3), v INT)")

    def joined(self, text: str, trades: list[Row], quotes: list[Row]) -> Counter[Any]:
        """The rows of a query."""
        rows = {"trades": trades, "quotes": quotes}
        scans = self.bounded(text).scans
        return Counter(self.query(text, *(rows[scan.table.name[-1]] for scan in scans)))

    def view(self, name: Name) -> ViewInfo | None:
        queries = {"newest": _NEWEST.format("k, v"), "newest_all": _NEWEST.format("*"),
                   "newest_low": _NEWEST.format("k, v") + " AND v < 20",
                   "first_": _NEWEST.format("k, v").replace("DESC", "ASC")}  # fmt: skip
        query = queries.get(name[-1])
        return None if query is None else ViewInfo(("default", name[-1]), (), query)


def _rows(rng: random.Random) -> tuple[list[Row], list[Row]]:
    def key() -> str | None:
        return rng.choice((None, "a", "b"))

    def time() -> datetime | None:
        return rng.choice((None, *(_START + timedelta(seconds=n) for n in range(6))))

    trades = [{"id": n, "k": key(), "ts": time()} for n in range(rng.randint(0, 8))]
    values = rng.sample(range(30), rng.randint(0, 10))
    return trades, [{"k": key(), "ts": time(), "v": value} for value in values]


def _nearest(trade: Row, quotes: list[Row], comparison: str, keyed: bool) -> list[Row]:
    """The quotes with the nearest time."""
    found = [
        quote
        for quote in quotes
        if quote["ts"] and trade["ts"] and _COMPARISONS[comparison](trade["ts"], quote["ts"])
        if not keyed or (trade["k"] is not None and quote["k"] == trade["k"])
    ]
    times = [quote["ts"] for quote in found]
    best = (max if ">" in comparison else min)(times, default=None)
    return [quote for quote in found if quote["ts"] == best]


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(n, marks=pytest.mark.soak) for n in range(20, 500))]
)
def test_asof_joins_have_the_rows_of_a_plain_model(seed: int) -> None:
    rng = random.Random(seed)
    trades, quotes = _rows(rng)
    comparison, keyed, form = rng.choice((*_COMPARISONS,)), rng.random() < 0.7, rng.randint(0, 3)
    test = f"t.ts {comparison} q.ts"
    if rng.random() < 0.3:
        test = f"q.ts {comparison.translate(str.maketrans('<>', '><'))} t.ts"
    on = " ON t.k = q.k" if keyed else ""
    source = rng.choice(("quotes", "(SELECT * FROM quotes WHERE v >= 0)", "more"))
    join = (
        f"ASOF JOIN {source} AS q MATCH_CONDITION ({test}){on}",
        f"ASOF JOIN {source} q{on} {'AND' if keyed else 'ON'} {test}",
        f"ASOF LEFT JOIN {source} q{on} {'AND' if keyed else 'ON'} {test}",
        f"ASOF JOIN {source} q MATCH_CONDITION ({test}){' USING (k)' if keyed else ''}",
    )[form]
    expected = Counter[Any]()
    for trade in trades:
        # Of quotes with one time it is that with the greatest values.
        best = max((q["v"] for q in _nearest(trade, quotes, comparison, keyed)), default=None)
        if best is not None or form != 1:
            expected[trade["id"], best] += 1
    text = f"WITH more AS (SELECT * FROM quotes) SELECT t.id, q.v FROM trades t {join}"
    assert _Views().joined(text, trades, quotes) == expected, text


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(n, marks=pytest.mark.soak) for n in range(20, 500))]
)
def test_versions_as_of_a_time_have_the_rows_of_a_plain_model(seed: int) -> None:
    rng = random.Random(seed)
    trades, quotes = _rows(rng)
    side, view = rng.choice(("", "LEFT ")), rng.choice(("newest", "newest_all", "newest_low"))
    more = rng.choice(("", " AND q.v > 9"))
    expected = Counter[Any]()
    for trade in trades:
        # Of versions with one time it is that which the view has, the one with the least values.
        best = min((q["v"] for q in _nearest(trade, quotes, ">=", True)), default=None)
        best = None if best is None or (more and best <= 9) else best
        # A version that the view leaves out hides the one before it.
        best = None if best is not None and view == "newest_low" and best >= 20 else best
        if best is not None or side:
            expected[trade["id"], best] += 1
    text = (
        f"SELECT t.id, q.v FROM trades t {side}JOIN {view} FOR SYSTEM_TIME AS OF t.ts AS q ON "
        f"t.k = q.k{more}"
    )
    assert _Views().joined(text, trades, quotes) == expected, text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JOIN quotes FOR SYSTEM_TIME AS OF t.ts AS q ON t.k = q.k", "in any query a view that"),
        ("JOIN first_ FOR SYSTEM_TIME AS OF t.ts AS q ON t.k = q.k", "needs all versions"),
        ("RIGHT JOIN newest FOR SYSTEM_TIME AS OF t.ts AS q ON t.k = q.k", "JOIN or LEFT JOIN"),
        ("JOIN newest FOR SYSTEM_TIME AS OF t.ts AS q USING (k)", "JOIN or LEFT JOIN with ON"),
        ("JOIN newest FOR SYSTEM_TIME AS OF t.now_ AS q ON t.k = q.k", "is a view, which takes"),
        ("ASOF JOIN quotes q ON t.k = q.k", "one comparison of times"),
        ("ASOF JOIN quotes q ON t.ts > q.ts AND t.id > q.v", "one comparison of times"),
        ("ASOF FULL JOIN quotes q ON t.ts > q.ts", "one comparison of times"),
        ("ASOF JOIN quotes q ON t.k > t.k AND t.k = q.k", "one comparison of times"),
    ],
)
def test_errors_say_what_to_change(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        _Views().bounded(f"SELECT t.id FROM trades t {text}")
