"""Restarts of a command are counted within an hour; older ones do not count."""

from __future__ import annotations

import contextlib
import os
import sys
import time

import pytest

from streamhouse.cli import restart_state
from streamhouse.cli.restart_state import _restart
from streamhouse.errors import StreamhouseError


def test_restarts_in_a_row_add_up() -> None:
    environment: dict[str, str] = {}
    counts = [
        restart_state.record_restart(environment, 5_000.0 + at)
        for at in range(restart_state.MAX_RESTARTS + 1)
    ]
    assert counts == [1, 2, 3, 4, 5, 6]
    assert counts[-1] > restart_state.MAX_RESTARTS


def test_restarts_once_a_month_never_add_up() -> None:
    environment: dict[str, str] = {}
    month = 30 * 24 * 3600.0
    assert {
        restart_state.record_restart(environment, number * month) for number in range(1, 30)
    } == {1}


def test_only_restarts_of_the_last_hour_count() -> None:
    environment: dict[str, str] = {}
    times = (10_000.0, 11_000.0, 13_599.0, 13_601.0, 14_601.0, 30_000.0)
    assert [restart_state.record_restart(environment, at) for at in times] == [1, 2, 3, 3, 3, 1]


@pytest.mark.parametrize("noted", ["3", "x nan inf", "9000", "", "  "])
def test_values_that_are_not_times_of_this_boot_do_not_count(noted: str) -> None:
    """A number of an older version, somebody's nonsense, a time before the last boot."""
    environment = {restart_state.VARIABLE: noted}
    assert restart_state.record_restart(environment, 5_000.0) == 1
    assert restart_state.record_restart(environment, 5_001.0) == 2


def test_too_many_restarts_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setenv(
        restart_state.VARIABLE, " ".join(str(now) for _ in range(restart_state.MAX_RESTARTS))
    )
    with pytest.raises(
        StreamhouseError, match="a query has failed, 6 times within an hour; the last cause"
    ):
        _restart(None, False, "a query has failed", "no word")


def test_a_programming_error_ends_the_command_when_it_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def restarts(cause: str) -> bool:
        started.clear()
        with contextlib.suppress(StreamhouseError):
            _restart(None, False, "a query has failed", cause)
        return bool(started)

    started: list[object] = []
    monkeypatch.setattr(os, "execv", lambda *arguments: started.append(arguments))
    for name in (restart_state.VARIABLE, "STREAMHOUSE_RESTART_CAUSE"):
        monkeypatch.setenv(name, "")
    wrong = "internal error: QueryFailed: NameError: name 'x' is not defined"
    assert restarts(wrong) and not restarts(wrong)
    assert restarts("internal error: OSError: reset") and restarts("internal error: OSError: reset")
    assert restarts(wrong)
    long_ago = time.monotonic() - restart_state.SOON_S - 1
    monkeypatch.setenv(restart_state.VARIABLE, str(long_ago))
    assert restarts(wrong)


def test_recent_restarts_are_counted_without_adding_one() -> None:
    environment: dict[str, str] = {}
    assert restart_state.recent_restarts(environment, 0.0) == 0
    restart_state.record_restart(environment, 10.0)
    restart_state.record_restart(environment, 20.0)
    assert (
        restart_state.recent_restarts(environment, 30.0)
        == restart_state.recent_restarts(environment, 31.0)
        == 2
    )
    assert restart_state.recent_restarts(environment, 15.0 + restart_state.WITHIN_S) == 1


def test_what_is_done_from_scratch_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["sync", "--from_scratch", "x", "--keep-targets"]
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    monkeypatch.setattr(os, "execv", lambda program, arguments: started.append(arguments[1:]))
    for name in (restart_state.VARIABLE, "STREAMHOUSE_RESTART_CAUSE"):
        monkeypatch.setenv(name, "")
    started: list[list[str]] = []
    for has_reset in (False, True):
        _restart(None, has_reset, "a query has failed", "no word")
    assert started == [words, ["sync", "x"]]
