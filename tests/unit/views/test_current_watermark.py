"""CURRENT_WATERMARK in continuous queries, against a plain model, and in other queries."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.runtime.conftest import failing_at
from tests.unit.runtime.local_pipeline import LocalPipeline

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.audit.audit import audit

EVENTS = (
    "CREATE TABLE IF NOT EXISTS events (id INT, ts {kind}, text STRING, at_ AS "
    "TO_TIMESTAMP(text), WATERMARK FOR {time} AS {time} - INTERVAL '5' SECOND);"
)
IN_TIME = (
    "CREATE TABLE IF NOT EXISTS t (id INT, w TIMESTAMP(3)); INSERT INTO t SELECT id, "
    "CAST(w AS TIMESTAMP(3)) FROM (SELECT id, {time} AS x, CURRENT_WATERMARK({time}) AS w FROM "
    "events) WHERE w IS NULL OR x > w;"
)
START = datetime(2026, 1, 1)


def row(rng: random.Random, number: int, newest: int) -> tuple[int, datetime | None]:
    at = START + timedelta(seconds=newest + rng.choice((-60, -8, -4, 0, 3)))
    return number, None if rng.random() < 0.1 else at


def insert(rows: list[tuple[int, datetime | None]]) -> str:
    values = (
        f"({n}, CAST(NULL AS TIMESTAMP), CAST(NULL AS STRING))"
        if at is None
        else f"({n}, TIMESTAMP '{at}', '{at}')"
        for n, at in rows
    )
    return f"INSERT INTO events VALUES {', '.join(values)}"


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 40))]
)
def test_late_rows_are_left_out(seed: int, tmp_path: Path) -> None:
    rng, shop = random.Random(seed), LocalPipeline(tmp_path)
    time, kind = rng.choice((("ts", "TIMESTAMP(3)"), ("at_", "TIMESTAMP(3)")))
    tables = EVENTS.format(time=time, kind=kind)
    script = tables + IN_TIME.format(time=time)
    newest, number, watermark = 0, 0, None
    expected: Counter[Any] = Counter()
    for step in range(5 if seed < 2 else 9):
        rows = []
        for _ in range(rng.randint(1, 5)):
            newest, number = newest + rng.choice((0, 2, 20)), number + 1
            rows.append(row(rng, number, newest))
        shop.do(f"{tables} {insert(rows)}")
        expected.update(
            (n, watermark)
            for n, at in rows
            if watermark is None or (at is not None and at > watermark)
        )
        times = [at - timedelta(seconds=5) for _, at in rows if at is not None]
        watermark = max((at for at in (watermark, *times) if at is not None), default=None)
        if step and rng.random() < 0.5:
            with failing_at(f"{rng.choice(('batch-written', 'target-committed'))}:0:default.t"):
                shop.run(script)
        shop.run(script)
        assert Counter(shop.selected("SELECT id, w FROM t")) == expected, step


def test_instants_of_a_zone_and_a_table_that_merges(tmp_path: Path) -> None:
    """The hour that the zone has twice is two hours of instants."""
    shop = LocalPipeline(tmp_path)
    tables = EVENTS.format(time="ts", kind="TIMESTAMP_LTZ(3)")
    script = (
        f"SET 'table.local-time-zone' = 'Europe/Berlin'; {tables} CREATE TABLE IF NOT EXISTS t (id "
        "INT PRIMARY KEY NOT ENFORCED, n BIGINT, w TIMESTAMP_LTZ(3)) WITH ('merge-engine' = "
        "'aggregation', 'fields.n.aggregate-function' = 'sum', 'fields.w.aggregate-function' = "
        "'max', 'bucket' = '1'); INSERT INTO t SELECT id, COUNT(*), MAX(CURRENT_WATERMARK(ts)) FROM"
        " events WHERE CURRENT_WATERMARK(ts) IS NULL OR ts > CURRENT_WATERMARK(ts) GROUP BY id;"
    )
    first = datetime(2026, 10, 25, 0, 30)
    for minutes in (0, 60, 30, 61):
        at = first + timedelta(minutes=minutes)
        shop.do(f"{tables} INSERT INTO events VALUES (1, TIMESTAMP '{at}', '')")
        shop.run(script)
    (found,) = shop.rows("t")
    at = first + timedelta(minutes=60, seconds=-5)
    assert (found["n"], found["w"].replace(tzinfo=None)) == (3, at)
    assert audit(shop.options, "default.t").equal


def test_a_bounded_query_has_no_watermark(tmp_path: Path) -> None:
    shop, tables = LocalPipeline(tmp_path), EVENTS.format(time="ts", kind="TIMESTAMP(3)")
    shop.do(f"{tables} INSERT INTO events VALUES (1, TIMESTAMP '{START}', '')")
    assert shop.selected("SELECT id, CURRENT_WATERMARK(ts) FROM events") == [(1, None)]


OTHER = r"write CURRENT_WATERMARK\(`ts"
NOT_IN_VIEWS = "compares each row with those that came before it"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO t SELECT CURRENT_WATERMARK(at_) FROM events", OTHER),
        ("INSERT INTO t SELECT CURRENT_WATERMARK(ts) FROM plain", "of plain, which has none"),
        ("INSERT INTO t SELECT CURRENT_WATERMARK(id) FROM events", OTHER),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT id FROM events WHERE ts > CURRENT_WATERMARK(ts)",
            NOT_IN_VIEWS,
        ),
        (
            "INSERT INTO t SELECT MAX(ts) FROM (SELECT AVG(id), MAX(CURRENT_WATERMARK(ts)) AS ts "
            "FROM events GROUP BY id)",
            NOT_IN_VIEWS,
        ),
    ],
)
def test_other_watermarks_are_refused(statement: str, message: str, tmp_path: Path) -> None:
    tables = EVENTS.format(time="ts", kind="TIMESTAMP(3)")
    with pytest.raises(StreamhouseError, match=message):
        LocalPipeline(tmp_path).run(
            f"{tables} CREATE TABLE plain (ts TIMESTAMP(3)); CREATE TABLE t (ts TIMESTAMP(3)); "
            f"{statement};"
        )
