"""MATCH_RECOGNIZE in bounded queries and views, against a plain matcher and Flink's examples."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.views.view_session import ViewSession, bag

from streamhouse.errors import SqlError, StreamhouseError

Row = tuple[int, str | None, int | None, datetime]
"""The id, the symbol, the price and the time of a row."""
Path_ = list[tuple[str, Row]]
"""The rows of a match so far, each with its variable."""
Condition = Callable[[list[Row], int, Path_], bool | None]
"""Whether a row of a partition may be of the last variable of a path that it ends."""
REACHED = [0]
"""The greatest place of a row that the plain matcher has asked for; that of no row at the end."""
Part = Any
"""A variable, ("all", parts), ("any", parts) or ("repeat", part, least, most, greedy)."""
START = datetime(2026, 1, 1)
TICKS = (
    "CREATE TABLE ticks (id INT PRIMARY KEY NOT ENFORCED, symbol STRING, price INT, "
    "at_ TIMESTAMP(3)) WITH ('bucket' = '1')"
)


def price(path: Path_, variable: str, place: int = 0) -> int | None:
    """The price of a row of a variable, counted from the last one."""
    found = [row[2] for name, row in path if name == variable]
    return found[-1 - place] if len(found) > place else None


def less(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


def total(path: Path_, variable: str) -> int:
    return sum(row[2] or 0 for name, row in path if name == variable)


@dataclass(frozen=True)
class Case:
    """A pattern as text and as parts, DEFINE as text and as functions, and SKIP."""

    pattern: str
    part: Part
    define: str
    conditions: dict[str, Condition]
    skip: str = "PAST LAST ROW"
    within: timedelta | None = None


def plus(part: Part, greedy: bool = True, least: int = 1, most: int | None = None) -> Part:
    return ("repeat", part, least, most, greedy)


def down(rows: list[Row], at: int, path: Path_) -> bool:
    return less(price(path, "B"), price(path[:-1], "B") if price(path, "B", 1) is not None
                else price(path, "A"))  # fmt: skip


def previous(rows: list[Row], at: int, places: int = 1) -> int | None:
    return rows[at - places][2] if 0 <= at - places < len(rows) else None


CASES = [
    Case("A B+ C", ("all", ["A", plus("B"), "C"]), "B AS B.price < 5, C AS C.price >= 5",
         {"B": lambda rows, at, path: less(rows[at][2], 5),
          "C": lambda rows, at, path: less(4, rows[at][2])}),
    Case("A B+? C?", ("all", ["A", plus("B", False), plus("C", least=0, most=1)]),
         "B AS B.price > 2, C AS price > PREV(C.price)",
         {"B": lambda rows, at, path: less(2, rows[at][2]),
          "C": lambda rows, at, path: less(previous(rows, at), rows[at][2])}, "TO NEXT ROW"),
    Case("A B* C", ("all", ["A", plus("B", least=0), "C"]),
         "B AS B.price < LAST(B.price, 1) OR (LAST(B.price, 1) IS NULL AND B.price < A.price), "
         "C AS C.price > LAST(A.price)",
         {"B": lambda rows, at, path: less(rows[at][2], price(path, "B", 1)) or (
             price(path, "B", 1) is None and less(rows[at][2], price(path, "A"))),
          "C": lambda rows, at, path: less(price(path, "A"), rows[at][2])}, "TO LAST C"),
    Case("A+ B", ("all", [plus("A"), "B"]), "A AS SUM(A.price) < 12",
         {"A": lambda rows, at, path: total(path, "A") < 12 and any(
             row[2] is not None for name, row in path if name == "A")}),
    Case("(A | B){2,3} C", ("all", [plus(("any", ["A", "B"]), least=2, most=3), "C"]),
         "A AS A.price < 4, B AS B.price > 3 AND COUNT(A.price) > 0",
         {"A": lambda rows, at, path: less(rows[at][2], 4),
          "B": lambda rows, at, path: less(3, rows[at][2]) and any(
              name == "A" and row[2] is not None for name, row in path)}, "TO FIRST C"),
    Case("A (B C)*? D", ("all", ["A", plus(("all", ["B", "C"]), False, 0), "D"]),
         "B AS B.price <= NEXT(B.price), D AS D.price > 6",
         {"B": lambda rows, at, path: previous(rows, at, -1) is not None and (
             rows[at][2] is not None and not less(previous(rows, at, -1), rows[at][2])),
          "D": lambda rows, at, path: less(6, rows[at][2])}, within=timedelta(seconds=9)),
]  # fmt: skip


def matched(part: Part, case: Case, rows: list[Row], path: Path_, start: int) -> Iterator[Path_]:
    """The ways in which a part matches the rows after a path, the preferred ones first."""
    if isinstance(part, str):
        at = start + len(path)
        REACHED[0] = max(REACHED[0], at)
        if at == len(rows):
            return
        longer, condition = [*path, (part, rows[at])], case.conditions.get(part)
        short = case.within is None or rows[at][3] - rows[start][3] < case.within
        if short and (condition is None or condition(rows, at, longer)):
            yield longer
        return
    kind, parts, *bounds = part
    if kind == "any":
        for each in parts:
            yield from matched(each, case, rows, path, start)
    elif kind == "all":
        if not parts:
            yield path
            return
        for longer in matched(parts[0], case, rows, path, start):
            yield from matched(("all", parts[1:]), case, rows, longer, start)
    else:
        least, most, greedy = bounds
        if least or not greedy:
            if not least:
                yield path
        if most != 0:
            fewer = ("repeat", parts, max(least - 1, 0), None if most is None else most - 1, greedy)
            for longer in matched(parts, case, rows, path, start):
                if len(longer) > len(path):
                    yield from matched(fewer, case, rows, longer, start)
        if not least and greedy:
            yield path


def matches(case: Case, rows: list[Row]) -> Iterator[Path_]:
    """The matches in a partition."""
    start = 0
    while start < len(rows):
        path = next(matched(case.part, case, rows, [], start), None)
        if path is None:
            start += 1
            continue
        yield path
        words = case.skip.split()
        places = [n for n, (name, _) in enumerate(path) if name == words[-1]]
        if case.skip == "PAST LAST ROW":
            start += len(path)
        else:
            start += 1 if case.skip == "TO NEXT ROW" else places[0 if words[1] == "FIRST" else -1]


def expected(case: Case, table: dict[int, Row], all_rows: bool) -> Counter[Any]:
    found: list[list[Any]] = []
    for symbol in {row[1] for row in table.values()}:
        rows = sorted((r for r in table.values() if r[1] == symbol), key=lambda r: (r[3], r[0]))
        for number, path in enumerate(matches(case, rows), 1):
            shown = [path[: n + 1] for n in range(len(path))] if all_rows else [path]
            for part in shown:
                own = [row[2] for name, row in part if name == "A"]
                known = [value for value in own if value is not None]
                last = [part[-1][1][3], part[-1][1][0]] if all_rows else []
                found.append([
                    symbol, *last[:1], number, own[0] if own else None, own[-1] if own else None,
                    own[-2] if len(own) > 1 else None, sum(known) if known else None, len(part),
                    part[-1][0], path[-1][1][3] if not all_rows else part[-1][1][3], *last[1:],
                ])  # fmt: skip
    return bag(found)


def query(case: Case, all_rows: bool) -> str:
    within = "" if case.within is None else f"WITHIN INTERVAL '{case.within.seconds}' SECOND"
    shown = "symbol, at_, n, f, l, l2, s, c, v, t, id" if all_rows else "*"
    return (
        f"SELECT {shown} FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY at_, id MEASURES "
        "MATCH_NUMBER() AS n, FIRST(A.price) AS f, A.price AS l, LAST(A.price, 1) AS l2, "
        "SUM(A.price) AS s, COUNT(*) AS c, CLASSIFIER() AS v, MATCH_ROWTIME() AS t "
        f"{'ALL ROWS' if all_rows else 'ONE ROW'} PER MATCH AFTER MATCH SKIP {case.skip} "
        f"PATTERN ({case.pattern}) {within} DEFINE {case.define}) AS m"
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 12))]
)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_matches_of_views_are_those_of_a_plain_matcher(
    case: int, seed: int, tmp_path: Path
) -> None:
    rng, session, of = (
        random.Random(seed),
        ViewSession(tmp_path / "lake", "incremental"),
        CASES[case],
    )
    session.execute(TICKS)
    all_rows, table = bool(rng.randint(0, 1)), dict[int, Row]()
    session.view("v", query(of, all_rows))
    for _ in range(5):
        new = [
            (rng.randint(1, 40), rng.choice(("a", "b", None)), rng.choice((*range(9), None)),
             START + timedelta(seconds=rng.randint(0, 20)))
            for _ in range(12)
        ]  # fmt: skip
        table |= {row[0]: row for row in new}
        values = ", ".join(
            f"({n}, {'CAST(NULL AS STRING)' if s is None else repr(s)}, "
            f"{'CAST(NULL AS INT)' if p is None else p}, TIMESTAMP '{at}')"
            for n, s, p, at in {row[0]: row for row in new}.values()
        )
        session.execute(f"INSERT INTO ticks VALUES {values}")
        gone = rng.choice(sorted(table))
        del table[gone]
        session.execute(f"DELETE FROM ticks WHERE id = {gone}")
        session.refresh("v")
        session.check("v", query(of, all_rows))
        model = expected(of, table, all_rows)
        assert session.rows("SELECT * FROM v") == model
    assert model or seed


def test_flinks_examples(tmp_path: Path) -> None:
    """The tables and results of Flink's page about pattern recognition."""
    session = ViewSession(tmp_path / "lake")
    session.execute("CREATE TABLE Ticker (symbol STRING, price INT, tax INT, rowtime TIMESTAMP(3))")
    prices = [(12, 1), (17, 2), (19, 1), (21, 3), (25, 2), (18, 1), (15, 1), (14, 2), (24, 2),
              (25, 2), (19, 1)]  # fmt: skip
    rows = ", ".join(
        f"('ACME', {price}, {tax}, TIMESTAMP '2026-04-01 10:00:{second:02d}')"
        for second, (price, tax) in enumerate(prices)
    )
    session.execute(f"INSERT INTO Ticker VALUES {rows}")

    def seconds(clauses: str) -> list[list[Any]]:
        text = (
            f"SELECT * FROM Ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY rowtime {clauses})"
        )
        found = session.exact_rows(text)
        rows = ([v.second if isinstance(v, datetime) else v for v in row[1:]] for row in found)
        return sorted(rows, key=lambda row: row[0])

    assert seconds(
        "MEASURES START_ROW.rowtime AS start_tstamp, LAST(PRICE_DOWN.rowtime) AS bottom_tstamp, "
        "LAST(PRICE_UP.rowtime) AS end_tstamp ONE ROW PER MATCH AFTER MATCH SKIP TO LAST PRICE_UP "
        "PATTERN (START_ROW PRICE_DOWN+ PRICE_UP) DEFINE PRICE_DOWN AS (LAST(PRICE_DOWN.price, 1) "
        "IS NULL AND PRICE_DOWN.price < START_ROW.price) OR PRICE_DOWN.price < "
        "LAST(PRICE_DOWN.price, 1), PRICE_UP AS PRICE_UP.price > LAST(PRICE_DOWN.price, 1)"
    ) == [[4, 7, 8]]
    averages = (
        "MEASURES FIRST(A.rowtime) AS start_tstamp, LAST(A.rowtime) AS end_tstamp, AVG(A.price) AS "
        "avgPrice AFTER MATCH SKIP {} PATTERN (A+ B) DEFINE A AS AVG(A.price) < 15"
    )
    session.execute("DELETE FROM Ticker WHERE TRUE")
    prices = [(12, 1), (17, 2), (13, 1), (16, 3), (25, 2), (2, 1), (4, 1), (10, 2), (15, 2),
              (25, 2), (25, 1), (30, 1)]  # fmt: skip
    rows = ", ".join(
        f"('ACME', {price}, {tax}, TIMESTAMP '2026-04-01 10:00:{second:02d}')"
        for second, (price, tax) in enumerate(prices)
    )
    session.execute(f"INSERT INTO Ticker VALUES {rows}")
    assert seconds(averages.format("PAST LAST ROW")) == [[0, 3, 14], [5, 10, 13]]
    assert sorted(seconds(averages.format("TO NEXT ROW")))[:2] == [[0, 3, 14], [2, 3, 14]]


