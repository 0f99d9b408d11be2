"""`table.local-time-zone`: local times and instants, against Python's `zoneinfo`."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from tests.zones import DAYS, ZONES, instant, local, times_of

from streamhouse.errors import OptionError, SqlError
from streamhouse.sql.options.known_options import check_set

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

NOW = datetime(2024, 5, 6, 7, 8, 9, 123000, UTC)
_MS = timedelta(milliseconds=1)
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 10))]


def _text(at: datetime, digits: int = 3) -> str:
    return at.isoformat(" ", "milliseconds")[: 20 + digits if digits else 19]


def _floor(at: datetime, unit: str) -> datetime:
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return {
        "HOUR": at.replace(minute=0, second=0, microsecond=0),
        "DAY": day,
        "MONTH": day.replace(day=1),
        "YEAR": day.replace(month=1, day=1),
    }[unit]


@pytest.fixture(params=ZONES)
def zoned(request: pytest.FixtureRequest, catalog: Catalog) -> Catalog:
    """The tables `i` of instants and `l` of local times, in a zone."""
    catalog.add("CREATE TABLE i (ts TIMESTAMP_LTZ(3))")
    catalog.add("CREATE TABLE l (ts TIMESTAMP(3))")
    catalog.add("CREATE TABLE into_i (ts TIMESTAMP_LTZ(3))")
    catalog.add("CREATE TABLE into_l (ts TIMESTAMP(3))")
    catalog.session_zone = request.param
    return catalog


def _both(catalog: Catalog, text: str, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What both planners give."""
    once = catalog.query(text, rows)
    assert catalog.rows(text, rows) == once
    return once


@pytest.mark.parametrize("seed", SEEDS)
def test_instants_are_local_times_of_the_zone(zoned: Catalog, seed: int) -> None:
    zone = zoned.zone
    times = times_of(random.Random(seed), zone)
    rows = [{"ts": at} for at in times]
    walls = [local(at, zone) for at in times]

    def check(expression: str, expected: list[Any]) -> None:
        assert _both(zoned, f"SELECT {expression} FROM i", rows) == [(each,) for each in expected]

    check("CAST(ts AS STRING)", list(map(_text, walls)))
    check("'at ' || CAST(ts AS STRING)", [f"at {_text(wall)}" for wall in walls])
    check("CAST(ts AS TIMESTAMP(3))", walls)
    check("CAST(ts AS TIMESTAMP(0))", [wall.replace(microsecond=0) for wall in walls])
    check("CAST(ts AS DATE)", [wall.date() for wall in walls])
    check("CAST(ts AS TIME)", [wall.time().replace(microsecond=0) for wall in walls])
    check("DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm')", [f"{wall:%Y-%m-%d %H:%M}" for wall in walls])
    check("DATE_FORMAT(ts, 'HH.mm.ss.SSSSS')", [f"{wall:%H.%M.%S.%f}"[:14] for wall in walls])
    check("HOUR(ts)", [wall.hour for wall in walls])
    check("EXTRACT(DAY FROM ts)", [wall.day for wall in walls])
    check("DAYOFWEEK(ts)", [wall.isoweekday() % 7 + 1 for wall in walls])
    check("CAST(CAST(ts AS TIMESTAMP(3)) AS TIMESTAMP_LTZ(3))", [instant(w, zone) for w in walls])
    check("ts + INTERVAL '1' DAY", [at + timedelta(days=1) for at in times])
    check("TIMESTAMPADD(HOUR, 5, ts)", [at + timedelta(hours=5) for at in times])
    check("TIMESTAMPDIFF(HOUR, ts, ts + INTERVAL '30' HOUR)", [30] * len(times))
    check("CAST(ts AS DATE) = CAST(CAST(ts AS STRING) AS DATE)", [True] * len(times))
    check("FROM_UNIXTIME(TIMESTAMPDIFF(SECOND, TO_TIMESTAMP_LTZ(0, 3), ts))",
          [_text(wall, 0) for wall in walls])  # fmt: skip
    for unit in ("HOUR", "DAY", "MONTH", "YEAR"):
        moved = [at - (wall - _floor(wall, unit)) for at, wall in zip(times, walls, strict=True)]
        days = [instant(_floor(wall, unit), zone) for wall in walls]
        check(f"FLOOR(ts TO {unit})", moved if unit == "HOUR" else days)


@pytest.mark.parametrize("seed", SEEDS)
def test_local_times_are_instants_of_the_zone(zoned: Catalog, seed: int) -> None:
    zone, rng = zoned.zone, random.Random(seed)
    walls = [
        datetime.combine(day, datetime.min.time()) + timedelta(minutes=10 * n)
        for day in DAYS
        for n in rng.sample(range(144), 40)
    ]
    rows = [{"ts": wall} for wall in walls]
    expected = [instant(wall, zone) for wall in walls]
    for expression in (
        "CAST(ts AS TIMESTAMP_LTZ(3))",
        "TRY_CAST(ts AS TIMESTAMP_LTZ(3))",
        "CAST(CAST(ts AS STRING) AS TIMESTAMP_LTZ(3))",
        "TO_TIMESTAMP_LTZ(UNIX_TIMESTAMP(CAST(ts AS STRING)), 0)",
    ):
        found = _both(zoned, f"SELECT {expression} FROM l", rows)
        assert [at for (at,) in found] == expected, expression
    assert _both(zoned, "INSERT INTO into_i SELECT ts FROM l", rows) == [(e,) for e in expected]
    found = _both(zoned, "SELECT CAST(CAST(ts AS DATE) AS TIMESTAMP_LTZ(3)) FROM l", rows)
    assert [at for (at,) in found] == [instant(_floor(wall, "DAY"), zone) for wall in walls]


