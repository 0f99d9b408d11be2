"""Views in zones that are not UTC, against a plain model: windows and days of local times."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from tests.unit.runtime.local_pipeline import LocalPipeline
from tests.unit.views.test_closed_windows import DELAY, EPOCH, MILLISECOND, NOW, ClosedView
from tests.unit.views.view_session import ViewSession
from tests.zones import ZONES, local

from streamhouse.errors import TableError
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.views.spec import ViewSpec

TABLES = """
CREATE TABLE bookings (id INT PRIMARY KEY NOT ENFORCED, k STRING, ts TIMESTAMP_LTZ(3), v INT,
  WATERMARK FOR ts AS ts - INTERVAL '30' SECOND) WITH ('bucket' = '1');
CREATE TABLE windows (a TIMESTAMP(3), b TIMESTAMP(3), k STRING, n BIGINT, v BIGINT,
  PRIMARY KEY (a, b, k) NOT ENFORCED) WITH ('bucket' = '1')
"""
CHANGES = {
    "America/New_York": datetime(2024, 11, 3, 6), "Europe/Berlin": datetime(2024, 3, 31, 1),
    "Australia/Lord_Howe": datetime(2024, 4, 6, 15), "Pacific/Apia": datetime(2011, 12, 30, 10),
    "Asia/Kolkata": datetime(2024, 3, 31, 1), "GMT+08:00": datetime(2024, 3, 31, 1),
}  # fmt: skip
"""An instant at which the clocks of a zone change, if it has one."""
BY = "window_start, window_end"
HOUR = timedelta(hours=1)
Row = tuple[int, str, datetime | None, int]
Windowed = tuple[Row, datetime, datetime]


class ZonedView(ClosedView):
    """A view of closed windows in a session with a time zone."""

    def __init__(
        self, session: ViewSession, query: str, zone: str, lateness: timedelta | None = None
    ) -> None:
        self._zone = zone
        super().__init__(session, query, lateness)

    def restart(self) -> None:
        self.session.session.settings.set("table.local-time-zone", self._zone)
        super().restart()


def windows(kind: str, rows: list[Row], zone: str) -> list[Windowed]:
    """The rows with their windows of 40 minutes, or of 3 hours each hour."""
    size, step = (3 * HOUR, HOUR) if kind == "HOP" else (HOUR * 2 / 3, HOUR * 2 / 3)
    found = []
    for row in rows:
        if row[2] is None:
            continue
        at = local(row[2], zone)
        start = EPOCH + (at - EPOCH) // step * step
        while at < start + size:
            found.append((row, start, start + size))
            start -= step
    return found


def closed_until(watermark: datetime, zone: str) -> datetime:
    """The last local time that no instant after a watermark has, by trial of all minutes."""
    after = watermark + MILLISECOND
    whole = after.replace(second=0, microsecond=0)
    later = [whole + timedelta(minutes=n) for n in range(1, 26 * 60)]
    return min(local(at, zone) for at in (after, *later)) - MILLISECOND


@dataclass
class Model:
    """What the view of closed windows, and its table of late rows, must have."""

    kind: str
    zone: str
    rows: list[Row] = field(default_factory=list)
    watermark: datetime | None = None
    at: datetime | None = None
    result: Counter[object] = field(default_factory=Counter)
    late: Counter[object] = field(default_factory=Counter)

    def epoch(self, rows: list[Row], entered: list[Row]) -> None:
        before = self.at
        times = [row[2] - DELAY for row in entered if row[2] is not None]
        self.watermark = max([*times, *([self.watermark] if self.watermark else [])], default=None)
        if self.watermark is not None:
            until = closed_until(self.watermark, self.zone)
            self.at = until if self.at is None else max(until, self.at)
        new = Counter(windows(self.kind, rows, self.zone))
        change = Counter(new)
        change.subtract(Counter(windows(self.kind, self.rows, self.zone)))
        for (row, start, end), count in change.items():
            if count and before is not None and end - MILLISECOND <= before:
                self.late["+I" if count > 0 else "-D", *row, start, end] += abs(count)
        groups: dict[tuple[datetime, datetime, str], list[int]] = {}
        for row, start, end in new.elements():
            last = end - MILLISECOND
            if self.at is not None and last <= self.at and (before is None or last > before):
                groups.setdefault((start, end, row[1]), []).append(row[3])
        self.result.update((*key, len(values), sum(values)) for key, values in groups.items())
        self.rows = rows


def changed(
    rng: random.Random, rows: list[Row], at: datetime, session: ViewSession
) -> tuple[list[Row], list[Row]]:
    """Change the bookings around an instant; returns its rows, and those that entered."""
    keyed = {row[0]: row for row in rows}
    if keyed and rng.random() < 0.4:
        gone = rng.choice(sorted(keyed))
        session.execute(f"DELETE FROM bookings WHERE id = {gone}")
        del keyed[gone]
    new: dict[int, Row] = {}
    for _ in range(rng.randint(2, 6)):
        ts = at + timedelta(minutes=rng.choice((0, 0, 0, -40, -190)) + rng.randint(-30, 30))
        number = rng.randint(0, 25)
        new[number] = (number, rng.choice("ab"), rng.choice((ts, ts, ts, None)), rng.randint(0, 3))
    values = ", ".join(
        f"({n}, '{k}', {'CAST(NULL AS TIMESTAMP_LTZ(3))' if ts is None else _literal(ts)}, {v})"
        for n, k, ts, v in new.values()
    )
    session.execute(f"INSERT INTO bookings VALUES {values}")
    return list((keyed | new).values()), list(new.values())


def _literal(at: datetime) -> str:
    return f"CAST('{at:%Y-%m-%d %H:%M:%S}' AS TIMESTAMP_LTZ(3))"


@pytest.mark.parametrize(
    ("zone", "kind", "seed"),
    [
        pytest.param(zone, kind, seed, marks=() if (kind, seed) in fast else pytest.mark.soak)
        for seed in range(10)
        for kind in ("TUMBLE", "HOP")
        for zone in ZONES
        for fast in [{("TUMBLE" if ZONES.index(zone) % 2 else "HOP", 0)}]
    ],
)
def test_each_window_is_closed_once(zone: str, kind: str, seed: int, tmp_path: Path) -> None:
    rng, session = random.Random(f"{zone} {kind} {seed}"), ViewSession(tmp_path / "lake")
    session.execute(TABLES)
    size = "INTERVAL '1' HOUR, INTERVAL '3' HOUR" if kind == "HOP" else "INTERVAL '40' MINUTE"
    query = (
        f"SELECT {BY}, k, COUNT(*), SUM(v) FROM {kind}(TABLE bookings, DESCRIPTOR(ts), {size}) "
        f"GROUP BY {BY}, k"
    )
    view, model = ZonedView(session, query, zone), Model(kind, zone)
    at = CHANGES[zone].replace(tzinfo=UTC) - 3 * HOUR
    view.run(NOW, "")
    for number in range(8):
        at += timedelta(minutes=rng.choice((10, 35, 50, 65)))
        rows, entered = changed(rng, model.rows, at, session)
        view.run(NOW + number, rng.choice(("", "", "before", "between")))
        model.epoch(rows, entered)
        assert view.result() == model.result, (view.result(), model.result)
        found = session.rows("SELECT _kind, id, k, ts, v, window_start, window_end FROM t__late")
        assert found == model.late
        if rng.random() < 0.3:
            session.restart()
            view.restart()
    view.check_audit()


@pytest.mark.parametrize(
    "zone", [ZONES[0], *(pytest.param(zone, marks=pytest.mark.soak) for zone in ZONES[1:3])]
)
def test_windows_that_change_for_a_time_are_those_of_all_rows(zone: str, tmp_path: Path) -> None:
    """Without late rows a table has the windows of all rows, also when clocks are set back."""
    rng, session = random.Random(zone), ViewSession(tmp_path / "lake")
    session.execute(TABLES)
    session.execute(
        "CREATE TABLE t__view (a TIMESTAMP(3), b TIMESTAMP(3), k STRING, n BIGINT, PRIMARY KEY "
        "(a, b, k) NOT ENFORCED) WITH ('bucket' = '1')"
    )
    query = (
        f"SELECT {BY}, k, COUNT(*) AS n FROM TUMBLE(TABLE bookings, DESCRIPTOR(ts), "
        f"INTERVAL '40' MINUTE) GROUP BY {BY}, k"
    )
    view = ZonedView(session, query, zone, timedelta(minutes=20))
    newest = CHANGES[zone].replace(tzinfo=UTC) - 2 * HOUR
    view.run(NOW, "")
    for batch in range(6):
        rows = []
        for number in range(3):
            ts = newest + timedelta(minutes=rng.randint(-10, 40))
            rows.append(f"({batch * 3 + number}, '{rng.choice('ab')}', {_literal(ts)}, 0)")
            newest = max(newest, ts)
        session.execute(f"INSERT INTO bookings VALUES {', '.join(rows)}")
        view.run(NOW + batch, "")
        assert view.result() == session.rows(query)
        assert not session.rows("SELECT _kind FROM t__late")
    view.check_audit()


QUERIES = (
    "SELECT CAST(ts AS DATE) AS d, k, COUNT(*) AS n, SUM(v) AS v FROM bookings GROUP BY "
    "CAST(ts AS DATE), k",
    f"SELECT {BY}, window_time, k, COUNT(*) AS n FROM TUMBLE(TABLE bookings, DESCRIPTOR(ts), "
    f"INTERVAL '1' DAY) GROUP BY {BY}, window_time, k",
    f"SELECT {BY}, k, MAX(v) AS v FROM CUMULATE(TABLE bookings, DESCRIPTOR(ts), INTERVAL '1' HOUR, "
    f"INTERVAL '1' DAY) GROUP BY {BY}, k",
    f"SELECT {BY}, k, COUNT(*) AS n FROM SESSION(TABLE bookings PARTITION BY k, DESCRIPTOR(ts), "
    f"INTERVAL '20' MINUTE) GROUP BY {BY}, k",
    "SELECT id, DATE_FORMAT(ts, 'HH:mm') AS t, FLOOR(ts TO HOUR) AS h, SUM(v) OVER (PARTITION BY "
    "CAST(ts AS DATE) ORDER BY ts, id) AS s FROM bookings",
    "SELECT a.id, b.id AS other FROM bookings a JOIN bookings b ON a.k = b.k AND b.ts BETWEEN "
    "a.ts AND a.ts + INTERVAL '1' HOUR",
    f"SELECT {BY}, SUM(n) AS n FROM TUMBLE((SELECT window_time AS wt, COUNT(*) AS n FROM TUMBLE("
    f"TABLE bookings, DESCRIPTOR(ts), INTERVAL '30' MINUTE) GROUP BY {BY}, window_time), "
    f"DESCRIPTOR(wt), INTERVAL '1' DAY) GROUP BY {BY}",
)


@pytest.mark.parametrize(
    "number", [2, *(pytest.param(n, marks=pytest.mark.soak) for n in (0, 1, 3, 4, 5))]
)
def test_views_have_the_rows_of_their_queries(number: int, tmp_path: Path) -> None:
    rng = random.Random(number)
    zone = ZONES[number]
    session = ViewSession(tmp_path / "lake", "incremental")
    session.execute(TABLES)
    session.session.settings.set("table.local-time-zone", zone)
    for name, query in enumerate(QUERIES):
        session.view(f"v{name}", query)
    rows: list[Row] = []
    at = CHANGES[zone].replace(tzinfo=UTC) - 3 * HOUR
    for _ in range(3):
        at += timedelta(minutes=rng.choice((35, 50, 65, 200)))
        rows, _ = changed(rng, rows, at, session)
        for name, query in enumerate(QUERIES):
            session.refresh(f"v{name}")
            session.check(f"v{name}", query)
    days = Counter((local(ts, zone).date(), k) for _, k, ts, _ in rows if ts is not None)
    found = session.rows("SELECT d, k, n FROM v0 WHERE d IS NOT NULL")
    assert found == Counter((*key, count) for key, count in days.items())


def test_a_view_keeps_its_zone(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    session.execute(TABLES)
    session.execute(f"INSERT INTO bookings VALUES (1, 'a', {_literal(datetime(2024, 1, 1, 2))}, 1)")
    session.session.settings.set("table.local-time-zone", "America/New_York")
    session.view("days", QUERIES[0])
    session.refresh("days")
    expected = Counter([(datetime(2023, 12, 31).date(), "a", 1, 1)])
    assert session.rows("SELECT * FROM days") == expected
    session.restart()
    planned = session.spec("days")
    assert isinstance(planned, ViewSpec)
    assert planned.plan.zone == "America/New_York"
    session.refresh("days")
    assert session.rows("SELECT * FROM days") == expected
    with pytest.raises(TableError, match="another time zone"):
        session.view("days", QUERIES[0])
    session.run(f"CREATE OR REPLACE MATERIALIZED VIEW days AS {QUERIES[0]}")
    session.execute("ALTER MATERIALIZED VIEW days REFRESH")
    assert session.rows("SELECT * FROM days") == Counter([(datetime(2024, 1, 1).date(), "a", 1, 1)])


def test_a_script_runs_in_its_zone(tmp_path: Path) -> None:
    shop, zone = LocalPipeline(tmp_path), "America/New_York"
    tables = (
        f"SET 'table.local-time-zone' = '{zone}'; "
        "CREATE TABLE IF NOT EXISTS e (id INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts); "
        "CREATE TABLE IF NOT EXISTS days (id INT, d DATE, t STRING, ts TIMESTAMP(3)); "
        "CREATE TABLE IF NOT EXISTS w (a TIMESTAMP(3), b TIMESTAMP(3), n BIGINT)"
    )
    script = (
        f"{tables}; INSERT INTO days SELECT id, CAST(ts AS DATE), DATE_FORMAT(ts, 'HH:mm'), ts "
        f"FROM e; INSERT INTO w SELECT {BY}, COUNT(*) FROM TUMBLE(TABLE e, DESCRIPTOR(ts), "
        f"INTERVAL '1' DAY) GROUP BY {BY}"
    )
    first = datetime(2024, 11, 2, 23, tzinfo=UTC)
    rows = [(n, first + n * HOUR) for n in range(60)]
    for part in (rows[:20], rows[20:40], rows[40:]):
        values = ", ".join(f"({n}, TO_TIMESTAMP_LTZ({at.timestamp():.0f}, 0))" for n, at in part)
        shop.do(f"{tables}; INSERT INTO e VALUES {values}")
        shop.run(script)
    walls = [(n, local(at, zone)) for n, at in rows]
    assert sorted((row["id"], row["d"], row["t"], row["ts"]) for row in shop.rows("days")) == [
        (n, wall.date(), f"{wall:%H:%M}", wall) for n, wall in walls
    ]
    days = Counter(wall.date() for _, wall in walls)
    assert [(row["a"].date(), row["n"]) for row in shop.rows("w")] == sorted(days.items())[:-1]
    assert days[date(2024, 11, 3)] == 25
    assert all(row["b"] - row["a"] == 24 * HOUR for row in shop.rows("w"))
    assert not shop.rows("w__late")
    assert audit(shop.options, "default.w").equal