def test_subsets_and_running_and_final_measures(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    values = ", ".join(f"({n}, {n * n % 7})" for n in range(8))
    text = (
        "SELECT n, b, u, r, f FROM (SELECT * FROM (VALUES {}) AS v (n, x)) MATCH_RECOGNIZE (ORDER "
        "BY n MEASURES CLASSIFIER() AS b, SUM(U.x) AS u, RUNNING COUNT(x) AS r, FINAL LAST(x) AS f "
        "ALL ROWS PER MATCH PATTERN (A B C) SUBSET U = (A, C) DEFINE B AS x > A.x)"
    )
    assert sorted(session.exact_rows(text.format(values))) == [
        [0, "A", 0, 1, 4], [1, "B", 0, 2, 4], [2, "C", 4, 3, 4],
        [4, "A", 2, 1, 1], [5, "B", 2, 2, 1], [6, "C", 3, 3, 1],
    ]  # fmt: skip


CLAUSES = "ORDER BY at_ MEASURES A.price AS p PATTERN ({}) DEFINE {}"


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        (CLAUSES.format("A*", "A AS TRUE"), "matches no row at all"),
        (CLAUSES.format("A B", "C AS TRUE"), "'C' is no variable of the PATTERN; it has A, B"),
        (CLAUSES.format("A {- B -}", "A AS TRUE"), "the PATTERN has \\{; write"),
        (CLAUSES.format("A", "A AS B.price > 1"), "'B' is no variable"),
        (CLAUSES.format("A", "A AS A.cost > 1"), "there is no column 'cost'; [^$]*$"),
        ("MEASURES A.price AS p PATTERN (A) DEFINE A AS TRUE", "Expecting|expected"),
        (CLAUSES.format("A", "A AS SUM(A.price + LAST(A.price, 1)) > 1"), "LAST cannot be in"),
        (CLAUSES.replace("A.price", "MATCH_PROCTIME()").format("A", "A AS TRUE"), "not supported"),
        ("ORDER BY PROCTIME() MEASURES A.price AS p PATTERN (A) DEFINE A AS TRUE",
         "in the order of processing time"),
        (CLAUSES.format("A B", "B AS B.price + A.price > NULLIF(SUM(A.price + B.price), 1)"),
         "columns of A, B; name one"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(clauses: str, message: str, tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    session.execute(TICKS)
    with pytest.raises(SqlError, match=message):
        session.exact_rows(f"SELECT * FROM ticks MATCH_RECOGNIZE ({clauses})")


def test_a_match_without_the_row_to_skip_to(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "lake")
    session.execute(TICKS)
    session.execute(f"INSERT INTO ticks VALUES (1, 'a', 1, TIMESTAMP '{START}')")
    text = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY at_ MEASURES A.price AS p AFTER MATCH SKIP "
        "TO {} PATTERN (A B?) DEFINE B AS TRUE)"
    )
    for name, message in (("B", "has no row of it"), ("A", "would find it again")):
        with pytest.raises(StreamhouseError, match=message):
            session.exact_rows(text.format(name))