def test_columns_of_a_target_take_the_other_type(zoned: Catalog) -> None:
    times = times_of(random.Random(5), zoned.zone)
    rows = [{"ts": at} for at in times]
    text = "INSERT INTO into_l SELECT ts FROM i"
    assert _both(zoned, text, rows) == [(local(at, zoned.zone),) for at in times]


def test_instants_and_local_times_are_compared(zoned: Catalog) -> None:
    times = times_of(random.Random(6), zoned.zone)
    rows = [{"ts": at} for at in times]
    wall = local(times[0], zoned.zone)
    border = instant(wall, zoned.zone)
    for literal in (f"TIMESTAMP '{_text(wall)}'", f"'{_text(wall)}'"):
        found = _both(zoned, f"SELECT ts FROM i WHERE ts <= {literal}", rows)
        assert [at for (at,) in found] == [at for at in times if at <= border]
        found = _both(zoned, f"SELECT ts BETWEEN {literal} AND {literal} FROM i", rows)
        assert [is_equal for (is_equal,) in found] == [at == border for at in times]
        found = _both(zoned, f"SELECT COALESCE(NULLIF(ts, ts), {literal}) FROM i", rows)
        assert {at for (at,) in found} == {border}


def test_local_times_among_instants_are_instants(zoned: Catalog) -> None:
    wall = datetime(2024, 7, 1, 1)
    at, literal = instant(wall, zoned.zone), f"TIMESTAMP '{wall}'"
    for values in (
        f"SELECT x FROM (VALUES ({literal}), (CAST({literal} AS TIMESTAMP_LTZ(3)))) AS v (x)",
        f"SELECT CASE WHEN x = 1 THEN {literal} ELSE CAST({literal} AS TIMESTAMP_LTZ(3)) END "
        "FROM (VALUES (1), (2)) AS v (x)",
        f"SELECT a[x] FROM (SELECT ARRAY[{literal}, CAST({literal} AS TIMESTAMP_LTZ(3))] AS a), "
        "(VALUES (1), (2)) AS v (x)",
    ):
        assert zoned.query(values) == [(at,), (at,)], values


def test_current_times_are_those_of_the_zone(zoned: Catalog) -> None:
    wall = local(NOW, zoned.zone)
    values = {
        "CURRENT_TIMESTAMP": NOW, "NOW()": NOW, "LOCALTIMESTAMP": wall,
        "CURRENT_DATE": wall.date(), "LOCALTIME": wall.time().replace(microsecond=0),
        "UNIX_TIMESTAMP()": int(NOW.timestamp()), "CAST(CURRENT_TIMESTAMP AS STRING)": _text(wall),
    }  # fmt: skip
    (found,) = _both(zoned, f"SELECT {', '.join(values)} FROM l", [{"ts": None}])
    assert found == tuple(values.values())
    kinds = zoned.types("SELECT CURRENT_TIMESTAMP, TO_TIMESTAMP_LTZ(0, 3), LOCALTIMESTAMP")
    assert kinds == ["TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ(6)", "TIMESTAMP(3)"]


def test_sets_of_local_times_and_instants_are_refused(zoned: Catalog) -> None:
    with pytest.raises(SqlError, match="CAST"):
        zoned.bounded("SELECT ts FROM i UNION ALL SELECT ts FROM l")


@pytest.mark.parametrize("kind", ["TUMBLE", "HOP", "CUMULATE", "SESSION"])
@pytest.mark.parametrize("size", [30, 60, 180, 1440])
def test_windows_are_those_of_local_times(zoned: Catalog, kind: str, size: int) -> None:
    """The windows of instants are those of their local times."""
    zone = zoned.zone
    times = times_of(random.Random(size), zone)
    walls = [local(at, zone) for at in times]
    listed = {"HOP": f"INTERVAL '{size // 3}' MINUTE, ", "CUMULATE": "INTERVAL '15' MINUTE, "}
    durations = f"{listed.get(kind, '')}INTERVAL '{size}' MINUTE"
    for by in ("window_start, window_end", "window_start, window_end, window_time"):
        text = f"SELECT {by}, COUNT(*), MIN(ts) FROM {kind}(TABLE {{}}, DESCRIPTOR(ts), "
        text += f"{durations}) GROUP BY {by}"
        found = zoned.query(text.format("i"), [{"ts": at} for at in times])
        same = zoned.query(text.format("l"), [{"ts": wall} for wall in walls])
        assert sorted(row[:2] + row[-2:-1] for row in found) == sorted(
            row[:2] + row[-2:-1] for row in same
        )
        if "time" in by:
            assert all(row[2] == instant(row[1] - _MS, zone) for row in found)


@pytest.mark.parametrize(
    "name", ["America/New_York", "GMT+08:00", "GMT-03:30", "UTC", "Etc/GMT+5", "GMT", "Z"]
)
def test_names_and_offsets_are_zones(name: str) -> None:
    assert check_set("table.local-time-zone", name) is None


@pytest.mark.parametrize(
    "name", ["PST", "Mars/Olympus", "+25:00", "america/new_york", "GMT+8", "GMT-3:30", ""]
)
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match="is not a time zone"):
        check_set("table.local-time-zone", name)


def test_the_plan_of_utc_has_no_zone(catalog: Catalog) -> None:
    plain = catalog.bounded("SELECT FROM_UNIXTIME(1), TO_TIMESTAMP_LTZ(1, 3), CURRENT_DATE").sql
    assert "TIMEZONE" not in plain
    assert date(1970, 1, 1) < catalog.query("SELECT CURRENT_DATE")[0][0]
    assert ZoneInfo("UTC").key == "UTC"
