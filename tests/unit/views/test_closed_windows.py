"""Windows that wait for a watermark, against a plain model: each once, and late rows in a table."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pypaimon import CatalogFactory
from tests.integration.runtime.conftest import failing_at
from tests.unit.runtime.local_pipeline import LocalPipeline
from tests.unit.views.view_session import ViewSession, bag

from streamhouse.connectors.base import WrittenBatch
from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.operators.planning.view_plan import plan_view
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.audit.view_audit import Comparison
from streamhouse.runtime.replay_requests import request_replay
from streamhouse.runtime.session.materialized_views import ViewInputTables
from streamhouse.runtime.session.show_statements import table_text
from streamhouse.runtime.state.batch_logs import note
from streamhouse.runtime.statements.insert_plan import plan_insert
from streamhouse.runtime.statements.result_view import KeptResult, kept_spec
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.views.late_changes import COLUMNS
from streamhouse.runtime.views.planner import OPEN_SINCE, ViewPlanner
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.runtime.views.task import LateWriter, RefreshTask
from streamhouse.source import Offset
from streamhouse.sql.parser.windowed_rows import Window
from streamhouse.sql.plan import TableInfo, Watermark
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import CreateTable, Insert
from streamhouse.sql.views.stored_view import HIDDEN_KEY

Row = tuple[Any, ...]
Windowed = tuple[Row, datetime, datetime]
"""A row with the start and the end of a window."""

EPOCH, NOW = datetime(1970, 1, 1), 1_800_000_000_000
MINUTE, MILLISECOND = timedelta(minutes=1), timedelta(milliseconds=1)
DELAY, IDLE = timedelta(seconds=30), 60_000
TABLES = """
CREATE TABLE events (id INT, k STRING, ts TIMESTAMP(3), v INT, now_ AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '30' SECOND);
CREATE TABLE bookings (id INT PRIMARY KEY NOT ENFORCED, k STRING, ts TIMESTAMP(3), v INT,
  now_ AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '30' SECOND) WITH ('bucket' = '1')
