"""OVER against a plain model: frames, directions, ties, nulls, and several windows in one query."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

Row = dict[str, Any]
_START = datetime(2026, 1, 1)
_PEERS = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def _rows(rng: random.Random) -> list[Row]:
    def value(*values: Any) -> Any:
        return rng.choice((None, *values))

    return [
        {
            "id": number,
            "k": value("a", "b"),
            "n": value(*range(-2, 4)),
            "ts": value(*(_START + timedelta(seconds=s) for s in range(5))),
        }
        for number in rng.sample(range(20), rng.randint(0, 10))
    ]


class _Over:
    """A window of random rows: its SQL, and the partition and the frame of each row."""

    def __init__(self, rng: random.Random) -> None:
        self.by = rng.choice(((), ("k",), ("k", "n")))
        self.spans = rng.random() < 0.4
        self.terms = [
            (rng.choice(("ts", "n")), rng.random() < 0.4, rng.choice((None, True, False)))
        ]
        unit = "SECOND" if self.terms[0][0] == "ts" else ""
        if self.spans:
            self.frame = sorted(rng.choice((None, -2, -1, 0, 1, 2)) or 0 for _ in range(2))
        else:
            self.terms.append(("id", rng.random() < 0.3, None))
            self.frame = sorted(rng.randint(-2, 2) for _ in range(2))
        self.open = (rng.random() < 0.3, rng.random() < 0.3)
        ends = [
            _bound(at, unit if self.spans else "", is_open, self.spans, word)
            for at, is_open, word in zip(
                self.frame, self.open, ("PRECEDING", "FOLLOWING"), strict=True
            )
        ]
        self.text = f"{'RANGE' if self.spans else 'ROWS'} BETWEEN {ends[0]} AND {ends[1]}"
        order = ", ".join(
            f"{name}{' DESC' if down else ''}"
            f"{'' if nulls is None else ' NULLS FIRST' if nulls else ' NULLS LAST'}"
            for name, down, nulls in self.terms
        )
        by = f"PARTITION BY {', '.join(self.by)} " if self.by else ""
        self.order = f"{by}ORDER BY {order}"

    def sorted(self, rows: list[Row], row: Row) -> list[Row]:
        """The rows of the partition of a row, in order."""
        found = [each for each in rows if all(each[name] == row[name] for name in self.by)]
        found.sort(key=lambda each: each["id"])
        for name, down, nulls in reversed(self.terms):
            first = not down if nulls is None else nulls
            known = [each for each in found if each[name] is not None]
            known.sort(key=lambda each, name=name: each[name], reverse=down)  # type: ignore[misc]
            unknown = [each for each in found if each[name] is None]
            found = unknown + known if first else known + unknown
        return found

    def peers(self, rows: list[Row], row: Row) -> list[Row]:
        return [each for each in rows if all(each[t[0]] == row[t[0]] for t in self.terms)]

    def framed(self, rows: list[Row], row: Row) -> list[Row]:
        """The rows of the frame of a row, in order."""
        place = rows.index(row)
        if not self.spans:
            first = 0 if self.open[0] else max(0, place + self.frame[0])
            last = len(rows) if self.open[1] else max(0, place + self.frame[1] + 1)
            return rows[first:last]
        name, down, _ = self.terms[0]
        same = self.peers(rows, row)
        first, last = rows.index(same[0]), rows.index(same[-1])

        def within(each: Row) -> bool:
            at = rows.index(each)
            before, after = at < first, at > last
            if self.open[0] and self.open[1]:
                return True
            if row[name] is None or each[name] is None:
                # Nulls are peers of each other, and at no distance from other values.
                return (each[name] is None and row[name] is None) or (
                    (before and self.open[0]) or (after and self.open[1])
                )
            apart = each[name] - row[name]
            apart = apart.total_seconds() if isinstance(apart, timedelta) else apart
            apart = -apart if down else apart
            return (self.open[0] or apart >= self.frame[0]) and (
                self.open[1] or apart <= self.frame[1]
            )

        return [each for each in rows if within(each)]


def _bound(at: int, unit: str, is_open: bool, spans: bool, word: str) -> str:
    if is_open:
        return f"UNBOUNDED {word}"
    if at == 0:
        return "CURRENT ROW"
    side = "PRECEDING" if at < 0 else "FOLLOWING"
    return f"INTERVAL '{abs(at)}' {unit} {side}" if spans and unit else f"{abs(at)} {side}"


def _known(rows: list[Row], name: str = "n") -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


_FRAMED: dict[str, Callable[[list[Row]], Any]] = {
    "COUNT(*)": len,
    "COUNT(n)": lambda rows: len(_known(rows)),
    "SUM(n)": lambda rows: sum(_known(rows)) if _known(rows) else None,
    "MIN(n)": lambda rows: min(_known(rows), default=None),
    "MAX(ts)": lambda rows: max(_known(rows, "ts"), default=None),
    "AVG(n)": lambda rows: int(sum(_known(rows)) / len(_known(rows))) if _known(rows) else None,
    "COUNT(DISTINCT n)": lambda rows: len(set(_known(rows))),
}
_PLACED: dict[str, Callable[[list[Row]], Any]] = {
    "FIRST_VALUE(n)": lambda rows: next(iter(_known(rows)), None),
    "LAST_VALUE(n)": lambda rows: next(iter(reversed(_known(rows))), None),
    "FIRST_VALUE(id)": lambda rows: rows[0]["id"] if rows else None,
    "FIRST_VALUE(n) RESPECT NULLS": lambda rows: rows[0]["n"] if rows else None,
    "LAST_VALUE(n) RESPECT NULLS": lambda rows: rows[-1]["n"] if rows else None,
    "NTH_VALUE(n, 2)": lambda rows: rows[1]["n"] if len(rows) > 1 else None,
    "LAST_VALUE(id)": lambda rows: rows[-1]["id"] if rows else None,
}
"""Functions that take a row of the frame; of ROWS frames only, whose order is total here."""


def _ranked(over: _Over, rows: list[Row], row: Row) -> dict[str, Any]:
    """Functions without a frame."""
    place, same = rows.index(row), over.peers(rows, row)
    first, last, count = rows.index(same[0]), rows.index(same[-1]), len(rows)
    keys = [tuple(each[name] for name, _, _ in over.terms) for each in rows[: place + 1]]

    def at(number: int, name: str, other: Any = None) -> Any:
        return rows[number][name] if 0 <= number < count else other

    values: dict[str, Any] = {
        "RANK()": first + 1,
        "DENSE_RANK()": len(set(keys)),
        "PERCENT_RANK()": first / (count - 1) if count > 1 else 0.0,
        "CUME_DIST()": (last + 1) / count,
    }
    if not over.spans:
        small, big = divmod(count, 3)
        tiles = [n for n in range(3) for _ in range(small + (n < big))]
        values |= {
            "ROW_NUMBER()": place + 1,
            "NTILE(3)": tiles[place] + 1,
            "NTH_VALUE(n, 2)": rows[1]["n"] if place else None,
            "LAG(n)": at(place - 1, "n"),
            "LAG(n, 2, 7)": at(place - 2, "n", 7),
            "LEAD(id)": at(place + 1, "id"),
            "LEAD(id, 2, -1)": at(place + 2, "id", -1),
        }
    return values


@pytest.mark.parametrize(
    "seed", [*range(40), *(pytest.param(n, marks=pytest.mark.soak) for n in range(40, 1000))]
)
def test_over_has_the_values_of_a_plain_model(catalog: Catalog, seed: int) -> None:
    rng = random.Random(seed)
    rows = _rows(rng)
    catalog.add("CREATE TABLE t (id INT, k STRING, n INT, ts TIMESTAMP(3))")
    overs = [_Over(rng) for _ in range(2)]
    calls, models = [], list[Callable[[Row], Any]]()
    for over in overs:
        framed = {**_FRAMED, **({} if over.spans else _PLACED)}
        for call in rng.sample(sorted(framed), 3):
            calls.append(f"{call} OVER ({over.order} {over.text})")
            models.append(
                lambda row, over=over, value=framed[call]: value(  # type: ignore[misc]
                    over.framed(over.sorted(rows, row), row)
                )
            )
        names = (
            sorted(_ranked(over, [*over.sorted(rows, rows[0])], rows[0])) if rows else ["RANK()"]
        )
        for call in rng.sample(names, min(2, len(names))):
            calls.append(f"{call} OVER ({over.order})")
            models.append(
                lambda row, over=over, call=call: _ranked(  # type: ignore[misc]
                    over, over.sorted(rows, row), row
                )[call]
            )
    listed = ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))
    text = f"SELECT id, {listed} FROM t"
    found = {row[0]: row[1:] for row in catalog.query(text, rows)}
    for row in rows:
        expected = tuple(model(row) for model in models)
        assert found[row["id"]] == expected, (text, row)
