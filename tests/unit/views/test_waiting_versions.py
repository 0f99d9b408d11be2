"""Joins as of a time in targets that take inserts: rows appear when the watermark has passed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.views.test_closed_windows import MINUTE, NOW, ClosedView
from tests.unit.views.view_session import ViewSession, bag

from streamhouse.errors import UnsupportedSqlError
from streamhouse.runtime.replay_requests import request_replay

START, DELAY = datetime(2026, 1, 1), timedelta(seconds=5)
TABLES = """
CREATE TABLE sales (id INT, currency STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL
  '5' SECOND);
CREATE TABLE rates (currency STRING, rate INT, at_ TIMESTAMP(3), WATERMARK FOR at_ AS at_ - INTERVAL
  '5' SECOND)
"""
QUERY = (
    "SELECT o.id, o.ts, r.rate FROM sales AS o {} JOIN versions FOR SYSTEM_TIME AS OF o.ts AS r "
    "ON o.currency = r.currency"
)
VERSIONS = (
    "CREATE VIEW versions AS SELECT currency, rate FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "
    "currency ORDER BY at_ DESC) AS n FROM rates) WHERE n = 1"
)
KEYED = (
    "CREATE TABLE t__view (id INT, ts TIMESTAMP(3), rate INT, PRIMARY KEY (id) NOT ENFORCED) WITH "
    "('bucket' = '1')"
)
Order = tuple[int, str, datetime]
Rate = tuple[str, int, datetime]


@dataclass
class Model:
    """The rows that came in time, and what they give."""

    left: bool
    orders: list[Order] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)
    newest: list[datetime | None] = field(default_factory=lambda: [None, None])
    before: datetime | None = None
    result: Counter[Any] = field(default_factory=Counter)
    late: int = 0

    def batch(self, orders: list[Order], rates: list[Rate]) -> None:
        times = ([row[2] for row in orders], [row[2] for row in rates])
        for n, own in enumerate(times):
            known = [at for at in (self.newest[n], *own) if at is not None]
            self.newest[n] = max(known, default=None)
        passed = [at - DELAY for at in self.newest if at is not None]
        after = min(passed) if len(passed) == 2 else None
        in_time = [[row for row in rows if self.before is None or row[2] > self.before]
                   for rows in (orders, rates)]  # fmt: skip
        self.late += len(orders) + len(rates) - sum(map(len, in_time))
        self.orders += in_time[0]  # type: ignore[arg-type]
        self.rates += in_time[1]  # type: ignore[arg-type]
        if after is None:
            return
        for id_, currency, ts in self.orders:
            if ts <= after and (self.before is None or ts > self.before):
                rate = self.rate(currency, ts)
                if self.left or rate is not None:
                    self.result += bag([[id_, ts, rate]])
        self.before = after if self.before is None else max(after, self.before)

    def rate(self, currency: str, ts: datetime) -> int | None:
        found = [(at, rate) for own, rate, at in self.rates if own == currency and at <= ts]
        return max(found)[1] if found else None


def insert(session: ViewSession, table: str, rows: list[Any]) -> None:
    listed = (
        ", ".join(f"TIMESTAMP '{v}'" if isinstance(v, datetime) else repr(v) for v in row)
        for row in rows
    )
    values = ", ".join(f"({each})" for each in listed)
    session.execute(f"INSERT INTO {table} VALUES {values}")


@pytest.mark.parametrize(
    ("left", "seed"),
    [
        pytest.param(left, seed, marks=() if seed == 0 else pytest.mark.soak)
        for seed in range(12)
        for left in (False, True)
    ],
)
def test_rows_are_joined_once_the_watermark_has_passed(
    left: bool, seed: int, tmp_path: Path
) -> None:
    rng, session, model = random.Random(seed), ViewSession(tmp_path / "lake"), Model(left)
    session.execute(TABLES)
    session.run(VERSIONS)
    view = ClosedView(session, QUERY.format("LEFT" if left else ""))
    view.run(NOW, "")
    at, number, times = START, 0, set[datetime]()
    for batch in range(1, 9):
        at += timedelta(seconds=rng.choice((2, 8, 15)))
        orders, rates = list[Order](), list[Rate]()
        for _ in range(rng.randint(0, 4)):
            number += 1
            ts = at + timedelta(seconds=rng.randint(-12, 4))
            orders.append((number, rng.choice("ab"), ts))
        for _ in range(rng.randint(0, 3)):
            # One version of a time: of several the greatest would count.
            since = at + timedelta(seconds=rng.randint(-12, 4), milliseconds=len(times))
            times.add(since)
            rates.append((rng.choice("ab"), rng.randint(1, 99), since))
        for table, rows in (("sales", orders), ("rates", rates)):
            if rows:
                insert(session, table, list(rows))
        view.run(NOW + batch * 1_000, rng.choice(("", "before", "between")))
        model.batch(orders, rates)
        assert view.result() == model.result, (
            model.result - view.result(), view.result() - model.result
        )  # fmt: skip
        late = [at.open() for at in view.spec.auxiliary_tables]
        assert sum(b.num_rows for table in late for b in table.read()) == model.late
        if rng.random() < 0.3:
            session.restart()
            view.restart()
    view.check_audit()
    assert model.result and (model.late or seed)
    for late_rows in view.spec.auxiliary_tables:
        request_replay(session.warehouse, late_rows.identifier)
    view.run(NOW + 60_000, "")
    view.check_audit()
    final, everything = model.before, session.rows(QUERY.format("LEFT" if left else ""))
    assert final is not None
    passed = Counter({row: n for row, n in everything.items() if row[1] <= final})
    assert passed <= view.result()


def test_a_late_version_corrects_rows_for_the_allowed_lateness(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    session.execute(TABLES)
    session.run(VERSIONS)
    session.execute(KEYED)
    view = ClosedView(session, QUERY.format("LEFT"), MINUTE)

    def at(seconds: int) -> datetime:
        return START + timedelta(seconds=seconds)

    def run(orders: list[Order], rates: list[Rate], now: int) -> Counter[Any]:
        for table, rows in (("sales", orders), ("rates", rates)):
            if rows:
                insert(session, table, list(rows))
        view.run(NOW + now * 1_000, "between")
        return view.result()

    assert run([(1, "a", at(10))], [("a", 1, at(0))], 1) == bag([[1, at(10), 1]])
    assert run([(2, "a", at(40))], [("a", 2, at(5)), ("a", 3, at(50))], 2) == bag(
        [[1, at(10), 2], [2, at(40), 2]]
    )
    run([(3, "a", at(120))], [("a", 4, at(121))], 3)
    found = run([(4, "a", at(30))], [("a", 9, at(35))], 4)
    assert found == bag([[1, at(10), 2], [2, at(40), 2], [3, at(120), 3]])
    assert sum(view.late().values()) == 2
    view.check_audit()


@pytest.mark.parametrize(
    "query",
    [
        QUERY.format("").replace("sales AS o", "(SELECT * FROM sales) AS o"),
        QUERY.format("") + " JOIN versions FOR SYSTEM_TIME AS OF o.paid AS p ON p.currency = "
        "o.currency",
        QUERY.format("") + " JOIN customers AS c ON c.id = o.id",
    ],
)
def test_other_rows_cannot_wait(query: str, tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    session.execute(TABLES.replace("id INT, ", "id INT, paid TIMESTAMP(3), "))
    session.run(VERSIONS)
    with pytest.raises(UnsupportedSqlError, match="whole windows|rows of the result change"):
        ClosedView(session, query)
