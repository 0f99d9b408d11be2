"""Waiting for commits that MySQL's binlog has and that SELECTs do not see yet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import pytest
from tests.waiting import DEADLINE_S

from streamhouse.errors import ConnectError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import parse
from streamhouse.mysql.pending_commits import (
    await_commits,
    unreported_delay,
)
from streamhouse.mysql.position import BinlogPosition

OPTIONS = parse(
    {
        "hostname": "localhost",
        "username": "reader",
        "password": "p",
        "database-name": "d",
        "table-name": "t",
    }
)
POSITION = BinlogPosition("binlog.000001", 4)
SELF = ("TABLE", "9", "1", "99")
SERVER = "11111111-1111-1111-1111-111111111111"


def lock(thread: int, event: int = 1, where: int = 5) -> tuple[str, ...]:
    return ("COMMIT", str(thread), str(event), str(where))


class _Server:
    """Answers each statement about commits with the next of its rows, and counts those answers."""

    def __init__(
        self,
        answers: Iterable[Sequence[tuple[str, ...]] | str | None],
        mode: str = "OFF",
        lost: int = 0,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.answers, self.mode, self.lost = list(answers), mode, lost
        self.variables = dict(variables)
        self.asked = 0

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        if "gtid_mode" in statement:
            return [(self.mode,)]
        if "SHOW GLOBAL VARIABLES" in statement:
            return list(self.variables.items())
        if "lock_lost" in statement:
            return [("Performance_schema_metadata_lock_lost", str(self.lost))]
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if answer is None:
            raise ConnectError("SELECT is denied")
        return [(answer,)] if isinstance(answer, str) else list(answer)

    def wait(self, seconds: float = DEADLINE_S) -> float:
        began = time.monotonic()
        await_commits(cast(Session, self), OPTIONS, POSITION, began + seconds)
        return time.monotonic() - began


def test_commits_of_the_first_answer_are_waited_for() -> None:
    server = _Server([
        [lock(1), SELF, lock(2)],
        [SELF, lock(2), lock(3)],
        [SELF, lock(2, event=4), lock(3)],
        [SELF],
    ])  # fmt: skip
    server.wait()
    assert server.asked == 3


@pytest.mark.parametrize("same", [lock(1, event=2), lock(1, where=6), lock(2)])
def test_a_lock_is_that_of_a_thread_at_an_event(same: tuple[str, ...]) -> None:
    server = _Server([[lock(1), SELF], [same, SELF]])
    server.wait()
    assert server.asked == 2


@pytest.mark.parametrize("mode", ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE"])
def test_a_commit_that_hangs(mode: str) -> None:
    server = _Server([[lock(7), SELF]], mode)
    with pytest.raises(ConnectError, match="binlog.000001:4 yet: a commit hangs .*of thread 7"):
        server.wait(0.05)


def test_gtids_need_no_locks() -> None:
    server = _Server([f"{SERVER}:7#3", f"{SERVER}:7#3:8#4", f"{SERVER}:8#4"], "ON")
    server.wait()
    assert server.asked == 3


@pytest.mark.parametrize(
    "server",
    [_Server([[]]), _Server([None]), _Server([[SELF]], lost=1), _Server([[lock(1), SELF], []])],
    ids=["not-recorded", "denied", "lost", "later"],
)
def test_commits_that_are_not_reported(server: _Server) -> None:
    server.variables = {"binlog_group_commit_sync_delay": "50000"}
    assert server.wait() >= 0.15
    server.asked = 0
    server.variables |= {
        "rpl_semi_sync_source_enabled": "ON",
        "rpl_semi_sync_source_wait_point": "AFTER_SYNC",
    }
    with pytest.raises(ConnectError, match="'reader' which commits .* set gtid_mode = ON, or set"):
        server.wait()


@pytest.mark.parametrize("prefix", ["rpl_semi_sync_source", "rpl_semi_sync_master"])
@pytest.mark.parametrize(
    ("enabled", "wait_point", "delay"),
    [("OFF", "AFTER_SYNC", 1.0), ("ON", "AFTER_COMMIT", 1.0), ("ON", "AFTER_SYNC", None)],
)
def test_how_long_commits_are_pending(
    prefix: str, enabled: str, wait_point: str, delay: float | None
) -> None:
    variables = {f"{prefix}_enabled": enabled, f"{prefix}_wait_point": wait_point}
    assert unreported_delay(cast(Session, _Server([[]], variables=variables))) == delay
