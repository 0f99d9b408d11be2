"""Windows: TUMBLE, HOP, CUMULATE and SESSION as table functions and in GROUP BY."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from streamhouse.errors import SqlError

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)
_TYPES = ("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)")
Span = tuple[datetime, datetime]
Row = dict[str, Any]


def _spans(kind: str, size: int, step: int, offset: int, at: datetime) -> Iterator[Span]:
    """The windows of a time by trial of all that begin near it; durations in milliseconds."""
    slide = step if kind == "HOP" else size
    nearest = (at - _EPOCH) // (slide * _MS)
    around = size // slide + 3
    for number in range(nearest - around, nearest + around):
        start = _EPOCH + (number * slide + offset % slide) * _MS
        for length in range(step, size + 1, step) if kind == "CUMULATE" else [size]:
            if start <= at < start + length * _MS:
                yield start, start + length * _MS


def _sessions(rows: list[Row], gap: int, key: str) -> Iterator[tuple[Row, Span]]:
    """The rows with their sessions, found by a walk over the times of each key."""
    for value in {row[key] for row in rows}:
        found = [row for row in rows if row[key] == value]
        found.sort(key=lambda row: row["ts"])
        while found:
            session = [found.pop(0)]
            while found and _cut(found[0]["ts"]) - _cut(session[-1]["ts"]) <= gap * _MS:
                session.append(found.pop(0))
            span = _cut(session[0]["ts"]), _cut(session[-1]["ts"]) + gap * _MS
            yield from ((row, span) for row in session)


def _cut(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _rows(rng: random.Random, size: int, digits: int) -> list[Row]:
    """Rows with nulls, ties, times on boundaries and times before 1970."""
    origin = rng.choice((_EPOCH, datetime(2026, 3, 29, 1), datetime(1969, 12, 31, 23, 59)))
    rows = []
    for number in range(rng.randint(0, 12)):
        at = origin + rng.randint(-4, 4) * size * _MS
        if rng.random() < 0.7:
            at += timedelta(microseconds=rng.choice((-1, 1)) * rng.randint(0, size * 1000))
        at = at if digits == 6 else _cut(at)
        rows.append({"id": number, "k": rng.choice("ab"), "ts": rng.choice((at, at, at, None))})
    return rows


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(n, marks=pytest.mark.soak) for n in range(20, 1000))]
)
def test_rows_are_in_the_windows_of_a_plain_model(catalog: Catalog, seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.choice(("TUMBLE", "HOP", "CUMULATE", "SESSION"))
    step = rng.choice((1, 7, 1000, 60_000))
    size = (
        step * rng.choice((1, 2, 5)) if kind == "CUMULATE" else rng.choice((1, 10, 3_500, 90_000))
    )
    if kind == "HOP":
        step = max(1, size // rng.choice((1, 2, 3)) + rng.choice((0, 0, size)))
    offset = rng.choice((0, 0, size // 3, -size // 2, 2 * size + 1))
    column = rng.choice(_TYPES)
    catalog.add(f"CREATE TABLE events (id INT, k STRING, ts {column})")
    rows = _rows(rng, size, 3 if "(3)" in column else 6)
    data, durations = "TABLE events", [size]
    if kind == "SESSION":
        data = "TABLE events PARTITION BY k"
    else:
        durations = [*([step] if kind != "TUMBLE" else []), size, *([offset] if offset else [])]
    listed = ", ".join(f"INTERVAL '{length / 1000:.3f}' SECOND(3)" for length in durations)
    text = f"SELECT id, window_start, window_end, window_time FROM {kind}({data}, DESCRIPTOR(ts), "
    dated = [row for row in rows if row["ts"] is not None]
    expected = (
        _sessions(dated, size, "k")
        if kind == "SESSION"
        else ((row, span) for row in dated for span in _spans(kind, size, step, offset, row["ts"]))
    )
    zoned: Callable[[datetime], datetime] = lambda at: at  # noqa: E731
    if column == "TIMESTAMP_LTZ(3)":
        zoned = lambda at: at.replace(tzinfo=UTC)  # noqa: E731
    assert Counter(catalog.query(f"{text}{listed})", rows)) == Counter(
        (row["id"], start, end, zoned(end - _MS)) for row, (start, end) in expected
    )


MINUTE = "INTERVAL '1' MINUTE"
_BIDS: list[Row] = [
    {"id": n, "k": item, "ts": datetime(2020, 4, 15, 8, minute)}
    for n, (minute, item) in enumerate(zip((5, 7, 9, 11, 13, 17), "CADBEF", strict=True))
]


def _events(catalog: Catalog) -> Catalog:
    catalog.add("CREATE TABLE events (id INT, k STRING, ts TIMESTAMP(3), now_ AS PROCTIME())")
    return catalog


def _at(minute: int) -> datetime:
    return datetime(2020, 4, 15, 8, minute)


@pytest.mark.parametrize(
    "table",
    [
        "TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' MINUTES)) AS w",
        "TUMBLE(TABLE events, DESCRIPTOR(`ts`), INTERVAL '10' MINUTES, INTERVAL '0' SECOND)",
        "TUMBLE(DATA => TABLE events, SIZE => INTERVAL '10' MINUTES, TIMECOL => DESCRIPTOR(ts))",
        "TUMBLE((SELECT * FROM events WHERE id > -1), DESCRIPTOR(ts), INTERVAL '600' SECOND)",
        "TUMBLE(TABLE (SELECT * FROM events), DESCRIPTOR(ts), INTERVAL '0:10' HOUR TO MINUTE) w",
        "CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' MINUTE, INTERVAL '10' MINUTE)",
    ],
)
def test_ways_to_write_a_window(catalog: Catalog, table: str) -> None:
    text = f"SELECT window_start, window_end, SUM(id) AS s FROM {table} GROUP BY 1, 2"
    rows = _events(catalog).query(f"{text} ORDER BY 1", _BIDS)
    assert rows == [(_at(0), _at(10), 3), (_at(10), _at(20), 12)]


@pytest.mark.parametrize("second", ["1969-12-31 23:59:59", "2026-01-01 00:00:59"])
def test_nanoseconds_are_not_rounded(catalog: Catalog, second: str) -> None:
    data = f"(SELECT CAST('{second}.999999999' AS TIMESTAMP(9)) AS ts)"
    for kind in ("TUMBLE", "SESSION"):
        text = f"SELECT window_start, window_end FROM {kind}({data}, DESCRIPTOR(ts), {MINUTE})"
        ((start, end),) = catalog.query(text)
        last = datetime.fromisoformat(second)
        whole = last.replace(second=0) if kind == "TUMBLE" else last + 999 * _MS
        assert (start, end) == (whole, whole + timedelta(minutes=1))


def test_windows_of_windows(catalog: Catalog) -> None:
    text = (
        "WITH five AS (SELECT window_start AS start5, window_time AS time5, SUM(id) AS s FROM "
        "TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' MINUTE) GROUP BY window_start, "
        "window_end, window_time) SELECT window_start, SUM(s) AS s FROM TUMBLE(TABLE five, "
        "DESCRIPTOR(time5), INTERVAL '10' MINUTE) GROUP BY window_start ORDER BY 1"
    )
    assert _events(catalog).query(text, _BIDS) == [(_at(0), 3), (_at(10), 12)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT TUMBLE_START(ts, INTERVAL '10' MINUTE), TUMBLE_END(ts, INTERVAL '10' MINUTE) "
            "AS e, TUMBLE_ROWTIME(ts, INTERVAL '10' MINUTE) AS r, COUNT(*) AS n FROM events GROUP "
            "BY TUMBLE(ts, INTERVAL '10' MINUTE) ORDER BY 1",
            [(_at(0), _at(10), _at(10) - _MS, 3), (_at(10), _at(20), _at(20) - _MS, 3)],
        ),
        (
            "SELECT HOP_START(e.ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE) AS s, SUM(e.id) AS "
            "n FROM events AS e GROUP BY HOP(e.ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE) "
            "HAVING HOP_END(e.ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE) > TIMESTAMP "
            "'2020-04-15 08:10:00' ORDER BY s",
            [(_at(5), 10), (_at(10), 12), (_at(15), 5)],
        ),
        (
            "SELECT SESSION_START(ts, INTERVAL '3' MINUTE) AS s, SESSION_END(ts, INTERVAL '3' "
            "MINUTE) AS e, COUNT(*) AS n FROM events WHERE k <> 'D' GROUP BY SESSION(ts, INTERVAL "
            "'3' MINUTE) ORDER BY s",
            [(_at(5), _at(10), 2), (_at(11), _at(16), 2), (_at(17), _at(20), 1)],
        ),
    ],
)
def test_group_windows(catalog: Catalog, text: str, expected: list[Any]) -> None:
    assert _events(catalog).query(text, _BIDS) == expected
    if "AS s" not in text:
        assert catalog.bounded(text).output[0] == "EXPR$0"


def test_group_windows_of_joins(catalog: Catalog) -> None:
    text = (
        "SELECT TUMBLE_START(e.ts, INTERVAL '10' MINUTE) AS s, COUNT(*) AS n FROM customers AS c "
        "LEFT JOIN events AS e ON e.id = c.id GROUP BY TUMBLE(e.ts, INTERVAL '10' MINUTE)"
    )
    customers = [{"id": n} for n in (0, 1, 99)]
    assert _events(catalog).query(text, customers, _BIDS) == [(_at(0), 2)]


def test_windows_of_a_join_and_of_hinted_tables(catalog: Catalog) -> None:
    hint = "/*+ OPTIONS('scan.mode' = 'latest') */"
    ten = f"TUMBLE(TABLE events {hint}, DESCRIPTOR(ts), INTERVAL '10' MINUTE)"
    text = (
        f"SELECT a.id, b.id AS other FROM TABLE({ten}) AS a JOIN {ten} AS b ON a.window_start = "
        "b.window_start AND a.window_end = b.window_end AND a.id < b.id ORDER BY 1, 2"
    )
    rows = _events(catalog).query(text, _BIDS, _BIDS)
    assert rows == [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]
    assert catalog.bounded(text).scans[0].options == {"scan.mode": "latest"}


@pytest.mark.parametrize("call", ["HOP({}, INTERVAL '5' MINUTE, {})", "SESSION({}, {})"])
def test_all_columns_of_rows_in_windows_and_of_a_joined_table(catalog: Catalog, call: str) -> None:
    rows = call.format("TABLE events, DESCRIPTOR(ts)", "INTERVAL '5' MINUTE")
    text = f"SELECT * FROM {rows} AS w JOIN events AS e USING (id)"
    plan = _events(catalog).bounded(text)
    own = ["window_start", "window_end", "window_time"]
    assert list(plan.output) == ["id", "k", "ts", "now_", *own, "k0", "ts0", "now_0"]
    assert len(catalog.query(text, _BIDS, _BIDS)) == len(_BIDS)


def test_streams_compute_tumbling_windows(catalog: Catalog) -> None:
    """A stream computes TUMBLE of each row, also by the time at which it reads the row."""
    text = "SELECT id, window_start FROM TUMBLE(TABLE events, DESCRIPTOR({}), INTERVAL '10' MINUTE)"
    rows: list[Row] = [*_BIDS, {"id": 9}]
    expected = [(n, _at(n // 3 * 10)) for n in range(6)]
    assert _events(catalog).rows(text.format("ts"), rows) == expected
    read = [(row["id"], datetime(2024, 5, 6, 7)) for row in rows]
    assert catalog.rows(text.format("now_"), rows) == read


_CALL = "SELECT * FROM {}({}, DESCRIPTOR({}), {})"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_CALL.format("TUMBLE", "TABLE events", "k", MINUTE), "'k' is TEXT; CAST it"),
        (_CALL.format("TUMBLE", "TABLE events", "tz", MINUTE), "there is no column 'tz'"),
        (_CALL.format("TUMBLE", "TABLE events", "ts", "INTERVAL '1' MONTH"), "months differ"),
        (_CALL.format("TUMBLE", "TABLE events", "ts", "INTERVAL '0' DAY"), "greater than 0"),
        (_CALL.format("TUMBLE", "TABLE events", "ts", "60"), "constant INTERVALs"),
        (_CALL.format("TUMBLE", "events", "ts", MINUTE), "write TABLE before"),
        (_CALL.format("TUMBLE", "TABLE events PARTITION BY k", "ts", MINUTE), "no PARTITION BY"),
        (_CALL.format("HOP", "TABLE events", "ts", MINUTE), "HOP needs the argument SIZE"),
        (_CALL.format("SESSION", "TABLE events", "ts", f"{MINUTE}, {MINUTE}"), "each once"),
        (_CALL.format("CUMULATE", "TABLE events", "ts", f"{MINUTE}, INTERVAL '90' SECOND"),
         "must be a multiple of its step"),
        ("SELECT * FROM TUMBLE(DATA => TABLE events, DATA => TABLE events)", "each once"),
        ("SELECT * FROM TUMBLE(TABLE events, ts, INTERVAL '1' DAY)", r"write DESCRIPTOR\(column\)"),
        (_CALL.format("TUMBLE", f"({_CALL.format('TUMBLE', 'TABLE events', 'ts', MINUTE)})", "ts",
                      MINUTE), "two columns window_start"),
        (_CALL.format("TUMBLE", "TABLE events", "now_", MINUTE), "processing time"),
        (f"SELECT TUMBLE_START(ts, {MINUTE}) FROM events", "belongs to GROUP BY TUMBLE"),
        (f"SELECT TUMBLE(ts, {MINUTE}) FROM events", "is a term of GROUP BY"),
        (f"SELECT TUMBLE_END(ts, {MINUTE}) FROM events GROUP BY TUMBLE(ts, INTERVAL '1' DAY)",
         "another window"),
        (f"SELECT TUMBLE_PROCTIME(ts, {MINUTE}) FROM events GROUP BY TUMBLE(ts, {MINUTE})",
         "TUMBLE_PROCTIME of a time column is not supported"),
        (f"SELECT 1 AS x FROM events GROUP BY HOP(ts, {MINUTE})", "its slide and its size"),
        (f"SELECT 1 AS x FROM events GROUP BY 1, SESSION(ts, {MINUTE})", "write them out"),
        ("SELECT 1 AS x FROM events AS e JOIN events AS f ON e.id = f.id GROUP BY SESSION(e.ts, "
         f"{MINUTE})", "as a table function"),
    ],
)  # fmt: skip
def test_errors_say_what_to_change(catalog: Catalog, text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        _events(catalog).bounded(text)
