"""Nexmark's queries without windows as views, over one table of events that change."""

from __future__ import annotations

import datetime
import random
import re
from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewSession

_QUERIES = re.findall(
    r"-- name: (\w+)\n(.*?);\n", (Path(__file__).parent / "nexmark.sql").read_text(), re.DOTALL
)
_PERSON = "ROW<id INT, name STRING, city STRING, state STRING, extra STRING>"
_AUCTION = (
    "ROW<id INT, itemName STRING, reserve BIGINT, expires TIMESTAMP(3), seller INT, category INT, "
    "extra STRING>"
)
_BID = "ROW<auction INT, bidder INT, price BIGINT, channel STRING, url STRING, extra STRING>"
_EVENTS = f"""CREATE TABLE events (
  number INT PRIMARY KEY NOT ENFORCED, event_type INT, person {_PERSON}, auction {_AUCTION},
  bid {_BID}, `dateTime` TIMESTAMP(3)) WITH ('bucket' = '1')"""
_VIEWS = (
    "CREATE VIEW person AS SELECT person.id, person.name, person.city, person.state, `dateTime`, "
    "person.extra FROM events WHERE event_type = 0",
    "CREATE VIEW auction AS SELECT auction.id, auction.itemName, auction.reserve, `dateTime`, "
    "auction.expires, auction.seller, auction.category, auction.extra FROM events "
    "WHERE event_type = 1",
    "CREATE VIEW bid AS SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, "
    "`dateTime`, bid.extra FROM events WHERE event_type = 2",
)
_DELETE = "DELETE FROM events WHERE MOD(number, 7) = 3"


def _event(rng: random.Random, number: int) -> str:
    """An event; the numbers of persons and auctions repeat, prices and times do not."""
    at = datetime.datetime(2026, 1, 1) + datetime.timedelta(minutes=number * 37)
    kind = rng.choice((0, 1, 1, 2, 2, 2, 2))
    parts = [f"CAST(NULL AS {row})" for row in (_PERSON, _AUCTION, _BID)]
    extra = f"'{rng.choice(('', 'c', 'abcc'))}'"
    if kind == 0:
        state = rng.choice(("OR", "CA", "NY"))
        values = f"{rng.randint(0, 5)}, 'n{number}', 'c{rng.randint(0, 2)}', '{state}', {extra}"
    elif kind == 1:
        expires = at + datetime.timedelta(hours=rng.randint(1, 40))
        values = (
            f"{rng.randint(0, 6)}, 'i{number}', CAST({rng.randint(1, 9)} AS BIGINT), "
            f"TIMESTAMP '{expires}', {rng.randint(0, 5)}, {rng.choice((10, 11))}, {extra}"
        )
    else:
        channel = rng.choice(("Google", "apple", "x"))
        url = f"https://a.b/{rng.choice('pq')}/item?x=1&channel_id={number}"
        price = f"CAST({rng.randint(1, 200) * 1000 + number} AS BIGINT)"
        values = f"{rng.randint(0, 6)}, {rng.randint(0, 5)}, {price}, '{channel}', '{url}', {extra}"
    parts[kind] = f"CAST(ROW({values}) AS {(_PERSON, _AUCTION, _BID)[kind]})"
    return f"({number}, {kind}, {', '.join(parts)}, TIMESTAMP '{at}')"


def _change(rng: random.Random, first: bool) -> str:
    numbers = list(range(60)) if first else rng.sample(range(80), 8)
    events = [_event(rng, number) for number in numbers]
    # The time of a statement grows with the square of its casts to rows.
    some = [", ".join(events[start : start + 4]) for start in range(0, len(events), 4)]
    statements = [f"INSERT INTO events VALUES {rows}" for rows in some]
    return "; ".join([*statements, *([] if first else [_DELETE])])


@pytest.mark.parametrize(
    ("queries", "seed"),
    [
        ([query for query in _QUERIES if query[0] in ("q4", "q9")], 0),
        *(pytest.param(_QUERIES, seed, marks=pytest.mark.soak) for seed in range(1, 6)),
    ],
)
def test_the_queries_as_views(queries: list[tuple[str, str]], seed: int, tmp_path: Path) -> None:
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    session.execute(_EVENTS)
    for view in _VIEWS:
        session.run(view)
    for name, query in queries:
        session.view(name, query)
    for number in range(3):
        session.execute(_change(rng, first=not number))
        for name, query in queries:
            session.refresh(name)
            session.check(name, query)
            assert number or session.rows(f"SELECT * FROM {name}"), f"{name} has no rows"
            assert session.refresh(name) == 0, f"nothing has changed, but a refresh writes: {name}"
