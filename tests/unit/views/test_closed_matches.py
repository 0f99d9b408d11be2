"""MATCH_RECOGNIZE in targets that take inserts: a match appears once nothing can change it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.views.test_closed_windows import NOW, ClosedView
from tests.unit.views.test_match_recognize import CASES, REACHED, START, Case, Row, matches
from tests.unit.views.view_session import ViewSession, bag

from streamhouse.errors import UnsupportedSqlError
from streamhouse.runtime.replay_requests import request_replay

DELAY = timedelta(seconds=5)
TICKS = (
    "CREATE TABLE ticks (id INT, symbol STRING, price INT, at_ TIMESTAMP(3), WATERMARK FOR at_ AS "
    "at_ - INTERVAL '5' SECOND)"
)


def query(case: Case, all_rows: bool) -> str:
    within = "" if case.within is None else f"WITHIN INTERVAL '{case.within.seconds}' SECOND"
    return (
        "SELECT symbol, n, c, v, t FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY at_ "
        "MEASURES MATCH_NUMBER() AS n, COUNT(*) AS c, CLASSIFIER() AS v, MATCH_ROWTIME() AS t "
        f"{'ALL ROWS' if all_rows else 'ONE ROW'} PER MATCH AFTER MATCH SKIP {case.skip} "
        f"PATTERN ({case.pattern}) {within} DEFINE {case.define})"
    )


@dataclass
class Model:
    """The rows that came in time, and the matches that a watermark has closed."""

    case: Case
    all_rows: bool
    rows: list[Row] = field(default_factory=list)
    watermark: datetime | None = None
    late: int = 0

    def batch(self, rows: list[Row]) -> None:
        in_time = [row for row in rows if self.watermark is None or row[3] > self.watermark]
        self.late += len(rows) - len(in_time)
        self.rows += in_time
        passed = [row[3] - DELAY for row in rows] + ([self.watermark] if self.watermark else [])
        self.watermark = max(passed, default=None)

    def result(self, decided: bool = True) -> Counter[Any]:
        """The closed matches; without `decided` also those that rows to come may change."""
        found: list[list[Any]] = []
        ahead = 1 if "NEXT(" in self.case.define else 0
        for symbol in {row[1] for row in self.rows}:
            rows = sorted((row for row in self.rows if row[1] == symbol), key=lambda row: row[3])
            if decided:
                rows = [row for row in rows if self.watermark and row[3] <= self.watermark]
            REACHED[0] = 0
            for number, path in enumerate(matches(self.case, rows), 1):
                if decided and REACHED[0] + ahead >= len(rows):
                    break
                ends = range(1, len(path) + 1) if self.all_rows else [len(path)]
                parts = (path[:end] for end in ends)
                found += [[symbol, number, len(p), p[-1][0], p[-1][1][3]] for p in parts]
        return bag(found)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 12))]
)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_matches_appear_once_nothing_can_change_them(case: int, seed: int, tmp_path: Path) -> None:
    rng, session = random.Random(seed * 100 + case), ViewSession(tmp_path / "lake")
    model = Model(CASES[case], bool((seed + case) % 2))
    session.execute(TICKS)
    text = query(model.case, model.all_rows)
    view = ClosedView(session, text)
    view.run(NOW, "")
    at, number = START, 0
    for batch in range(1, 9):
        at += timedelta(seconds=rng.choice((4, 9, 15)))
        rows = list[Row]()
        for _ in range(rng.choice((0, 3, 8, 16))):
            number += 1
            # Rows of one time have no order.
            late = timedelta(seconds=rng.randint(-14, 4), milliseconds=number)
            price = None if rng.random() < 0.1 else rng.randint(1, 8)
            rows.append((number, rng.choice("ab"), price, at + late))
        if rows:
            listed = (
                f"({row[0]}, '{row[1]}', {row[2] or 'CAST(NULL AS INT)'}, TIMESTAMP '{row[3]}')"
                for row in rows
            )
            session.execute(f"INSERT INTO ticks VALUES {', '.join(listed)}")
        view.run(NOW + batch * 1_000, rng.choice(("", "before", "between")))
        model.batch(rows)
        assert view.result() == model.result(), (
            model.result() - view.result(), view.result() - model.result()
        )  # fmt: skip
        assert view.result() <= model.result(decided=False)
        late_rows = [address.open() for address in view.spec.auxiliary_tables]
        assert sum(b.num_rows for table in late_rows for b in table.read()) == model.late
        if rng.random() < 0.3:
            session.restart()
            view.restart()
    view.check_audit()
    assert model.result() or seed
    for address in view.spec.auxiliary_tables:
        request_replay(session.warehouse, address.identifier)
    view.run(NOW + 60_000, "")
    view.check_audit()
    replayed = Model(model.case, model.all_rows, watermark=model.watermark)
    replayed.rows = [
        (id_, symbol, price, at) for id_, symbol, price, at in session.rows("SELECT * FROM ticks")
    ]
    assert model.late or seed
    assert replayed.result() <= view.result()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (query(CASES[0], False).replace("ORDER BY at_", "ORDER BY at_ DESC"), "without DESC"),
        (
            f"SELECT v, COUNT(*) FROM ({query(CASES[0], False)}) GROUP BY v",
            "not grouped by the window",
        ),
    ],
)
def test_refusals(text: str, message: str, tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    session.execute(TICKS)
    with pytest.raises(UnsupportedSqlError, match=message):
        ClosedView(session, text)