"""

KEYED = (
    "CREATE TABLE t__view (a TIMESTAMP(3), b TIMESTAMP(3), k STRING, n BIGINT, v BIGINT, PRIMARY "
    "KEY (a, b, k) NOT ENFORCED) WITH ('bucket' = '1')"
)


def tumble(rows: Counter[Row], size: timedelta) -> Iterator[tuple[Windowed, int]]:
    for row, count in rows.items():
        if row[2] is not None:
            start = EPOCH + (row[2] - EPOCH) // size * size
            yield (row, start, start + size), count


def hop(rows: Counter[Row]) -> Iterator[tuple[Windowed, int]]:
    for (row, start, _), count in tumble(rows, MINUTE):
        yield (row, start, start + 2 * MINUTE), count
        yield (row, start - MINUTE, start + MINUTE), count


def by_window(windowed: Counter[Windowed]) -> dict[tuple[datetime, datetime], list[Row]]:
    groups: dict[tuple[datetime, datetime], list[Row]] = {}
    for row, start, end in windowed.elements():
        groups.setdefault((start, end), []).append(row)
    return groups


Groups = dict[tuple[datetime, datetime], list[Row]]


def totals(groups: Groups, others: Groups) -> Iterator[Row]:
    for (start, end), rows in groups.items():
        for k in {row[1] for row in rows}:
            values = [row[3] for row in rows if row[1] == k]
            yield start, end, k, len(values), sum(values)


def best(groups: Groups, others: Groups) -> Iterator[Row]:
    for (start, end), rows in groups.items():
        for place, row in enumerate(sorted(rows, key=lambda r: (-r[3], r[0]))[:2]):
            yield start, end, row[0], row[3], place + 1


def joined(groups: Groups, others: Groups) -> Iterator[Row]:
    for (start, end), rows in groups.items():
        for row in rows:
            found = [o for o in others.get((start, end), []) if o[1] == row[1]]
            for other in found or [(None,)]:
                yield end, row[0], other[0]


def unmatched(groups: Groups, others: Groups) -> Iterator[Row]:
    for window, rows in groups.items():
        found = {other[1] for other in others.get(window, [])}
        for row in rows:
            if row[1] not in found:
                yield window[1], row[0]


def unrelated(groups: Groups, others: Groups) -> Iterator[Row]:
    for rows in groups.values():
        for k in {row[1] for row in rows}:
            yield k, sum(row[1] == k for row in rows)


TUMBLED = "TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
HOPPED = "HOP(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)"
BY = "window_start, window_end"


Windows = Callable[[Counter[Row]], Iterator[tuple[Windowed, int]]]


@dataclass(frozen=True)
class Case:
    """A query, and what it computes: the windows of a row, and the result of closed ones.

    `others` are the windows of the second table, if they differ. Windows are closed with a `delay`.
    """

    query: str
    tables: tuple[str, ...]
    windows: Windows
    result: Callable[[Groups, Groups], Iterator[Row]]
    others: Windows | None = None
    delay: timedelta = timedelta(0)

    def windows_of(self, number: int) -> Windows:
        return self.others if number and self.others is not None else self.windows


def one_minute(rows: Counter[Row]) -> Iterator[tuple[Windowed, int]]:
    return tumble(rows, MINUTE)


def positive(rows: Counter[Row]) -> Iterator[tuple[Windowed, int]]:
    return one_minute(Counter({row: count for row, count in rows.items() if row[3] > 0}))


def of_minutes(rows: Counter[Row]) -> Iterator[tuple[Windowed, int]]:
    """Windows of two minutes over the counts of each minute."""
    for (_, end), group in by_window(Counter(dict(one_minute(rows)))).items():
        last = end - MILLISECOND
        start = EPOCH + (last - EPOCH) // (2 * MINUTE) * (2 * MINUTE)
        for k, count in Counter(row[1] for row in group).items():
            yield ((last, k, count), start, start + 2 * MINUTE), 1


def summed(groups: Groups, others: Groups) -> Iterator[Row]:
    for (_, end), rows in groups.items():
        yield end, len(rows), sum(row[2] for row in rows)


def near(
    rows: Counter[Row], size: timedelta, first: timedelta, last: timedelta
) -> Iterator[tuple[Windowed, int]]:
    """Windows of whole minutes from whose end a row is between two durations away."""
    for row, count in rows.items():
        if row[2] is not None:
            end = EPOCH + (row[2] - last - EPOCH) // MINUTE * MINUTE
            for _ in range(9):
                if first <= row[2] - end <= last:
                    yield (row, end - size, end), count
                end += MINUTE


def up_to_ends(rows: Counter[Row]) -> Iterator[tuple[Windowed, int]]:
    return near(rows, MINUTE, -MINUTE, timedelta(0))


def before_ends(rows: Counter[Row]) -> Iterator[tuple[Windowed, int]]:
    """From 90 seconds before the end on, and more than 10 seconds before the last moment."""
    return near(rows, 2 * MINUTE, -90 * MINUTE / 60, -10 * MINUTE / 60 - 2 * MILLISECOND)


def highest(groups: Groups, others: Groups) -> Iterator[Row]:
    for window, rows in groups.items():
        most = max((other[3] for other in others.get(window, [])), default=None)
        for row in rows:
            if row[3] == most:
                yield row[0], row[3], window[1]


def counted(groups: Groups, others: Groups) -> Iterator[Row]:
    for window, rows in groups.items():
        for row in rows:
            count = sum(other[1] == row[1] for other in others.get(window, []))
            if count:
                yield row[0], count


MINUTES = (
    f"WITH m AS (SELECT window_time AS wt, k, COUNT(*) AS n FROM {TUMBLED} GROUP BY {BY}, "
    "window_time, k) "
)
CASES = [
    Case(f"SELECT {BY}, k, COUNT(*), SUM(v) FROM {TUMBLED} WHERE v > 0 GROUP BY {BY}, k",
         ("events",), positive, totals),
    Case(f"SELECT {BY}, k, COUNT(*), SUM(v) FROM {HOPPED} GROUP BY {BY}, k",
         ("bookings",), hop, totals),
    Case("SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), TUMBLE_END(ts, INTERVAL '1' MINUTE), k, "
         "COUNT(*), SUM(v) FROM {} GROUP BY k, TUMBLE(ts, INTERVAL '1' MINUTE)",
         ("bookings",), one_minute, totals),
    Case(f"SELECT {BY}, id, v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {BY} ORDER BY v "
         f"DESC, id) AS n FROM {TUMBLED}) WHERE n <= 2", ("bookings",), one_minute, best),
    Case(f"SELECT a.window_end, a.id, b.id FROM {TUMBLED} a LEFT JOIN {TUMBLED} b ON "
         "a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k",
         ("events", "bookings"), one_minute, joined),
    # The same rows may be the result of different windows.
    Case(f"SELECT k, COUNT(*) FROM {TUMBLED} GROUP BY {BY}, k",
         ("bookings",), one_minute, unrelated),
    Case(MINUTES + "SELECT window_end, COUNT(*), SUM(n) FROM TUMBLE(TABLE m, DESCRIPTOR(wt), "
         f"INTERVAL '2' MINUTE) GROUP BY {BY}", ("bookings",), of_minutes, summed),
    Case(f"SELECT a.window_end, a.id FROM {TUMBLED} a WHERE NOT EXISTS (SELECT 1 FROM {TUMBLED} b "
         "WHERE a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k)",
         ("bookings", "events"), one_minute, unmatched),
    # Nexmark's q7: a row at the end of a window meets it, too.
    Case("SELECT x.id, x.v, w.e FROM {} x JOIN (SELECT MAX(v) AS m, window_end AS e FROM "
         f"{TUMBLED} GROUP BY {BY}) w ON x.v = w.m WHERE x.ts BETWEEN w.e - INTERVAL '1' MINUTE "
         "AND w.e", ("events", "bookings"), up_to_ends, highest, one_minute, MILLISECOND),
    Case("SELECT x.id, w.n FROM (SELECT window_time AS wt, k, COUNT(*) AS n FROM "
         f"{HOPPED.format('{1}')} GROUP BY {BY}, window_time, k) w, {{0}} x WHERE x.k = w.k AND "
         "x.ts > w.wt - INTERVAL '90' SECOND AND w.wt - INTERVAL '10' SECOND > x.ts",
         ("bookings", "events"), before_ends, counted, hop),
]  # fmt: skip

FAST = ((5, 0),)


@dataclass
class Model:
    """What a view of closed windows, and its table of late rows, must have."""

    case: Case
    rows: list[Counter[Row]]
    watermarks: list[datetime | None]
    moved: list[int]
    lateness: timedelta | None = None
    at: datetime | None = None
    final: datetime | None = None
    """By which watermark windows do not change any more."""
    result: Counter[Any] = field(default_factory=Counter)
    late: Counter[Any] = field(default_factory=Counter)

    def epoch(self, tables: list[Counter[Row]], entered: list[list[Row]], now: int) -> None:
        old_at, old, before = self.at, self.rows, self.final
        for n, rows in enumerate(entered):
            times = [row[2] - DELAY for row in rows if row[2] is not None]
            newest = [each for each in (self.watermarks[n], *times) if each is not None]
            self.watermarks[n] = max(newest, default=None)
            if tables[n] != old[n]:
                self.moved[n] = now
        pairs = zip(self.watermarks, self.moved, strict=True)
        active = [watermark for watermark, moved in pairs if now - moved < IDLE]
        known = [each for each in active or self.watermarks if each is not None]
        if known and None not in active:
            at = min(known) if active else max(known)
            self.at = at if old_at is None else max(old_at, at)
        if self.at is not None:
            final = self.at - self.case.delay - (self.lateness or timedelta(0))
            self.final = final if before is None else max(before, final)
        self.rows = tables
        for n, (was, now_) in enumerate(zip(old, tables, strict=True)):
            windows = self.case.windows_of(n)
            change = Counter(dict(windows(now_)))
            change.subtract(dict(windows(was)))
            for (row, start, end), count in change.items():
                if before is not None and end - MILLISECOND <= before and count:
                    self.late["+I" if count > 0 else "-D", n, *row, start, end] += abs(count)
        groups = [by_window(self._closed(n, rows, before)) for n, rows in enumerate(tables)]
        if self.lateness is not None:
            # Other windows have changed.
            self.result = Counter({
                row: count for row, count in self.result.items()
                if before is not None and row[1] - MILLISECOND <= before
            })  # fmt: skip
        self.result += bag(list(self.case.result(groups[0], groups[-1])))

    def _closed(
        self, number: int, rows: Counter[Row], before: datetime | None
    ) -> Counter[Windowed]:
        closed: Counter[Windowed] = Counter()
        for windowed, count in self.case.windows_of(number)(rows):
            last = windowed[2] - MILLISECOND
            reached = self.lateness is not None or (self.final is not None and last <= self.final)
            if reached and (before is None or last > before):
                closed[windowed] += count
        return closed


class ClosedView:
    """Runs the batches of a view of closed windows in this process, with kills.

    With a `lateness` it is a table with a key, whose windows change for so long.
    """

    def __init__(self, session: ViewSession, query: str, lateness: timedelta | None = None) -> None:
        self.session, self._query, self._lateness = session, query, lateness
        self.offset: Offset = {}
        self._id = str(uuid.uuid4())
        self.restart()

    def restart(self) -> None:
        session = self.session.session
        session.settings.set("table.exec.source.idle-timeout", f"{IDLE} ms")
        (statement,) = parse_script(f"INSERT INTO t__view {self._query}")
        assert isinstance(statement, Insert)
        if self._lateness is not None:
            millis = self._lateness // MILLISECOND
            session.settings.set("table.exec.emit.allow-lateness", f"{millis} ms")
        else:
            name = session.full(statement.target)
            session.materialized.reserved.add(name)
            columns = plan_view(statement.query, ViewInputTables(session, name)).columns
            shown = (replace(c, nullable=True) for c in columns if c.name != HIDDEN_KEY)
            session.tables.keep(TableInfo(name, tuple(shown)))
        target = session.table(statement.target)
        planned = plan_insert(session, statement, target)
        assert isinstance(planned, KeptResult)
        planned.inputs.create(statement.position)
        self.spec = replace(kept_spec(session, statement, target, planned), query_id=self._id)

    def run(self, now: int, killed: str) -> None:
        with patch("time.time_ns", lambda: now * 1_000_000):
            end = ViewPlanner(self.spec, self.session.folder).latest_offset(self.offset)
        if end == self.offset:
            return
        for again in [True, False] if killed else [False]:
            number = int(end["batch"])
            task = RefreshTask(self.spec, TaskInput(0, self.offset, end))
            messages = [bytes(message) for message in task.write()]
            known = self.spec.continued(self.offset, end["view"])
            late = list(LateWriter(self.spec, TaskInput(0, known, end), "a").write())
            if killed == "before" and again:
                continue
            committer = self.spec.open_sink().committer(self._id)
            committer.commit(lambda: WrittenBatch(number, messages), lambda: None)  # noqa: B023
            if killed == "between" and again:
                continue
            for address in self.spec.auxiliary_tables:
                own = [message for table, message in late if table == address.identifier]
                TableCommitter(address.warehouse, address.identifier, self._id).commit(number, own)
        self.offset = json.loads(json.dumps(end))
        if task.open_since is not None:
            note(self.session.folder / OPEN_SINCE, end, task.open_since)

    def check_audit(self) -> None:
        """Assert that an audit finds no difference."""
        assert not Comparison(self.spec, self.offset, self._id).audit().differences

    def result(self) -> Counter[Any]:
        return self.session.rows("SELECT * FROM t__view")

    def late(self) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for table in self.spec.auxiliary_tables:
            names = [c.name for c in table.open().columns if c not in COLUMNS]
            listed = ", ".join(f"`{name}`" for name in names[:-1] if name != "now_")
            name = table.identifier.split(".")[-1]
            found += self.session.rows(f"SELECT _kind, _input, {listed} FROM {name}")
        return found


def insert(table: str, rows: list[Row]) -> str:
    values = ", ".join(
        f"({i}, {'CAST(NULL AS STRING)' if k is None else repr(k)}, "
        f"{'CAST(NULL AS TIMESTAMP(3))' if ts is None else f'TIMESTAMP {str(ts)!r}'}, {v})"
        for i, k, ts, v in rows
    )
    return f"INSERT INTO {table} VALUES {values}"


def change(
    rng: random.Random, table: str, rows: Counter[Row], at: datetime, session: ViewSession
) -> tuple[Counter[Row], list[Row]]:
    """Change a table around a time; returns its rows, and those that entered."""

    def row() -> Row:
        ts = at + timedelta(seconds=rng.choice((0, 0, 0, -40, -100, -300)) + rng.randint(-30, 30))
        number = rng.randint(0, 12)
        return number, rng.choice("ab"), rng.choice((ts, ts, ts, ts, None)), rng.randint(0, 3)

    new = [row() for _ in range(rng.randint(2, 6))]
    if table == "events":
        new += rng.sample(new, rng.randint(0, 1))
        session.execute(insert(table, new))
        return rows + Counter(new), new
    keyed = {each[0]: each for each in rows}
    if keyed and rng.random() < 0.4:
        gone = rng.choice(sorted(keyed))
        session.execute(f"DELETE FROM {table} WHERE id = {gone}")
        del keyed[gone]
    last = {each[0]: each for each in new}
    session.execute(insert(table, list(last.values())))
    return Counter((keyed | last).values()), list(last.values())


@pytest.mark.parametrize(
    ("case", "seed"),
    [
        pytest.param(case, seed, marks=() if (case, seed) in FAST else pytest.mark.soak)
        for seed in range(40)
        for case in range(len(CASES))
    ],
)
def test_each_window_is_there_once_and_late_rows_are_kept(
    case: int, seed: int, tmp_path: Path
) -> None:
    check(case, seed, tmp_path, None)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))]
)
def test_windows_change_for_the_allowed_lateness(seed: int, tmp_path: Path) -> None:
    check(1, seed, tmp_path, 90 * MINUTE / 60)


def check(case: int, seed: int, folder: Path, lateness: timedelta | None) -> None:
    """Compare a view with its model after each batch."""
    rng, session, of = random.Random(seed * 100 + case), ViewSession(folder / "lake"), CASES[case]
    session.execute(TABLES)
    if lateness is not None:
        session.execute(KEYED)
    view = ClosedView(session, of.query.format(*of.tables), lateness)
    count, now = len(of.tables), NOW
    empty: list[Counter[Row]] = [Counter() for _ in of.tables]
    model = Model(of, empty, [None] * count, [now] * count, lateness)
    at = datetime(2026, 1, 1)
    view.run(now, "")
    model.epoch(empty, [[]] * count, now)
    for _ in range(10 if seed else 6):
        now += rng.choice((1_000, 1_000, IDLE))
        at += timedelta(seconds=rng.choice((0, 40, 60, 90, 200)))
        tables, entered = list(model.rows), [list[Row]() for _ in of.tables]
        for n, table in enumerate(of.tables):
            if rng.random() < 0.8:
                tables[n], entered[n] = change(rng, table, tables[n], at, session)
        view.run(now, rng.choice(("", "", "before", "between")))
        model.epoch(tables, entered, now)
        assert view.offset["watermark"]["at"] == (
            None if model.at is None else (model.at - datetime(1970, 1, 1)) // MILLISECOND
        )
        assert view.result() == model.result, (
            view.result() - model.result,
            model.result - view.result(),
        )
        assert view.late() == model.late, (view.late() - model.late, model.late - view.late())
        if rng.random() < 0.2:
            session.restart()
            view.restart()
    view.check_audit()


def test_rows_before_a_rollback_are_not_taken_for_those_of_a_new_snapshot(tmp_path: Path) -> None:
    """Which rows are late is not known where the rows before the batch are not."""
    session, second = ViewSession(tmp_path / "lake"), timedelta(seconds=1)
    session.execute(TABLES)
    view = ClosedView(
        session, f"SELECT {BY}, COUNT(*) FROM {TUMBLED.format('bookings')} GROUP BY {BY}"
    )
    for number in range(2):
        session.execute(insert("bookings", [(number, "a", EPOCH + number * second, 1)]))
        view.run(NOW + number * 1_000, "")
    table = CatalogFactory.create(dict(session.warehouse)).get_table("shop.bookings")
    table.rollback_to(1)
    for number in range(2, 4):
        session.execute(insert("bookings", [(number, "a", EPOCH + number * second, 1)]))
    with pytest.raises(DataLossError, match="snapshot 2 has expired, or was rolled back"):
        view.run(NOW + 10_000, "")


@pytest.mark.parametrize(
    ("case", "seed"),
    [
        pytest.param(case, seed, marks=() if seed == 0 else pytest.mark.soak)
        for seed in range(20)
        for case in ("closed", "session", "lateness")
    ],
)
def test_with_expiry_equals_without(case: str, seed: int, tmp_path: Path) -> None:
    """Without late rows a view that forgets windows has what the SELECT of all rows gives."""
    rng, session = random.Random(seed), ViewSession(tmp_path / "lake")
    session.execute(TABLES)
    if case == "lateness":
        session.execute(KEYED)
    gap = "SESSION(TABLE {} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '20' SECOND)"
    query = (
        f"SELECT {BY}, k, COUNT(*), SUM(v) FROM "
        f"{(gap if case == 'session' else HOPPED).format('bookings')} GROUP BY {BY}, k"
    )
    view = ClosedView(session, query, MINUTE if case == "lateness" else None)
    view.run(NOW, "")
    newest, number = datetime(2026, 1, 1), 0
    for batch in range(1, 9):
        rows = list[Row]()
        for _ in range(rng.randint(1, 5)):
            ts = newest + timedelta(seconds=rng.randint(-29, 60 if rng.random() < 0.5 else -1))
            number += 1
            rows.append((number, rng.choice("ab"), ts, rng.randint(0, 3)))
        newest = max(newest, *(row[2] for row in rows))
        session.execute(insert("bookings", rows))
        view.run(NOW + batch * 1_000, rng.choice(("", "between")))
        expected, passed = session.rows(query), newest - DELAY
        if case != "lateness":
            last = timedelta(0) if case == "session" else MILLISECOND
            expected = Counter({r: n for r, n in expected.items() if r[1] - last <= passed})
        assert view.result() == expected
    assert not view.late()


def test_a_watermark_is_added_changed_copied_and_removed(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")

    def watermark(table: str) -> Watermark | None:
        return session.session.table((table,)).watermark

    session.execute("CREATE TABLE plain (ts TIMESTAMP(3), v INT)")
    session.execute("ALTER TABLE plain ADD WATERMARK FOR ts AS ts - INTERVAL '1' SECOND")
    assert watermark("plain") == Watermark("ts", "ts - INTERVAL '1' SECOND")
    session.execute("ALTER TABLE plain MODIFY WATERMARK FOR ts AS ts")
    text = table_text(session.session.table(("plain",)))
    assert "WATERMARK FOR `ts` AS ts" in text
    (shown,) = parse_script(text)
    assert isinstance(shown, CreateTable) and shown.watermark == watermark("plain")
    session.execute("CREATE TABLE other LIKE plain; CREATE TABLE less LIKE plain (EXCLUDING ALL)")
    assert [watermark(each) for each in ("plain", "other", "less")] == [
        Watermark("ts", "ts"), Watermark("ts", "ts"), None
    ]  # fmt: skip
    for change, error in (
        ("ADD WATERMARK FOR x AS x", "no column 'x'"),
        ("RENAME ts TO t", "watermark AS ts uses column 'ts'"),
    ):
        with pytest.raises(StreamhouseError, match=error):
            session.execute(f"ALTER TABLE plain {change}")
    session.execute("ALTER TABLE plain DROP WATERMARK")
    assert watermark("plain") is None


def test_each_partition_of_a_topic_has_a_watermark(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    session.run(
        "CREATE TEMPORARY TABLE topic (k STRING, ts TIMESTAMP(3), part INT METADATA FROM "
        "'partition' VIRTUAL, WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka', 'topic' = 't', "
        "'properties.bootstrap.servers' = 'localhost:1', 'scan.startup.mode' = 'earliest-offset', "
        "'format' = 'json')"
    )
    tumbled = TUMBLED.format("topic")
    view = ClosedView(session, f"SELECT window_start, COUNT(*) FROM {tumbled} GROUP BY {BY}")
    now, minute = NOW, datetime(2026, 1, 1)
    for second, part, hours, at, closed in (
        (10, 0, 0, 10, []),
        (20, 1, 0, 10, []),
        (90, 0, 0, 20, []),
        (50, 1, 0, 50, []),
        (62, 1, 0, 62, [[minute, 3]]),
        (150, 0, 1, 150, [[minute, 3], [minute + MINUTE, 2]]),  # the other one is idle
    ):
        now += 1_000 + hours * 3_600_000
        row = f"('a', TIMESTAMP '{minute + timedelta(seconds=second)}', {part})"
        session.execute(f"INSERT INTO t__view__in_topic VALUES {row}")
        view.run(now, "")
        assert EPOCH + view.offset["watermark"]["at"] * MILLISECOND == minute + timedelta(
            seconds=at
        )
        assert view.result() == bag(closed)


def test_tables_have_idle_timeouts_of_their_own(tmp_path: Path) -> None:
    session, option = ViewSession(tmp_path / "lake"), "'scan.watermark.idle-timeout'"
    session.execute(TABLES.replace("'bucket'", f"{option} = '5 s', 'bucket'"))
    joined = (
        f"SELECT a.window_end, a.id, b.id FROM {TUMBLED} a JOIN {TUMBLED.format('bookings')} b ON "
        "a.window_start = b.window_start AND a.window_end = b.window_end"
    )
    view = ClosedView(session, joined.format("events"))
    assert sorted(view.spec.idle_ms.values()) == [5_000, IDLE]
    start = datetime(2026, 1, 1)
    steps = (("events", 9, None), ("bookings", 1, 1), ("events", 10, 10))
    for step, (table, minute, at) in enumerate(steps):
        session.execute(insert(table, [(1, "a", start + minute * MINUTE + DELAY, 0)]))
        view.run(NOW + step * 10_000, "")
        expected = None if at is None else (start + at * MINUTE - EPOCH) // MILLISECOND
        assert view.offset["watermark"]["at"] == expected
    hinted = ClosedView(session, joined.format(f"events /*+ OPTIONS({option} = '1 s') */"))
    assert sorted(hinted.spec.idle_ms.values()) == [1_000, 5_000]


def test_watermark_options_of_a_source(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    create = (
        "CREATE TEMPORARY TABLE s (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = "
        "'datagen', 'scan.watermark.idle-timeout' = '7 s', 'scan.watermark.{}' = '{}')"
    )
    with pytest.raises(StreamhouseError, match="alignment.max-drift"):
        session.run(create.format("alignment.max-drift", "far"))
    with pytest.raises(StreamhouseError, match="the table has no WATERMARK"):
        session.run(create.replace(", WATERMARK FOR ts AS ts", "").format("emit.strategy", "x"))
    for number, (option, value) in enumerate(
        (("alignment.group", "a"), ("alignment.max-drift", "1 min"), ("emit.strategy", "on-event"))
    ):
        notices = list[str]()
        session.session.notice = notices.append
        session.run(create.replace(" s (", f" s{number} (").format(option, value))
        assert f"'scan.watermark.{option}' has no effect here" in notices[0]
    session.run(create.format("alignment.group", "a"))
    shown = table_text(session.session.table(("s",)))
    assert "'scan.watermark.idle-timeout' = '7 s'" in shown
    counted = f"SELECT window_end, COUNT(*) FROM {TUMBLED.format('s')} GROUP BY {BY}"
    assert list(ClosedView(session, counted).spec.idle_ms.values()) == [7_000]


@pytest.mark.parametrize(
    "step",
    [
        "target-committed",
        pytest.param("batch-written", marks=pytest.mark.soak),
        pytest.param("late-committed", marks=pytest.mark.soak),
    ],
)
def test_a_pipeline_writes_windows_and_late_rows_once(step: str, tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    tables = TABLES.split(";")[0].replace("TABLE", "TABLE IF NOT EXISTS")
    script = (
        f"{tables}; CREATE TABLE IF NOT EXISTS t (b TIMESTAMP(3), n BIGINT); INSERT INTO t SELECT "
        f"window_end, COUNT(*) FROM {TUMBLED.format('events')} GROUP BY {BY}"
    )
    start, view = datetime(2026, 1, 1), "default.t"
    for number, seconds in enumerate(((10, 100), (20, 200))):
        rows = [(n, "a", start + timedelta(seconds=n), 0) for n in seconds]
        shop.do(f"{tables}; {insert('events', rows)}")
        if number:
            with failing_at(f"{step}:0:{view}"):
                shop.run(script)
        output = shop.run(script)
    assert any("later rows go to a table of late rows" in line for line in output)
    ends = sorted(row["b"] for row in shop.rows("t"))
    assert ends == [start + MINUTE, start + 2 * MINUTE]
    assert [(row["id"], row["_kind"]) for row in shop.rows("t__late")] == [(20, "+I")]
    assert audit(shop.options, view).equal
    again = f"SELECT window_end, COUNT(*) FROM t__late WHERE _kind = '+I' GROUP BY {BY}"
    shop.do(f"INSERT INTO t {again}")
    assert sorted((row["b"], row["n"]) for row in shop.rows("t")) == [
        (start + MINUTE, 1), (start + MINUTE, 1), (start + 2 * MINUTE, 1)
    ]  # fmt: skip
    assert audit(shop.options, view).equal
    assert list(request_replay(shop.options, "default.t__late").values()) == [1]
    assert not request_replay(shop.options, "default.t__late")
    with failing_at(f"{step}:2:{view}"):
        shop.run(script)
    shop.run(script)
    assert sorted((row["b"], row["n"]) for row in shop.rows("t")) == [
        (start + MINUTE, 1), (start + MINUTE, 1), (start + MINUTE, 2), (start + 2 * MINUTE, 1)
    ]  # fmt: skip
    assert audit(shop.options, view).equal


@pytest.mark.parametrize(
    ("case", "seed"),
    [
        pytest.param(case, seed, marks=() if seed == 0 else pytest.mark.soak)
        for seed in range(20)
        for case in ("closed", "keyed", "sessions", "keyed sessions", "joined")
    ],
)
def test_late_rows_are_read_again(case: str, seed: int, tmp_path: Path) -> None:
    """After a replay of all late rows, the result is that of a SELECT without a watermark."""
    rng, session = random.Random(seed), ViewSession(tmp_path / "lake")
    session.execute(TABLES)
    keyed = case.startswith("keyed")
    if keyed:
        session.execute(KEYED)
    gap = "SESSION(TABLE {} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '20' SECOND)"
    query = (
        f"SELECT {BY}, k, COUNT(*), SUM(v) FROM "
        f"{(gap if 'sessions' in case else HOPPED).format('events')} GROUP BY {BY}, k"
    )
    if case == "joined":
        query = CASES[4].query.format("events", "bookings").replace("LEFT", "")
    view = ClosedView(session, query, MINUTE if keyed else None)
    view.run(NOW, "")
    at, tables, requested = datetime(2026, 1, 1), dict[str, Counter[Row]](), 0
    for batch in range(1, 10):
        at += timedelta(seconds=rng.choice((0, 40, 90, 200)))
        for table in ("events", "bookings")[: 1 + (case == "joined")]:
            tables[table], _ = change(rng, table, tables.get(table, Counter()), at, session)
        if batch in (4, 7, 9):
            for late in view.spec.auxiliary_tables:
                requested += sum(request_replay(session.warehouse, late.identifier).values())
        view.run(NOW + batch * 2_000, rng.choice(("", "before", "between")))
        view.check_audit()
        if rng.random() < 0.3:
            session.restart()
            view.restart()
    for late in view.spec.auxiliary_tables:
        request_replay(session.warehouse, late.identifier)
    view.run(NOW + 30_000, "")
    view.check_audit()
    assert requested or seed
    final, expected = view.spec.final_at(view.offset), session.rows(query)
    assert final is not None
    if keyed:
        assert view.result() == expected
        return
    ends = {row: row[case != "joined"] - MILLISECOND * ("sessions" not in case) for row in expected}
    passed = datetime(1970, 1, 1) + final * MILLISECOND
    closed = Counter({row: n for row, n in expected.items() if ends[row] <= passed})
    assert (closed or seed) and closed <= view.result(), closed - view.result()


def test_windows_over_processing_time_have_the_rows_as_they_were_read(tmp_path: Path) -> None:
    shop, bids = LocalPipeline(tmp_path), "CREATE TABLE IF NOT EXISTS bid (bidder INT)"
    script = (
        f"{bids}; CREATE TABLE IF NOT EXISTS q12 (bidder INT, n BIGINT, e TIMESTAMP(3)); "
        "CREATE TEMPORARY VIEW b AS SELECT *, PROCTIME() AS p_time FROM bid; "
        "INSERT INTO q12 SELECT bidder, COUNT(*), window_end FROM TABLE(TUMBLE(TABLE b, "
        "DESCRIPTOR(p_time), INTERVAL '1' SECOND)) GROUP BY bidder, window_start, window_end"
    )
    began = datetime.now(UTC).replace(tzinfo=None)
    for number in range(3):
        shop.do(f"{bids}; INSERT INTO bid VALUES (1), ({number + 2}), (1)")
        shop.run(script)
        time.sleep(1.0)
    rows = [(row["bidder"], row["n"]) for row in shop.rows("q12")]
    assert sorted(rows) == [(1, 2), (1, 2), (2, 1), (3, 1)]
    assert all(row["e"] > began for row in shop.rows("q12"))
    assert not shop.rows("q12__late")


@pytest.mark.parametrize(
    ("window", "ends"),
    [
        (Window("TUMBLE", 7, 0, 3), {3 + 7 * n for n in range(-20, 20)}),
        (Window("HOP", 7, 3, -1), {-1 + 3 * n + 7 for n in range(-40, 40)}),
        (Window("CUMULATE", 12, 4, 5), {5 + 4 * n for n in range(-30, 30)}),
    ],
)
def test_batches_know_whether_a_window_ends(window: Window, ends: set[int]) -> None:
    for before in range(-30, 30):
        for after in range(before, before + 15):
            expected = any(before < end - 1 <= after for end in ends)
            assert window.ends_between(before, after) == expected, (before, after)


def test_settings_of_early_results_and_lateness(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    session.execute(
        f"{TABLES}; CREATE TABLE ends (e TIMESTAMP(3) PRIMARY KEY NOT ENFORCED, n BIGINT)"
    )
    notices: list[str] = []
    session.session.notice = notices.append
    for key, value in (
        ("early-fire.enabled", "true"), ("early-fire.delay", "2 s"), ("allow-lateness", "1 min")
    ):  # fmt: skip
        session.session.settings.set(f"table.exec.emit.{key}", value)

    def spec(query: str) -> ViewSpec:
        (statement,) = parse_script(f"INSERT INTO ends {query}")
        assert isinstance(statement, Insert)
        target = session.session.table(statement.target)
        planned = plan_insert(session.session, statement, target)
        assert isinstance(planned, KeptResult)
        return kept_spec(session.session, statement, target, planned)

    windowed = spec(f"SELECT window_end, COUNT(*) FROM {TUMBLED.format('events')} GROUP BY {BY}")
    assert (windowed.freshness_s, windowed.lateness_ms, len(windowed.late)) == (2.0, 60_000, 1)
    plain = spec("SELECT ts, AVG(v) FROM events GROUP BY ts")
    assert (plain.freshness_s, plain.late) == (0.0, ())
    assert not notices
    spec(f"SELECT ts, AVG(v) FROM {TUMBLED.format('events')} GROUP BY ts")
    assert "'table.exec.emit.allow-lateness' has no effect: the result would not be" in notices[0]
