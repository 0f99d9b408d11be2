"""Windows whose SELECT, lateness or idle timeout changes between runs, against a plain model."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.unit.runtime.local_pipeline import LocalPipeline
from tests.unit.views.test_closed_windows import (
    BY,
    CASES,
    HOPPED,
    IDLE,
    KEYED,
    MINUTE,
    NOW,
    TABLES,
    TUMBLED,
    Case,
    ClosedView,
    Model,
    Row,
    change,
    insert,
    totals,
    tumble,
)
from tests.unit.views.view_session import ViewSession

from streamhouse.errors import TableError
from streamhouse.runtime.audit.audit import audit

SECOND = timedelta(seconds=1)
SIXES = Case(
    f"SELECT {BY}, k, COUNT(*), SUM(v) FROM TUMBLE(TABLE {{}}, DESCRIPTOR(ts), INTERVAL '90' SECOND"
    f") GROUP BY {BY}, k", ("bookings",), lambda rows: tumble(rows, 90 * SECOND), totals,
)  # fmt: skip
SELECTS = [*(replace(case, tables=("bookings",)) for case in CASES[:2]), SIXES]
"""Selects with the same columns."""


@dataclass
class Run:
    """A view and its model, of which one thing after another changes."""

    rng: random.Random
    session: ViewSession
    view: ClosedView
    model: Model
    now: int = NOW
    at: datetime = datetime(2026, 1, 1)

    def batches(self, count: int) -> None:
        """Change the table and refresh the view, some times; compare both with the model."""
        rng, view, model = self.rng, self.view, self.model
        for _ in range(count):
            self.now += rng.choice((1_000, 1_000, IDLE))
            self.at += timedelta(seconds=rng.choice((0, 40, 60, 90, 200)))
            (rows,), entered = model.rows, list[Row]()
            if rng.random() < 0.8:
                rows, entered = change(rng, "bookings", rows, self.at, self.session)
            view.run(self.now, rng.choice(("", "", "before", "between")))
            model.epoch([rows], [entered], self.now)
            found, expected = view.result(), model.result
            assert found == expected, (found - expected, expected - found)
            found, expected = view.late(), model.late
            assert found == expected, (found - expected, expected - found)
            view.check_audit()

    def restart(self, of: Case, lateness: timedelta | None) -> None:
        """Go on with another SELECT or lateness."""
        model, changed = self.model, of is not self.model.case
        self.session.restart()
        self.view._query, self.view._lateness = of.query.format(*of.tables), lateness
        self.view.restart()
        model.case, model.lateness = of, lateness
        if changed and lateness is not None:
            # All windows are computed again, from the rows that the table has.
            model.final = model.at = None
            times = [row[2] - 30 * SECOND for row in model.rows[0] if row[2] is not None]
            model.watermarks, model.moved = [max(times, default=None)], [self.now]


@pytest.mark.parametrize(
    ("lateness", "seed"),
    [
        pytest.param(lateness, seed, marks=() if seed == 0 else pytest.mark.soak)
        for seed in range(40)
        for lateness in (False, True)
    ],
)
def test_selects_and_lateness_change(lateness: bool, seed: int, tmp_path: Path) -> None:
    rng, session = random.Random(seed), ViewSession(tmp_path / "lake")
    session.execute(f"{TABLES}; {KEYED}" if lateness else TABLES)
    of, waits = rng.choice(SELECTS), rng.choice((20, 90, 200)) * SECOND if lateness else None
    view = ClosedView(session, of.query.format(*of.tables), waits)
    view.run(NOW, "")
    model = Model(of, [Counter()], [None], [NOW], waits)
    model.epoch([Counter()], [[]], NOW)
    run = Run(rng, session, view, model)
    for _ in range(3 if seed == 0 else 5):
        run.batches(2 if seed == 0 else rng.randint(1, 4))
        of = rng.choice(SELECTS)
        waits = rng.choice((20, 90, 200)) * SECOND if lateness else None
        run.restart(of, waits)
    run.batches(2)


def script(query: str, columns: str) -> str:
    tables = TABLES.split(";")[0].replace("TABLE", "TABLE IF NOT EXISTS")
    return f"{tables}; CREATE TABLE IF NOT EXISTS t ({columns}); INSERT INTO t {query}"


def test_another_select_is_noticed_and_audited_by_the_windows_of_rows(tmp_path: Path) -> None:
    shop, start, outputs = LocalPipeline(tmp_path), datetime(2026, 1, 1), []
    for number, rows in enumerate((TUMBLED, HOPPED)):
        text = script(f"SELECT COUNT(*) FROM {rows.format('events')} GROUP BY {BY}", "n BIGINT")
        events = [(n, "a", start + n * SECOND, 0) for n in (10 + 200 * number, 100 + 200 * number)]
        shop.do(f"{text.split(';')[0]}; {insert('events', events)}")
        outputs.append("\n".join(shop.run(text)))
    assert ["the SELECT has changed" in output for output in outputs] == [False, True]
    with pytest.raises(TableError, match="add window_end to the SELECT"):
        audit(shop.options, "default.t")


def test_windows_of_instants_in_a_zone_change_for_the_lateness(tmp_path: Path) -> None:
    """Their only column of the window is an instant."""
    shop = LocalPipeline(tmp_path)
    tables = (
        "CREATE TABLE IF NOT EXISTS e (id INT PRIMARY KEY NOT ENFORCED, ts TIMESTAMP_LTZ(3), "
        "WATERMARK FOR ts AS ts) WITH ('bucket' = '1')"
    )
    text = (
        "SET 'table.local-time-zone' = 'Europe/Berlin'; SET 'table.exec.emit.allow-lateness' = "
        f"'30 min'; {tables}; CREATE TABLE IF NOT EXISTS t (w TIMESTAMP_LTZ(3) PRIMARY KEY NOT "
        "ENFORCED, n BIGINT) WITH ('bucket' = '1'); INSERT INTO t SELECT window_time, COUNT(*) "
        "FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '10' MINUTE) GROUP BY window_start, "
        "window_end, window_time"
    )
    first = datetime(2026, 10, 25, 0, 5)
    for minutes in (0, 10, 25, 60, 85):
        at = first + timedelta(minutes=minutes)
        shop.do(f"{tables}; INSERT INTO e VALUES ({minutes}, TIMESTAMP '{at}')")
        shop.run(text)
    shop.do("DELETE FROM e WHERE id = 10")
    shop.run(text)
    rows = sorted(((r["w"].replace(tzinfo=None) - first) // MINUTE, r["n"]) for r in shop.rows("t"))
    # The zone has the hour twice: two windows have rows of both.
    assert rows == [(4, 2), (34, 2)]
    assert audit(shop.options, "default.t").equal
