"""OVER with ROWS and RANGE frames has the rows of a plain model."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

_START = datetime(2026, 1, 1)
Row = dict[str, Any]


def _rank(row: Row, downwards: bool) -> tuple[Any, ...]:
    """The place of a row by time, with nulls as the least, and by its number."""
    at = -1 if row["ts"] is None else (row["ts"] - _START).seconds
    return (-at if downwards else at, row["id"])


def _numbers(rows: list[Row], downwards: bool) -> dict[str, list[Any]]:
    """Functions of the place; `rows` are those of one partition in order."""
    times = [_rank(row, downwards)[0] for row in rows]
    count, ids = len(rows), [row["id"] for row in rows]
    least = [times.index(each) for each in times]
    greatest = [count - times[::-1].index(each) for each in times]
    tiles = [size for n in range(3) for size in [n + 1] * (count // 3 + (n < count % 3))]
    return {
        "ROW_NUMBER() OVER (ORDERED, id)": list(range(1, count + 1)),
        "RANK() OVER (ORDERED)": [place + 1 for place in least],
        "DENSE_RANK() OVER (ORDERED)": [len({*times[:place]}) + 1 for place in least],
        "NTILE(3) OVER (ORDERED, id)": tiles,
        "PERCENT_RANK() OVER (ORDERED)": [float(Fraction(n, max(1, count - 1))) for n in least],
        "CUME_DIST() OVER (ORDERED)": [float(Fraction(n, count)) for n in greatest],
        "LAG(id) OVER (ORDERED, id)": [None, *ids][:count],
        "LEAD(id, 2, -5) OVER (ORDERED, id)": [*ids[2:], -5, -5][:count],
    }


def _frames(rows: list[Row], downwards: bool) -> dict[str, list[Any]]:
    """Functions of frames of rows and of times."""

    def by_rows(before: int, after: int) -> list[list[Row]]:
        return [rows[max(0, n - before) : n + after + 1] for n in range(len(rows))]

    def by_times(before: int, after: int) -> list[list[Row]]:
        return [[each for each in rows if near(row, each, before, after)] for row in rows]

    def near(row: Row, other: Row, before: int, after: int) -> bool:
        if row["ts"] is None or other["ts"] is None:
            return row["ts"] is other["ts"]
        distance = (other["ts"] - row["ts"]).total_seconds() * (-1 if downwards else 1)
        return bool(-before <= distance <= after)

    def add(frame: list[Row]) -> int | None:
        values = [row["v"] for row in frame if row["v"] is not None]
        return sum(values) if values else None

    def last(frame: list[Row]) -> int | None:
        """The last value; Flink's LAST_VALUE passes over nulls."""
        return next((row["v"] for row in reversed(frame) if row["v"] is not None), None)

    row_frame = "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING"
    time_frame = "RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND INTERVAL '1' SECOND FOLLOWING"
    return {
        f"SUM(v) OVER (ORDERED, id {row_frame})": [add(f) for f in by_rows(2, 1)],
        f"LAST_VALUE(v) OVER (ORDERED, id {row_frame})": [last(f) for f in by_rows(2, 1)],
        "FIRST_VALUE(id) OVER (ORDERED, id)": [rows[0]["id"] for _ in rows],
        f"SUM(v) OVER (ORDERED {time_frame})": [add(f) for f in by_times(2, 1)],
        f"COUNT(v) OVER (ORDERED {time_frame})": [
            sum(row["v"] is not None for row in f) for f in by_times(2, 1)
        ],
    }


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.soak) for n in range(4, 300))]
)
def test_over_has_the_values_of_a_plain_model(catalog: Catalog, seed: int) -> None:
    rng = random.Random(seed)
    catalog.add("CREATE TABLE events (id INT, k STRING, v INT, ts TIMESTAMP(3))")
    rows: list[Row] = [
        {"id": n, "k": rng.choice(("a", "b", None)), "v": rng.choice((None, 1, 2, 3)),
         "ts": rng.choice((None, *(_START + timedelta(seconds=s) for s in range(6))))}
        for n in range(rng.randint(1, 14))
    ]  # fmt: skip
    rng.shuffle(rows)
    downwards = rng.random() < 0.5
    ordered = f"PARTITION BY k ORDER BY ts {'DESC' if downwards else ''}"
    expected: dict[str, dict[int, Any]] = {}
    models: tuple[Callable[[list[Row], bool], dict[str, list[Any]]], ...] = (_numbers, _frames)
    for key in {row["k"] for row in rows}:
        part = sorted((r for r in rows if r["k"] == key), key=lambda r: _rank(r, downwards))
        for call, values in (pair for model in models for pair in model(part, downwards).items()):
            found = zip((row["id"] for row in part), values, strict=True)
            expected.setdefault(call, {}).update(found)
    listed = ", ".join(
        f"{call.replace('ORDERED', ordered)} AS c{n}" for n, call in enumerate(expected)
    )
    for number, *values in catalog.query(f"SELECT id, {listed} FROM events", rows):
        for call, value in zip(expected, values, strict=True):
            assert value == pytest.approx(expected[call][number]), (call, ordered, rows)
