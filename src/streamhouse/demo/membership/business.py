"""The membership business: generates the changes in its MySQL, the same for the same seed."""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from streamhouse.background import RepeatedStep
from streamhouse.demo.mariadb import MariaDB

DATABASE = "membership"
DESK = 1
"""The agent whose orders are only inserted, by which the demo measures freshness."""
ACTOR = 13
"""The agent whose orders only the demo's scripted changes affect."""
AGENTS, PRODUCTS, CITIES, MEMBERS = 12, 6, 8, 20_000
_COLUMNS = "id, v_date, member_id, agent_id, product_id, city_id, kind, amount, status, event_time"
_COPY = f"INSERT INTO member_event ({_COLUMNS}) SELECT {_COLUMNS} FROM member_order"
_JOURNAL = f"{_COPY} WHERE id"
_HOUR_MS = 3_600_000
_DAYS = 4
_OPEN_DAYS = 1
_DESK_RATE = 10
"""How many orders the desk takes per second, at most half of all changes: otherwise a slow business
would have no other ones."""
# How many of 100 steps are of which kind; the rest are new orders.
_STEPS = (("correct", 24), ("move", 10), ("late", 10), ("cancel", 8), ("together", 2), ("level", 2))


@dataclass(frozen=True)
class MysqlStatement:
    """One statement with its parameters."""

    sql: str
    parameters: tuple[Any, ...]


@dataclass(frozen=True)
class BusinessStep:
    """One transaction: its statements, and how many changes it counts as."""

    kind: str
    statements: tuple[MysqlStatement, ...]
    changes: int


class Steps:
    """An endless sequence of changes, which depends only on the seed.

    `today_ms` (UTC, epoch) is the time at the start; each step is `step_ms` after the one before
    it. A late event has an event time up to an hour earlier. Orders of days before yesterday are
    closed: no later step changes them.
    """

    def __init__(self, seed: int, today_ms: int, step_ms: float) -> None:
        self._random = random.Random(seed)
        self._now_ms = float(today_ms)
        self._step_ms = step_ms
        self._ids = 0
        self.yesterday = time_text(today_ms - _OPEN_DAYS * 24 * _HOUR_MS)[:10]
        self.closed_day = time_text(today_ms - (_OPEN_DAYS + 1) * 24 * _HOUR_MS)[:10]
        self._open: list[int] = []

    def beginning(self, orders: int) -> list[BusinessStep]:
        """Orders of the last four days, which exist before the pipeline starts."""
        whole = _DAYS * 24 * _HOUR_MS
        return [self._order(self._now_ms - whole * (1 - i / orders)) for i in range(orders)]

    def next(self) -> BusinessStep:
        """The next step."""
        self._now_ms += self._step_ms
        at = self._random.randrange(100)
        for kind, share in _STEPS:
            if at < share and self._open:
                step: BusinessStep = getattr(self, f"_{kind}")()
                return step
            at -= share
        late = self._random.random() < 0.2
        return self._order(self._now_ms - (self._lateness() if late else 0.0))

    def desk(self) -> BusinessStep:
        """A new order of the desk."""
        return self._order(self._now_ms, DESK)

    def _order(self, at_ms: float, agent: int | None = None) -> BusinessStep:
        rng = self._random
        self._ids += 1
        if agent is None and time_text(at_ms)[:10] >= self.yesterday:
            self._open.append(self._ids)
        values = (
            self._ids,
            time_text(at_ms)[:10],
            rng.randrange(1, MEMBERS + 1),
            agent or rng.randrange(DESK + 1, AGENTS + 1),
            rng.randrange(1, PRODUCTS + 1),
            rng.randrange(1, CITIES + 1),
            rng.choice(("new", "renew")),
            self._amount(),
            "paid",
            time_text(at_ms),
        )
        marks = ", ".join(["%s"] * len(values))
        insert = MysqlStatement(f"INSERT INTO member_order VALUES ({marks})", values)
        return BusinessStep("order", (insert, journal(self._ids)), 1)

    def _correct(self) -> BusinessStep:
        order = self._any()
        sql = "UPDATE member_order SET amount = %s, status = 'corrected', event_time = %s"
        return self._update("correct", sql, order, (self._amount(), time_text(self._now_ms)))

    def _move(self) -> BusinessStep:
        order, agent = self._any(), self._random.randrange(DESK + 1, AGENTS + 1)
        sql = "UPDATE member_order SET agent_id = %s, event_time = %s"
        return self._update("move", sql, order, (agent, time_text(self._now_ms)))

    def _late(self) -> BusinessStep:
        order, at = self._any(), self._now_ms - self._lateness()
        sql = "UPDATE member_order SET amount = %s, status = 'late', event_time = %s"
        return self._update("late", sql, order, (self._amount(), time_text(at)))

    def _cancel(self) -> BusinessStep:
        index = self._random.randrange(len(self._open))
        self._open[index], self._open[-1] = self._open[-1], self._open[index]
        order = self._open.pop()
        sql = "UPDATE member_order SET status = 'cancelled', event_time = %s WHERE id = %s"
        mark = MysqlStatement(sql, (time_text(self._now_ms), order))
        delete = MysqlStatement("DELETE FROM member_order WHERE id = %s", (order,))
        return BusinessStep("cancel", (mark, journal(order), delete), 2)

    def _together(self) -> BusinessStep:
        """A rebate: changes several orders in one transaction."""
        ids = sorted({self._any() for _ in range(5)})
        parts: list[MysqlStatement] = []
        for order in ids:
            sql = "UPDATE member_order SET amount = amount + 1, event_time = %s WHERE id = %s"
            parts += [MysqlStatement(sql, (time_text(self._now_ms), order)), journal(order)]
        return BusinessStep("together", tuple(parts), len(ids))

    def _level(self) -> BusinessStep:
        agent = self._random.randrange(DESK + 1, AGENTS + 1)
        sql = "UPDATE agent SET level = level + 1 WHERE id = %s"
        return BusinessStep("level", (MysqlStatement(sql, (agent,)),), 1)

    def _update(self, kind: str, sql: str, order: int, values: tuple[Any, ...]) -> BusinessStep:
        update = MysqlStatement(f"{sql} WHERE id = %s", (*values, order))
        return BusinessStep(kind, (update, journal(order)), 1)

    def _any(self) -> int:
        """The id of a random open order."""
        return self._open[self._random.randrange(len(self._open))]

    def _amount(self) -> str:
        return f"{self._random.randrange(500, 50_000) / 100:.2f}"

    def _lateness(self) -> float:
        return self._random.uniform(1, _HOUR_MS)


