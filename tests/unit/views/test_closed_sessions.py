"""Sessions that wait for a watermark, against a plain model: each once, and late rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.views.test_closed_windows import (
    BY,
    DELAY,
    KEYED,
    NOW,
    TABLES,
    ClosedView,
    Row,
    change,
)
from tests.unit.views.view_session import ViewSession, bag

from streamhouse.runtime.views.planner import OPEN_SINCE

GAP = timedelta(seconds=40)
SESSIONS = "SESSION(TABLE {} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '40' SECOND)"
ALL_KEYS = "SESSION(TABLE {}, DESCRIPTOR(ts), INTERVAL '40' SECOND)"
Key = Callable[[Row], Any]
Session = list[Row]
"""The rows of a session, in the order of their times."""


def sessions(rows: Counter[Row], key: Key) -> Iterator[Session]:
    """The sessions of rows, by the definition: no two neighbours are more than the gap apart."""
    groups: dict[Any, Session] = {}
    for row in sorted(rows.elements(), key=lambda row: (row[2], row[0], row[1], row[3])):
        group = groups.setdefault(key(row), [])
        if group and row[2] - group[-1][2] > GAP:
            yield groups.pop(key(row))
            group = groups.setdefault(key(row), [])
        group.append(row)
    yield from groups.values()


def end(session: Session) -> datetime:
    end_: datetime = session[-1][2] + GAP
    return end_


@dataclass
class Model:
    """The sessions of one table that have been closed, and its late rows."""

    key: Key
    lateness: timedelta = timedelta(0)
    rows: Counter[Row] = field(default_factory=Counter)
    seen: Counter[Row] = field(default_factory=Counter)
    """The rows without the late changes."""
    watermark: datetime | None = None
    closed: list[Session] = field(default_factory=list)
    late: Counter[Any] = field(default_factory=Counter)

    def epoch(self, rows: Counter[Row], entered: list[Row]) -> list[Session]:
        """Note the rows after a batch; returns the sessions that it closes."""
        came, left = (
            Counter({row: n for row, n in change.items() if row[2] is not None})
            for change in (rows - self.rows, self.rows - rows)
        )
        self.rows, before = rows, self.watermark
        times = [row[2] - DELAY - self.lateness for row in entered if row[2] is not None]
        self.watermark = max((each for each in (before, *times) if each is not None), default=None)
        self._take(came, left, before)
        if self.watermark is None:
            return []
        ended = [each for each in sessions(self.seen, self.key) if end(each) <= self.watermark]
        new = [each for each in ended if each not in self.closed]
        assert len(ended) == len(new) + len(self.closed)
        self.closed = ended
        return new

    def _take(self, came: Counter[Row], left: Counter[Row], before: datetime | None) -> None:
        old = list(sessions(self.seen, self.key))
        opened = [each for each in old if before is None or end(each) > before]
        for row, count in list(came.items()):
            if any(self._near(row, each) for each in self.closed):
                self._is_late("+I", row, count, came)
        rest = Counter(row for each in opened for row in each)
        for row, count in (left - rest).items():
            self._is_late("-D", row, count, left)
        while True:
            new = list(sessions(self.seen + came - left, self.key))
            early = [
                each
                for each in new
                if before is not None and end(each) <= before and each not in self.closed
            ]
            if not early:
                break
            for each in early:
                broken = [o for o in opened if self._overlap(o, each)]
                for row, count in list(left.items()) if broken else ():
                    if any(self.key(row) == self.key(o[0]) and row in o for o in broken):
                        self._is_late("-D", row, count, left)
                for row in dict.fromkeys(each) if not broken else ():
                    self._is_late("+I", row, came[row], came)
        self.seen = self.seen + came - left

    def _near(self, row: Row, session: Session) -> bool:
        near: bool = session[0][2] - GAP <= row[2] <= session[-1][2] + GAP
        return near and self.key(row) == self.key(session[0])

    def _overlap(self, one: Session, other: Session) -> bool:
        meets: bool = one[0][2] <= other[-1][2] and other[0][2] <= one[-1][2]
        return meets and self.key(one[0]) == self.key(other[0])

    def _is_late(self, kind: str, row: Row, count: int, change: Counter[Row]) -> None:
        if count:
            self.late[kind, 0, *row, row[2], row[2] + GAP] += count
            change[row] -= count
            if not change[row]:
                del change[row]


def totals(session: Session) -> Iterator[Row]:
    for k in {row[1] for row in session}:
        values = [row[3] for row in session if row[1] == k]
        yield session[0][2], end(session), k, len(values), sum(values)


def best(session: Session) -> Iterator[Row]:
    for place, row in enumerate(sorted(session, key=lambda row: (-row[3], row[0]))[:2]):
        yield session[0][2], end(session), row[0], row[3], place + 1


def pairs(session: Session) -> Iterator[Row]:
    for row in session:
        for other in session:
            yield end(session), row[0], other[0]


@dataclass(frozen=True)
class Case:
    query: str
    table: str
    key: Key
    result: Callable[[Session], Iterator[Row]]


def by_k(row: Row) -> Any:
    return row[1]


def by_nothing(row: Row) -> Any:
    return None


TOTALS = f"SELECT {BY}, k, COUNT(*), SUM(v) FROM {{}} GROUP BY {BY}, k"
CASES = [
    Case(TOTALS.format(SESSIONS), "events", by_k, totals),
    Case(TOTALS.format(ALL_KEYS), "bookings", by_nothing, totals),
    Case(TOTALS.format(SESSIONS), "bookings", by_k, totals),
    Case("SELECT SESSION_START(ts, INTERVAL '40' SECOND), SESSION_END(ts, INTERVAL '40' SECOND), "
         "UPPER(k), COUNT(*), SUM(v) FROM {} GROUP BY UPPER(k), "
         "SESSION(ts, INTERVAL '40' SECOND)",
         "bookings", by_k, lambda session: (
             (row[0], row[1], row[2].upper(), *row[3:]) for row in totals(session))),
    Case("SELECT k, COUNT(*) FROM {} GROUP BY k, SESSION(ts, INTERVAL '40' SECOND)",
         "events", by_k, lambda session: iter([(session[0][1], len(session))])),
    Case(f"SELECT {BY}, id, v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {BY} ORDER BY v "
         f"DESC, id) AS n FROM {ALL_KEYS}) WHERE n <= 2", "bookings", by_nothing, best),
    Case(f"SELECT a.window_end, a.id, b.id FROM {SESSIONS} a JOIN {SESSIONS} b ON a.window_start = "
         "b.window_start AND a.window_end = b.window_end AND a.k = b.k", "bookings", by_k, pairs),
]  # fmt: skip


def epochs(
    rng: random.Random,
    count: int,
    table: str,
    session: ViewSession,
    view: ClosedView,
    model: Model,
) -> Iterator[list[Session]]:
    """Change a table and refresh the view, `count` times; yields what the model closes each time.

    Batches are killed, and the script is started again, at random.
    """
    at, now = datetime(2026, 1, 1), NOW
    for _ in range(count):
        now += 1_000
        at += timedelta(seconds=rng.choice((0, 20, 40, 60, 200)))
        rows, entered = change(rng, table, model.rows, at, session)
        view.run(now, rng.choice(("", "", "before", "between")))
        yield model.epoch(rows, entered)
        if rng.random() < 0.2:
            session.restart()
            view.restart()
            (session.folder / OPEN_SINCE).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("case", "seed"),
    [
        pytest.param(case, seed, marks=() if seed == 0 and case in (0, 2) else pytest.mark.soak)
        for seed in range(40)
        for case in range(len(CASES))
    ],
)
def test_each_session_is_there_once_and_late_rows_are_kept(
    case: int, seed: int, tmp_path: Path
) -> None:
    rng, session, of = random.Random(seed * 100 + case), ViewSession(tmp_path / "lake"), CASES[case]
    session.execute(TABLES)
    view = ClosedView(session, of.query.replace("{}", of.table))
    model, result = Model(of.key), Counter[Any]()
    for closed in epochs(rng, 12 if seed else 8, of.table, session, view, model):
        result += bag([row for each in closed for row in of.result(each)])
        assert view.result() == result, (view.result() - result, result - view.result())
        late = Counter({row: n for row, n in view.late().items() if row[1] == 0})
        assert late == model.late, (late - model.late, model.late - late)
    view.check_audit()


@pytest.mark.parametrize(
    ("case", "seed"),
    [
        pytest.param(case, seed, marks=() if seed == 0 and case == 2 else pytest.mark.soak)
        for seed in range(40)
        for case in range(3)
    ],
)
def test_sessions_change_for_the_allowed_lateness(case: int, seed: int, tmp_path: Path) -> None:
    rng, session, of = random.Random(seed * 100 + case), ViewSession(tmp_path / "lake"), CASES[case]
    lateness = timedelta(seconds=rng.choice((20, 90)))
    session.execute(f"{TABLES}; {KEYED}")
    view, model = ClosedView(session, of.query.replace("{}", of.table), lateness), Model(of.key)
    model.lateness = lateness
    for _ in epochs(rng, 12 if seed else 8, of.table, session, view, model):
        # Those that are closed are among them, as they were.
        expected = bag([row for each in sessions(model.seen, of.key) for row in of.result(each)])
        assert view.result() == expected, (view.result() - expected, expected - view.result())
        assert view.late() == model.late, (view.late() - model.late, model.late - view.late())
    view.check_audit()
