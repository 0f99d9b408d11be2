"""The GTIDs of an offset are those of all transactions before its position, while others commit."""

from __future__ import annotations

import random
from typing import Any, cast
from unittest.mock import MagicMock, patch

import pytest

from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.relay.state import RelayState
from streamhouse.mysql import pending_commits
from streamhouse.mysql.connection import Session
from streamhouse.mysql.gtids import known_gtids
from streamhouse.mysql.position import NO_BINLOG_STATE, BinlogPosition
from streamhouse.mysql.table import Server
from streamhouse.runtime.sync.planner import SyncPlanner

ORIGIN = "11111111-1111-1111-1111-111111111111"
STATUS = "SHOW BINARY LOG STATUS"


class _Committing:
    """A MySQL with sessions that commit: each owns a GTID, logs it, and then adds it to the set.

    Some own one before they log it, as MySQL's sessions with `gtid_next` do.
    """

    def __init__(self, chance: random.Random, rate: float) -> None:
        self.chance, self.rate = chance, rate
        self.owned: list[int] = []
        self.logged: list[int] = []
        self.executed: set[int] = set()
        self.numbers = iter(range(1, 1_000_000))

    def step(self) -> None:
        """Let some sessions take their next step, or new ones begin."""
        while self.chance.random() < self.rate:
            kind = self.chance.randrange(4)
            waiting = [number for number in self.owned if number not in self.logged]
            flushed = [number for number in self.owned if number in self.logged]
            if kind == 0:
                self.owned.append(next(self.numbers))
            elif kind == 1 and waiting:
                self.logged.append(self.chance.choice(waiting))
            elif kind > 1 and flushed:
                number = self.chance.choice(flushed)
                self.owned.remove(number)
                self.executed.add(number)

    def settle(self) -> None:
        """Let all sessions end."""
        self.logged += [number for number in self.owned if number not in self.logged]
        self.executed |= {*self.owned}
        self.owned = []

    @property
    def position(self) -> BinlogPosition:
        return BinlogPosition("binlog.000001", 4 + len(self.logged))

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        self.step()
        if "gtid_mode" in statement:
            return [("ON",)]
        if "gtid_owned" in statement:
            owned = [f":{number}#{number}" for number in self.owned]
            return [(ORIGIN + "".join(owned) if owned else "",)]
        assert statement == STATUS
        executed = ",\n".join(f"{ORIGIN}:{number}" for number in sorted(self.executed))
        self.step()  # MySQL copies the set first.
        return [(self.position.file, self.position.pos, "", "", executed)]


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_gtids_and_their_position(rate: float) -> None:
    known = 0
    with (
        patch.object(pending_commits, "_POLL_SECONDS", 0.0),
        patch.object(pending_commits, "_COUNTED_SECONDS", 0.02),
    ):
        for seed in range(60):
            mysql = _Committing(random.Random(seed), rate)
            for _ in range(20):
                mysql.step()
            session, server = cast(Session, mysql), Server(False, STATUS)
            for _ in range(3):
                mysql.step()
                position = mysql.position
                before = mysql.logged[: position.pos - 4]
                found = known_gtids(server.gtids(session, position), mariadb=False)
                if found is None:
                    continue
                known += bool(before)
                numbers = {number for number in before if found.contains(ORIGIN, number)}
                assert numbers == {*before}, seed
                later = [number for number in mysql.logged if number not in before]
                assert not any(found.contains(ORIGIN, number) for number in later), seed
            mysql.settle()
            mysql.rate = 0.0
            assert server.gtids(session, mysql.position) is not None
    assert known > 5


def test_a_server_that_gives_no_gtids_has_none() -> None:
    """The set may have those of a time before, which say nothing about the place in the binlog."""
    mysql = _Committing(random.Random(1), 0.0)
    mysql.executed = {1, 2}
    answered = mysql.rows
    for mode in ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE"):
        with patch.object(
            mysql,
            "rows",
            lambda statement, mode=mode: (
                [(mode,)] if "gtid_mode" in statement else answered(statement)
            ),
        ):
            assert Server(False, STATUS).gtids(cast(Session, mysql), mysql.position) is None


def test_a_batch_of_a_sync_has_the_gtids_of_the_log_by_which_it_was_planned() -> None:
    """The log goes on meanwhile, and has the GTIDs at its end only."""
    begin, end, later = (BinlogPosition("binlog.000001", pos) for pos in (4, 50, 90))
    states = [RelayState(at, {}, {}, {}, {}, {}, f"{ORIGIN}:1-{at.pos}") for at in (end, later)]
    planner = object.__new__(SyncPlanner)
    with (
        patch.object(planner, "relay_log", lambda progress: MagicMock(state=lambda: states[1])),
        patch.object(planner, "_planned_log", states[0], create=True),
        patch.object(planner, "_binlog", MagicMock(), create=True) as binlog,
    ):
        binlog.completed = lambda state, position: state
        before = DatabaseProgress(1, begin, NO_BINLOG_STATE)
        found = planner._advanced(before, end)
        assert (found.position, found.binlog_state.gtids) == (end, f"{ORIGIN}:1-50")
        assert planner._advanced(before, later).binlog_state.gtids == f"{ORIGIN}:1-90"