def journal(order: int) -> MysqlStatement:
    """Record an order's current row as an event."""
    return MysqlStatement(f"{_JOURNAL} = %s", (order,))


def time_text(at_ms: float) -> str:
    """A time (epoch ms, UTC) as MySQL's `event_time` has it."""
    timestamp = datetime.datetime.fromtimestamp(int(at_ms) / 1000, datetime.UTC)
    return f"{timestamp:%Y-%m-%d %H:%M:%S}.{timestamp.microsecond // 1000:03d}"


class Business:
    """Executes the steps in a MariaDB, at a rate of changes per second, in a thread of its own.

    `desk_ms` has the commit time of each order of the desk (epoch milliseconds).
    """

    def __init__(self, mariadb: MariaDB, changes_per_second: int, seed: int = 1) -> None:
        self._mariadb = mariadb
        self._rate, self._desk_rate = changes_per_second, min(_DESK_RATE, changes_per_second / 2)
        now = int(time.time() * 1000)
        # A step has about 1.15 changes.
        self.steps = Steps(seed, now, 1150 / changes_per_second)
        self.changes = 0
        self.desk_ms: list[float] = []
        self._thread: RepeatedStep | None = None

    def create(self, orders: int) -> None:
        """Recreate the tables, with orders of the last days."""
        self._mariadb.run(Path(__file__).parent / "business.sql")
        with self._mariadb.connect(DATABASE) as connection:
            connection.begin()
            with connection.cursor() as cursor:
                # In one batch: single inserts would take longer than the start of the server.
                inserts = [step.statements[0] for step in self.steps.beginning(orders)]
                cursor.executemany(inserts[0].sql, [insert.parameters for insert in inserts])
                cursor.execute(f"{_COPY} ORDER BY id")
            connection.commit()

    def start(self) -> None:
        """Start the thread."""
        self._thread = RepeatedStep(self._commits().__next__, "business")

    def raise_if_failed(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._thread is not None:
            self._thread.check()

    def stop(self) -> None:
        """Stop the thread between two transactions."""
        if self._thread is not None:
            self._thread.stop(30)

    def _commits(self) -> Iterator[float]:
        """Commit one step after another; yields the pause before the next one (s)."""
        started = time.monotonic()
        with self._mariadb.connect(DATABASE, multi_statements=True) as connection:
            while True:
                passed, pause_s = time.monotonic() - started, 0.0
                if len(self.desk_ms) < passed * self._desk_rate:
                    self._commit(connection, self.steps.desk())
                    self.desk_ms.append(time.time() * 1000)
                elif self.changes < passed * self._rate:
                    self._commit(connection, self.steps.next())
                else:
                    pause_s = 0.002
                yield pause_s

    def _commit(self, connection: pymysql.Connection[Any], step: BusinessStep) -> None:
        _execute(connection, step.statements)
        self.changes += step.changes

    def execute(self, *statements: MysqlStatement) -> None:
        """Execute statements beside the steps, in one transaction."""
        with self._mariadb.connect(DATABASE, multi_statements=True) as connection:
            _execute(connection, statements)


def _execute(connection: pymysql.Connection[Any], statements: Sequence[MysqlStatement]) -> None:
    with connection.cursor() as cursor:
        parts = [cursor.mogrify(each.sql, each.parameters) for each in statements]
        # In one message, since each round trip costs as much as a statement.
        cursor.execute("; ".join(["BEGIN", *parts, "COMMIT"]))
        while cursor.nextset():
            pass
